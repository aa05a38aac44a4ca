"""A finished run, opened for reading: lazy vectors, and lookup by id."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from figrl.errors import BadInputError
from figrl.serve.lookup import Ids, find_rows, has_node, is_id
from figrl.serve.node_ids import NodeIds
from figrl.serve.overlay import Overlay, open_overlay
from figrl.serve.search import Metric
from figrl.store.arrays import open_zarr
from figrl.store.checksums import damaged
from figrl.store.graph import Graph, open_graph
from figrl.store.layout import PathLike, StorePaths, check_finished, existing_store, read_manifest
from figrl.store.lease import Lease
from figrl.store.matrix import Floats, take_rows
from figrl.store.sides import Side
from figrl.units import bars_svg, facts_html, human_bytes, human_seconds, kind_of

if TYPE_CHECKING:
    import dask.array as da

_TRIES = 20
_IDS_AT_A_TIME = 1 << 16


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

        stored = open_zarr(self.path / "embedding")
        lazy: da.Array = da.from_array(stored, chunks=stored.chunks, name=f"figrl-{self.path}")
        return lazy

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of `vectors`: learnt nodes, dimensions."""
        return self.graph.nodes, self.dim

    @property
    def singular_values(self) -> npt.NDArray[np.float64]:
        """Singular values of the sketch, one per dimension."""
        return np.asarray(self.manifest["singular_values"])

    @property
    def eigenvalues(self) -> npt.NDArray[np.float64] | None:
        """Signed eigenvalues of L, one per dimension; None without a certificate."""
        certificate = self.manifest["certificate"]
        return None if certificate is None else np.asarray(certificate["eigenvalues"])

    @property
    def ids(self) -> NodeIds:
        """Ids in the order of the rows of `vectors`, read when they are asked for.

        ``ids[5]``, ``ids[:100]``, ``list(ids)``, ``np.asarray(ids)``; ``ids(side="target")`` are
        those of a side, as an array of Arrow.
        """
        return NodeIds(self.graph)

    def ids_at(self, rows: npt.NDArray[np.int64]) -> list[Any]:
        """Ids of some rows; nodes folded in since come after the learnt ones."""
        newer = rows >= self.graph.nodes
        found = np.empty(rows.size, object)
        found[~newer] = self.graph.index.take(rows[~newer])
        if self.overlay is not None:
            found[newer] = self.overlay.index.take(rows[newer] - self.graph.nodes)
        return found.tolist()

    def sides_at(self, rows: npt.NDArray[np.int64]) -> list[Side] | None:
        """Sides of some rows; None in an undirected graph."""
        if not self.graph.has_sides:
            return None
        sides = self.graph.index.sides_at(rows)
        if self.overlay is not None:
            sides[rows >= self.graph.nodes] = self.overlay.side
        return cast("list[Side]", sides.tolist())

    def lookup(self, ids: Ids, side: Side | None = None) -> Floats:
        """Vectors of some nodes.

        Parameters
        ----------
        ids : sequence of int or str
            Of the graph's id type, in any order, with or without repeats.
        side : "source" or "target", optional
            Of a bipartite or directed graph; may be left out for ids that only one side has.

        Returns
        -------
        float32 array, shape (len(ids), dim)

        Raises
        ------
        KeyError
            If neither the graph nor the overlay has one of the ids.
        ConfigError
            If no side is given for an id that both sides have, or one where there are none.

        Examples
        --------
        >>> figrl.open_store("store").embedding().lookup(["alice", "bob"])  # doctest: +SKIP
        """
        return self.vectors_at(self.rows_of(ids, side))

    def vectors_at(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Vectors of some rows."""
        vectors = np.empty((rows.size, self.dim), np.float32)
        learnt = rows < self.graph.nodes
        vectors[learnt] = take_rows(self.path / "embedding", rows[learnt])
        if self.overlay is not None:
            vectors[~learnt] = self.overlay.take(rows[~learnt] - self.graph.nodes)
        return vectors

    def rows_of(self, ids: Ids, side: Side | None = None) -> npt.NDArray[np.int64]:
        """Rows of some nodes; nodes folded in since come after the learnt ones. See `lookup`."""
        return find_rows(self.graph, self.overlay, ids, side)

    def __getitem__(self, node: int | str | tuple[int | str, Side]) -> Floats:
        """Vector of a node, named by its id or by ``(id, side)``."""
        name, side = _named(node)
        vector: Floats = self.lookup([name], side)[0]
        return vector

    def __contains__(self, node: Any) -> bool:
        name, side = _named(node)
        return has_node(self.graph, self.overlay, name, side)

    def __iter__(self) -> Iterator[Any]:
        """Names of the nodes, read in pieces: ids, or ``(id, side)`` where nodes have sides."""
        for start in range(0, len(self), _IDS_AT_A_TIME):
            rows = np.arange(start, min(start + _IDS_AT_A_TIME, len(self)))
            ids, sides = self.ids_at(rows), self.sides_at(rows)
            yield from ids if sides is None else zip(ids, sides, strict=True)

    def __len__(self) -> int:
        return self.graph.nodes + (0 if self.overlay is None else len(self.overlay))

    def _facts(self) -> dict[str, str]:
        manifest = self.manifest
        return {
            "run": self.run,
            "nodes": f"{self.graph.nodes:,}",
            **{f"{side} nodes": f"{count:,}" for side, count in self.graph.side_nodes().items()},
            "edges": f"{self.graph.edges:,}",
            **({} if self.overlay is None else {"folded in since": f"{len(self.overlay):,}"}),
            "dimensions": str(self.dim),
            "sketch columns": f"{manifest['sketch_size']:,}",
            **spectrum_facts(manifest),
            "learnt in": human_seconds(manifest["seconds"]),
            "peak memory of a worker": human_bytes(manifest["peak_worker_bytes"]),
        }

    def __repr__(self) -> str:
        newer = "" if self.overlay is None else f", {len(self.overlay):,} folded in since"
        return (
            f"<Embedding {self.run}: {self.graph.nodes:,} nodes x {self.dim} dimensions, "
            f"{self.manifest['spec']['representation']}{newer}>"
        )

    def _repr_html_(self) -> str:
        values, name = self.eigenvalues, "Eigenvalues"
        if values is None:
            values, name = self.singular_values, "Singular values"
        picture = bars_svg(values.tolist(), f"{name} by dimension")
        return facts_html("figrl embedding", self._facts(), picture)


def _named(node: Any) -> tuple[Any, Any]:
    """Id and side of a node that was asked for, None where no side is given."""
    if isinstance(node, tuple) and len(node) == 2:
        return node
    if is_id(node):
        return node, None
    remedy = "several are run.lookup([...])"
    if isinstance(node, slice):
        remedy = "rows are run.vectors[5:10], and their ids run.ids[5:10]"
    raise TypeError(f"run[...] takes one id, or (id, side), not {kind_of(node)}; {remedy}.")


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
        raise damaged(self.paths.run(name), "is not there, though it is the current run")

    def _facts(self) -> dict[str, str]:
        graph = self.graph
        return {
            "graph": graph.version,
            "nodes": f"{graph.nodes:,}",
            "edges": f"{graph.edges:,}",
            "runs": f"{len(self.runs):,}",
            "published run": self.paths.current_run() or "none",
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Store {self.paths.root}: {facts}>"

    def _repr_html_(self) -> str:
        current = self.paths.current_run()
        shown = "" if current is None else self.embedding(current)._repr_html_()
        return facts_html(f"figrl store {self.paths.root}", self._facts()) + shown


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
