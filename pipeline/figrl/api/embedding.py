"""A run and a store as a notebook has them: reading, searching, clusters, new nodes, pictures."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import distributed
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.analyze.centers import Method
from figrl.analyze.clusters import run_cluster
from figrl.api.folding import FoldedNodes, fold_into
from figrl.api.plot import plot_vectors
from figrl.api.progress import showing
from figrl.api.tables import check_fits, dask_frame, frame_between, table_of, xarray_of
from figrl.api.words import check_arguments, in_python
from figrl.config import make_options
from figrl.engine.session import Session
from figrl.ingestion.inputs import Edges
from figrl.serve import embedding as serve
from figrl.serve.compare import Comparison, compare
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.lookup import Ids, is_id
from figrl.serve.neighbors import Among, find_nearest, find_neighbors
from figrl.settings import configured
from figrl.store.layout import PathLike, existing_store
from figrl.store.matrix import Floats
from figrl.store.sides import Side
from figrl.units import kind_of

if TYPE_CHECKING:
    import pandas as pd


class FoldInArguments(TypedDict, total=False):
    """Arguments of fold-in; those of `figrl.fold_in`."""

    side: Side | None
    source: str | int | None
    target: str | int | None
    weight: str | int | None
    ids: str
    csv_header: str
    on_bad_edges: str
    degrees: str
    known: str
    rounds: int


class Embedding(serve.Embedding):
    """One vector per node of a graph.

    ``run.vectors`` is a lazy Dask array, ``run.ids`` are the ids of its rows, and ``run["alice"]``
    is the vector of a node. ``"alice" in run`` says whether there is one, and ``for node in run``
    goes through their names.

    Attributes
    ----------
    path : Path
        Folder of the run.
    graph : Graph
        The graph it was learnt from.
    manifest : dict
        What identifies the run, and its statistics.
    overlay : Overlay or None
        Vectors of nodes that were folded in and published since; `lookup` and searches have them.

    Examples
    --------
    >>> run = figrl.embed([(1, 2), (2, 3), (3, 1), (3, 4)], dim=2)
    >>> run.vectors.shape, list(run.ids), run[4].shape
    ((4, 2), [1, 2, 3, 4], (2,))
    >>> run.to_pandas().loc[[4, 1]].shape
    (2, 2)
    """

    @classmethod
    def of(cls, run: serve.Embedding) -> Embedding:
        """The same run with all that a notebook needs."""
        return cls(**{one.name: getattr(run, one.name) for one in fields(run)})

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """All learnt vectors, if they fit memory."""
        check_fits(self)
        return np.array(np.asarray(self.vectors), dtype, copy=copy)

    def to_pandas(self) -> pd.DataFrame:
        """All learnt vectors as a frame of pandas; ids, and sides if there are, are its index."""
        check_fits(self)
        return frame_between(self, 0, self.graph.nodes)

    def to_dask(self) -> Any:
        """All learnt vectors as a lazy Dask DataFrame: ``id``, ``side``, ``0``, ``1``, ..."""
        return dask_frame(self)

    def to_arrow(self) -> pa.Table:
        """All learnt vectors as a table of Arrow: ``id``, ``side``, ``vector``, as exported."""
        return table_of(self)

    def to_xarray(self) -> Any:
        """All learnt vectors as a lazy DataArray, node x dimension, with ids as coordinates."""
        return xarray_of(self)

    @in_python
    def lookup(self, ids: Ids, side: Side | None = None) -> Floats:
        """Vectors of some nodes by their ids, in any order and with repeats.

        `side` is that of a bipartite or directed graph; an id that only one side has needs none. An
        id that neither the graph nor the overlay has is a KeyError.
        """
        return super().lookup(ids, side)

    @in_python
    def __contains__(self, node: Any) -> bool:
        return super().__contains__(node)

    @in_python
    def neighbors(
        self,
        node: Any,
        count: int = 10,
        *,
        side: Side | None = None,
        among: Among | None = None,
        approximate: bool = False,
        client: distributed.Client | None = None,
    ) -> pd.DataFrame:
        """Find the nodes whose vectors lie nearest.

        Parameters
        ----------
        node : id, sequence of ids, or vector
            A vector is a NumPy array of floats, or several of them as its rows.
        count : int
            Number of neighbours of each.
        side : "source" or "target", optional
            Side of the ids in a bipartite or directed graph.
        among : "source", "target" or "all", optional
            Nodes that are searched; by default those of the other side.
        approximate : bool
            Search the index that re-indexing builds.
        client : distributed.Client, optional
            Cluster for the exact search; by default the threads of this process.

        Returns
        -------
        pandas.DataFrame
            ``id`` (of vectors ``query``), ``rank``, ``neighbor``, and ``cosine`` or ``dot``.
        """
        asked: dict[str, Any] = {"count": count, "among": among, "client": client}
        asked["approximate"] = approximate
        if isinstance(node, np.ndarray) and node.dtype.kind == "f":
            vectors = np.atleast_2d(np.asarray(node, np.float32))
            if vectors.shape[1] != self.dim:
                raise ValueError(
                    f"The vector has {vectors.shape[1]} dimensions, those of this run {self.dim}."
                )
            return find_nearest(self, vectors, **asked).to_pandas()
        ids = [node] if is_id(node) else _listed(node)
        return find_neighbors(self, ids, side=side, **asked).to_pandas()

    @in_python
    @configured(FoldInOptions)
    def fold_in(
        self,
        edges: Edges,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        client: distributed.Client | None = None,
        memory_limit: str | int | None = None,
        progress: bool | None = None,
        **options: Unpack[FoldInArguments],
    ) -> FoldedNodes:
        """Compute vectors of new nodes from their edges to known ones; see `figrl.fold_in`.

        In each edge the new node comes first, and the known one second.

        Examples
        --------
        >>> run = figrl.embed([(1, 2), (2, 3), (3, 1), (3, 4)], dim=2)
        >>> run.fold_in([(9, 1), (9, 2)]).vectors.shape
        (1, 2)
        """
        check_arguments("fold_in", options, FoldInOptions.model_fields)
        config = make_options(FoldInOptions, dict(options))
        with showing(progress, "fold_in") as monitor:
            session = Session(client, memory_limit, monitor)
            store = self.graph.store
            return fold_into(store, self.run, edges, out, config, session, overwrite=overwrite)

    @in_python
    def cluster(
        self,
        clusters: int,
        *,
        method: Method = "kmeans",
        seed: int = 0,
        client: distributed.Client | None = None,
        memory_limit: str | int | None = None,
        progress: bool | None = None,
    ) -> pd.Series[int]:
        """Cluster the nodes by their vectors; the number of its cluster for each id.

        Parameters
        ----------
        clusters : int
        method : {"kmeans", "agglomerative"}
        seed : int
        client, memory_limit, progress : optional
            As of `figrl.embed`.
        """
        with showing(progress, "cluster") as monitor:
            session = Session(client, memory_limit, monitor)
            report = run_cluster(
                self.graph.store, clusters, session, run=self.run, method=method, seed=seed
            )
        frame = pq.read_table(report["out"]).to_pandas()
        return frame.set_index(list(self.graph.node_fields))["cluster"]

    @in_python
    def compare(self, other: serve.Embedding) -> Comparison:
        """Rotate this run onto another and compare the nodes that both have.

        The result has ``mean`` and ``quantiles`` of the cosines, and ``moved(10)``, the nodes that
        moved most.
        """
        if not isinstance(other, serve.Embedding):
            raise TypeError(
                f"compare takes another run, such as one of figrl.embed, not {kind_of(other)}. "
                "Vectors alone do not say whose they are."
            )
        return compare(self, other)

    def plot(
        self,
        *,
        color: Any = None,
        labels: bool | list[Any] = False,
        nodes: int = 2000,
        seed: int = 0,
        ax: Any = None,
    ) -> Any:
        """Draw the vectors in two dimensions, their first principal components.

        Parameters
        ----------
        color : pandas.Series, array or sequence, optional
            A value for each node, by its id in a series, such as ``run.cluster(8)``, else in the
            order of ``run.ids``. Nodes of one value have one colour; floats are on a scale.
        labels : bool or list of ids
            Write the ids of all nodes that are drawn, or of these.
        nodes : int
            Most nodes that are drawn; of more, a random sample.
        seed : int
            Seed of the sample.
        ax : matplotlib.axes.Axes, optional
            By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return plot_vectors(self, color=color, labels=labels, nodes=nodes, seed=seed, ax=ax)


def _listed(ids: Any) -> list[Any]:
    """Ids of which neighbours are asked for."""
    if not hasattr(ids, "__iter__"):
        raise TypeError(
            f"neighbors takes an id, a sequence of ids, or a vector, not {kind_of(ids)}."
        )
    listed = list(ids)
    if any(isinstance(one, float) for one in listed):
        raise TypeError(
            "neighbors takes ids, and these are floating-point numbers. A vector is a NumPy array "
            "of floats: give numpy.asarray(...) of it."
        )
    return listed


class StoreView(serve.StoreView):
    """A store, opened for reading."""

    def embedding(self, run: str | None = None) -> Embedding:
        """Open a run; by default the published one."""
        return Embedding.of(in_python(super().embedding)(run))


@in_python
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
