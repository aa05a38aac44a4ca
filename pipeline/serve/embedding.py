"""A finished run, opened: lazy vectors, lookup by id, and a face for notebooks."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.arrays import open_zarr
from pipeline.errors import BadInputError
from pipeline.graph import Graph, open_graph
from pipeline.ingest.arrow import id_type, sorted_ids
from pipeline.lease import Lease
from pipeline.measure import human_bytes, human_seconds
from pipeline.serve.overlay import Overlay, open_overlay
from pipeline.store import StorePaths, check_finished, existing_store, read_manifest

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
        What identifies the run, and what happened in it.
    lease : Lease
        Keeps the files there as long as this object is.
    overlay : Overlay or None
        Vectors of nodes that were folded in since; `lookup` and searches see them too.
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
    def vectors(self) -> da.Array:
        """All vectors that were learnt, in the order of the rows, lazy, as a Dask array."""
        import dask.array as da

        lazy: da.Array = da.from_zarr(str(self.path / "embedding"))
        return lazy

    @property
    def singular_values(self) -> npt.NDArray[np.float64]:
        """Singular values of the sketch that belong to the dimensions."""
        return np.asarray(self.manifest["singular_values"])

    @property
    def eigenvalues(self) -> npt.NDArray[np.float64] | None:
        """Signed eigenvalues of L that belong to the dimensions, where there is a certificate."""
        certificate = self.manifest["certificate"]
        return None if certificate is None else np.asarray(certificate["eigenvalues"])

    def ids(self, start: int = 0, stop: int | None = None) -> pa.Array:
        """Ids of rows from `start` up to `stop`; all of them, if they fit your memory."""
        return self.graph.index.ids_of(start, self.graph.nodes if stop is None else stop)

    def ids_at(self, rows: npt.NDArray[np.int64]) -> list[Any]:
        """Ids of some rows; those of nodes folded in since follow those that were learnt."""
        nodes, found = self.graph.nodes, []
        for row in rows.tolist():
            index, at = (
                (self.graph.index, row)
                if row < nodes or self.overlay is None
                else (self.overlay.index, row - nodes)
            )
            found.append(index.ids_of(at, at + 1)[0].as_py())
        return found

    def lookup(self, ids: Sequence[int] | Sequence[str]) -> npt.NDArray[np.float32]:
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
        """
        if isinstance(ids, str | bytes):
            raise TypeError(f"lookup takes a sequence of ids; write [{ids!r}] for one.")
        rows = self.rows_of(ids)
        if not rows.size:
            return np.empty((0, self.dim), np.float32)
        vectors = np.empty((rows.size, self.dim), np.float32)
        learnt = rows < self.graph.nodes
        if learnt.any():
            distinct, places = np.unique(rows[learnt], return_inverse=True)
            array = open_zarr(self.path / "embedding")
            found = np.asarray(array.get_orthogonal_selection((distinct, slice(None))))
            vectors[learnt] = found[places]
        if self.overlay is not None and not learnt.all():
            vectors[~learnt] = self.overlay.take(rows[~learnt] - self.graph.nodes)
        return vectors

    def rows_of(self, ids: Sequence[int] | Sequence[str]) -> npt.NDArray[np.int64]:
        """Rows of some nodes; those folded in since follow those that were learnt."""
        try:
            wanted = pa.array(ids, id_type(self.graph.id_kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise KeyError(f"the ids of this graph are {self.graph.id_kind}: {error}") from error
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

    def __getitem__(self, node: int | str) -> npt.NDArray[np.float32]:
        vector: npt.NDArray[np.float32] = self.lookup([node])[0]  # type: ignore[arg-type]
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
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>figrl embedding</caption>{rows}</table>"


def spectrum_facts(manifest: dict[str, Any]) -> dict[str, str]:
    """What a run knows of the spectrum, and how good it is, in words."""
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
    """A store, opened for reading."""

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
                # Between the two looks other runs were published, and this one was deleted.
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


def open_store(store: str | Path) -> StoreView:
    """Open a store for reading.

    Examples
    --------
    >>> store = open_store("communities")  # doctest: +SKIP
    >>> store.embedding().lookup(["alice", "bob"])  # doctest: +SKIP
    """
    return StoreView(existing_store(store))
