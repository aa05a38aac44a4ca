"""A finished run, opened for reading: lazy vectors, and lookup by id."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.errors import BadInputError
from figrl.serve.overlay import Overlay, open_overlay
from figrl.serve.search import Metric
from figrl.store.graph import Graph, open_graph
from figrl.store.ids import id_type, sorted_ids
from figrl.store.layout import PathLike, StorePaths, check_finished, existing_store, read_manifest
from figrl.store.lease import Lease
from figrl.store.matrix import Floats, take_rows
from figrl.units import human_bytes, human_seconds

if TYPE_CHECKING:
    import dask.array as da

_TRIES = 20


@dataclass(frozen=True)
class Embedding:
    """One vector per node of a graph.

    Attributes
    ----------
    path : Path
        Folder of the run.
    graph : Graph
        The graph it was learnt from.
    manifest : dict
        What identifies the run, and its statistics.
    lease : Lease
        Keeps the files from being deleted while this object exists.
    overlay : Overlay or None
        Vectors of nodes that were folded in since; `lookup` and searches include them.
    """

    path: Path
    graph: Graph
    manifest: dict[str, Any]
    lease: Lease = field(repr=False, compare=False)
    overlay: Overlay | None = None

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return int(self.manifest["dim"])

    @property
    def metric(self) -> Metric:
        """What says how near two vectors are: their cosine or, for products, their dot product."""
        return "dot" if self.manifest["spec"]["representation"] == "product" else "cosine"

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of the stored vectors."""
        return int(self.manifest["plan"]["geometry"]["chunk_rows"])

    @property
    def vectors(self) -> da.Array:
        """All learnt vectors in the order of the rows, as a lazy Dask array."""
        import dask.array as da

        lazy: da.Array = da.from_zarr(str(self.path / "embedding"))
        return lazy

    @property
    def singular_values(self) -> npt.NDArray[np.float64]:
        """Singular values of the sketch, one per dimension."""
        return np.asarray(self.manifest["singular_values"])

    @property
    def eigenvalues(self) -> npt.NDArray[np.float64] | None:
        """Signed eigenvalues of L, one per dimension; None without a certificate."""
        certificate = self.manifest["certificate"]
        return None if certificate is None else np.asarray(certificate["eigenvalues"])

    def ids(self, start: int = 0, stop: int | None = None) -> pa.Array:
        """Ids of the rows from `start` up to `stop`; by default all, which have to fit memory."""
        return self.graph.index.ids_of(start, self.graph.nodes if stop is None else stop)

    def ids_at(self, rows: npt.NDArray[np.int64]) -> list[Any]:
        """Ids of some rows; nodes folded in since come after the learnt ones."""
        newer = rows >= self.graph.nodes
        found = np.empty(rows.size, object)
        found[~newer] = self.graph.index.take(rows[~newer])
        if self.overlay is not None:
            found[newer] = self.overlay.index.take(rows[newer] - self.graph.nodes)
        return found.tolist()

    def lookup(self, ids: Sequence[int] | Sequence[str]) -> Floats:
        """Vectors of some nodes.

        Parameters
        ----------
        ids : sequence of int or str
            Of the graph's id type, in any order, with or without repeats.

        Returns
        -------
        float32 array, shape (len(ids), dim)

        Raises
        ------
        KeyError
            If neither the graph nor the overlay has one of the ids.

        Examples
        --------
        >>> figrl.open_store("store").embedding().lookup(["alice", "bob"])  # doctest: +SKIP
        """
        return self.vectors_at(self.rows_of(ids))

    def vectors_at(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Vectors of some rows."""
        vectors = np.empty((rows.size, self.dim), np.float32)
        learnt = rows < self.graph.nodes
        vectors[learnt] = take_rows(self.path / "embedding", rows[learnt])
        if self.overlay is not None:
            vectors[~learnt] = self.overlay.take(rows[~learnt] - self.graph.nodes)
        return vectors

    def rows_of(self, ids: Sequence[int] | Sequence[str]) -> npt.NDArray[np.int64]:
        """Rows of some nodes; nodes folded in since come after the learnt ones."""
        if isinstance(ids, str | bytes):
            raise TypeError(f"ids have to be a sequence; write [{ids!r}] for one.")
        try:
            wanted = pa.array(ids, id_type(self.graph.id_kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            kind = {"int": "integers", "string": "strings"}[self.graph.id_kind]
            raise KeyError(f"the ids of this graph are {kind}: {error}") from error
        distinct = sorted_ids(wanted.unique())
        found = self.graph.index.rows_of(distinct)
        if self.overlay is not None and (found < 0).any():
            newer = self.overlay.index.rows_of(distinct.filter(pa.array(found < 0)))
            found[found < 0] = np.where(newer >= 0, newer + self.graph.nodes, -1)
        if (found < 0).any():
            missing = distinct.filter(pa.array(found < 0))
            shown = ", ".join(repr(value) for value in missing.slice(0, 5).to_pylist())
            raise KeyError(f"{len(missing)} of the ids are not in the graph: {shown}")
        places = pa.compute.index_in(wanted, value_set=distinct).to_numpy()
        rows: npt.NDArray[np.int64] = found[places]
        return rows

    def __getitem__(self, node: int | str) -> Floats:
        vector: Floats = self.lookup([node])[0]  # type: ignore[arg-type]
        return vector

    def __len__(self) -> int:
        return self.graph.nodes + (0 if self.overlay is None else len(self.overlay))

    def _facts(self) -> dict[str, str]:
        manifest = self.manifest
        return {
            "run": self.run,
            "nodes": f"{self.graph.nodes:,}",
            "edges": f"{self.graph.edges:,}",
            **({} if self.overlay is None else {"folded in since": f"{len(self.overlay):,}"}),
            "dimensions": str(self.dim),
            "sketch columns": f"{manifest['sketch_size']:,}",
            **spectrum_facts(manifest),
            "learnt in": human_seconds(manifest["seconds"]),
            "peak memory of a worker": human_bytes(manifest["peak_worker_bytes"]),
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Embedding: {facts}>"

    def _repr_html_(self) -> str:
        return facts_html("figrl embedding", self._facts())


def facts_html(caption: str, facts: Mapping[str, str]) -> str:
    """Names and values as the HTML table that a notebook shows."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"


def spectrum_facts(manifest: dict[str, Any]) -> dict[str, str]:
    """Range of the spectrum of a run and what its certificate says, formatted."""
    certificate = manifest["certificate"]
    if certificate is None:
        values = manifest["singular_values"]
        return {"singular values": f"{values[0]:.4g} to {values[-1]:.4g}"}
    values = certificate["eigenvalues"]
    return {
        "eigenvalues": f"{values[0]:.4g} to {values[-1]:.4g}",
        "certificate": certificate["meaning"],
    }


@dataclass(frozen=True)
class StoreView:
    """A store, opened for reading.

    Attributes
    ----------
    paths : StorePaths
    """

    paths: StorePaths

    @property
    def graph(self) -> Graph:
        """The graph that was ingested last."""
        return open_graph(self.paths)

    @property
    def runs(self) -> list[str]:
        """Names of the finished runs, oldest first."""
        return self.paths.finished_runs()

    def embedding(self, run: str | None = None) -> Embedding:
        """Open a run; by default the published one."""
        name = run or self.paths.current_run()
        if name is None:
            raise BadInputError(
                f"Nothing is learnt yet in {self.paths.root}. Run: figrl embed --store "
                f"{self.paths.root}"
            )
        if run is not None:
            check_finished(self.paths, run)
        for again in range(_TRIES):
            folder = self.paths.run(name)
            try:
                lease = Lease(folder)
            except FileNotFoundError:
                # Since its name was read, others were published and this one was deleted.
                name = run or self.paths.current_run() or name
                time.sleep(0.01 * again)
                continue
            manifest = read_manifest(folder)
            graph = open_graph(self.paths, manifest["graph"])
            return Embedding(folder, graph, manifest, lease, open_overlay(folder))
        raise BadInputError(f"The run {name} is not there any more in {self.paths.root}.")

    def __repr__(self) -> str:
        current = self.paths.current_run() or "none"
        return (
            f"<Store {self.paths.root}: {self.graph!r}, {len(self.runs)} runs, current {current}>"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def open_store(store: PathLike) -> StoreView:
    """Open a store for reading.

    Parameters
    ----------
    store : path
        Folder that holds at least one graph.

    Returns
    -------
    StoreView

    Examples
    --------
    >>> store = figrl.open_store("communities")  # doctest: +SKIP
    >>> store.embedding().lookup(["alice", "bob"])  # doctest: +SKIP
    """
    return StoreView(existing_store(store))
