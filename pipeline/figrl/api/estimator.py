"""FIGRL as an estimator of scikit-learn, for graphs that fit in memory.

The same jobs as for large graphs do the work, in threads of this process and in a folder in memory,
where the system has one; what they learnt is kept by the estimator. New nodes are folded in with a
product of sparse matrices.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import dask
import distributed
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask.system import CPU_COUNT
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from figrl.api.calls import embed, ingest
from figrl.api.matrices import (
    check_edges,
    check_form,
    check_one_type,
    check_shape,
    columns_of,
    is_frame,
    matrix_of,
)
from figrl.engine.security import http_routes
from figrl.errors import FigrlError
from figrl.learn.operand import inverse_root
from figrl.learn.prominence import add_prominence
from figrl.learn.spec import EmbedSpec
from figrl.serve.embedding import Embedding
from figrl.serve.fold_blocks import represent
from figrl.store.arrays import open_zarr
from figrl.store.matrix import Floats
from figrl.store.sides import Side

_KINDS = ("undirected", "bipartite", "directed")

_IN_MEMORY = Path("/dev/shm")
"""A folder of Linux that is no disk."""


class FIGRL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Vectors of the nodes of a graph that fits in memory, and of new nodes.

    Rows and columns of a matrix are nodes, and its entries weights of edges. An undirected graph
    has a symmetric matrix; in a bipartite graph rows are nodes of one kind and columns of another,
    such as users and items; in a directed graph rows are sources and columns targets, and what is
    learnt are the vectors of nodes as sources. A frame with the columns ``source`` and ``target``,
    and ``weight`` if there are weights, may be given in place of a matrix.

    Parameters
    ----------
    dim : int
        Length of each vector.
    kind : "undirected", "bipartite" or "directed"
    preset : "accurate", "fast" or "paper"
    representation : "unit", "product", "degree" or None
        None takes the preset's, as do the following.
    width, depth, smoothing : int or None
    regularization : float, "auto" or None
    random_state : int
        The same number gives the same vectors.

    Attributes
    ----------
    embedding_ : float32 array, shape (rows, dim)
        A vector for each row of the matrix; zeros for a row without entries.
    target_embedding_ : float32 array, shape (columns, dim), or None
        In a bipartite or directed graph, vectors of the columns.
    ids_ : array or None
        Where a frame was given: ids of the rows, sorted.
    target_ids_ : array or None
        Where a frame was given: ids of the columns, sorted.
    manifest_ : dict
        What was learnt, with the certificate.

    See Also
    --------
    figrl.embed : for graphs of any size, on a cluster, with ids of any kind.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> ring = sp.diags_array([1, 1, 1, 1], offsets=[-11, -1, 1, 11], shape=(12, 12))
    >>> figrl.FIGRL(dim=4).fit_transform(ring).shape
    (12, 4)
    """

    def __init__(
        self,
        dim: int = 128,
        *,
        kind: Literal["undirected", "bipartite", "directed"] = "undirected",
        preset: Literal["accurate", "fast", "paper"] = "accurate",
        representation: Literal["unit", "product", "degree"] | None = None,
        width: int | None = None,
        depth: int | None = None,
        smoothing: int | None = None,
        regularization: float | str | None = None,
        random_state: int = 0,
    ) -> None:
        self.dim = dim
        self.kind = kind
        self.preset = preset
        self.representation = representation
        self.width = width
        self.depth = depth
        self.smoothing = smoothing
        self.regularization = regularization
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> FIGRL:  # noqa: N803
        """Learn vectors of all nodes.

        Parameters
        ----------
        X : array or sparse matrix, shape (nodes, nodes) or, if bipartite, (sources, targets)
            Weights of edges, none of them negative; what is on the diagonal of a square matrix is
            ignored. Or a frame of edges.
        y : None
            Not used.

        Returns
        -------
        FIGRL
        """
        if self.kind not in _KINDS:
            raise ValueError(f"kind={self.kind!r} is none of {', '.join(_KINDS)}.")
        check_form(X)
        self.ids_ = self.target_ids_ = None
        if is_frame(X):
            X, self.ids_, self.target_ids_ = matrix_of(X, self.kind)
        matrix = self._checked(X, reset=True)
        place = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
        try:
            with (
                tempfile.TemporaryDirectory(prefix="figrl-", dir=place) as folder,
                _in_threads(folder) as client,
            ):
                ingest(
                    matrix, store=f"{folder}/store", kind=self.kind, client=client, progress=False
                )
                run = embed(
                    store=f"{folder}/store", client=client, progress=False, **self._options()
                )
                self._keep(run, matrix.shape)
        except FigrlError as error:
            # scikit-learn has a name of its own for the seed.
            raise ValueError(re.sub(r"\bseed\b", "random_state", str(error))) from error
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """Learn vectors of all nodes, and return those of the rows. See `fit` and `transform`."""
        return self._named(self.fit(X).embedding_, self.ids_)

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Vectors of new nodes from their edges to known ones; nothing is learnt again.

        Parameters
        ----------
        X : array or sparse matrix, shape (new nodes, columns of the matrix that was learnt)
            Weights of the edges of each new node; the rows that were learnt give their vectors.
            Or a frame of edges from new sources to known targets: a row for each source, sorted.

        Returns
        -------
        float32 array, shape (new nodes, dim)
            After ``set_output(transform="pandas")`` a frame of pandas; of a frame of edges, its
            index are the ids.
        """
        check_is_fitted(self)
        check_form(X)
        ids = None
        if is_frame(X):
            X, ids = self._rows_of(X)
        matrix = self._checked(X, reset=False)
        spec, degrees = self._spec, np.asarray(matrix.sum(axis=1), np.float64)
        scale = 1.0 if self.manifest_["smoothing_steps"] else self._scale
        weights: Any = matrix * scale
        vectors: Floats = np.ascontiguousarray(weights.astype(np.float32) @ self._basis)
        represent(spec, degrees, vectors)
        add_prominence(spec, degrees, self._mean_degree, vectors)
        return self._named(vectors, ids)

    def _named(self, vectors: Floats, ids: npt.NDArray[Any] | None) -> Any:
        """Vectors in a frame of pandas, if that is asked for and a frame of edges was given.

        scikit-learn itself would name the vectors of nodes by the index of the edges.
        """
        if ids is None or _get_output_config("transform", self)["dense"] != "pandas":
            return vectors
        import pandas as pd

        return pd.DataFrame(vectors, index=pd.Index(ids, name="id"))

    def _options(self) -> dict[str, Any]:
        names = ("dim", "preset", "representation", "width", "depth", "smoothing")
        given = {name: getattr(self, name) for name in (*names, "regularization")}
        given["seed"] = self.random_state
        return {name: value for name, value in given.items() if value is not None}

    def _rows_of(self, frame: Any) -> tuple[sp.csr_array, npt.NDArray[Any]]:
        """Edges of new nodes as rows of a matrix, with the ids of the rows."""
        if self.target_ids_ is None:
            raise ValueError("A matrix was learnt, so transform takes a matrix, not a frame.")
        sources, targets, weights = columns_of(frame)
        check_one_type(self.target_ids_, targets, "The ids that were learnt and the targets")
        places = np.searchsorted(self.target_ids_, targets).clip(max=self.target_ids_.size - 1)
        unknown = targets[self.target_ids_[places] != targets].tolist()
        if unknown:
            raise ValueError(
                f"target {unknown[0]!r} is none of the nodes that were learnt. Leave out edges to "
                "unknown nodes, or use figrl.fold_in, which takes them."
            )
        new, rows = np.unique(sources, return_inverse=True)
        shape = (new.size, self.target_ids_.size)
        return sp.csr_array((weights, (rows, places)), shape=shape), new

    def _checked(self, X: Any, *, reset: bool) -> sp.csr_array:  # noqa: N803
        checked = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            reset=reset,
            ensure_min_samples=2 if reset else 1,
        )
        check_non_negative(checked, "FIGRL")
        matrix = sp.csr_array(checked)
        if not reset:
            return matrix
        if self.kind != "bipartite":
            check_shape(matrix, self.kind, X)
        check_edges(matrix, self.kind)
        if self.kind == "undirected":
            # Symmetric but for rounding; halves are exact.
            matrix = sp.csr_array((matrix + matrix.T) / 2)
        return matrix

    def _keep(self, run: Embedding, shape: tuple[int, int]) -> None:
        """Copy to memory what was learnt, in the order of the matrix."""
        graph, sided = run.graph, self.kind != "undirected"
        self.manifest_ = run.manifest
        source: Side | None = "source" if sided else None
        target: Side | None = "target" if sided else None
        vectors = _Rows(run, np.asarray(run.vectors.compute(scheduler="synchronous")))
        self.embedding_ = vectors.of_side(source, shape[0])
        self.target_embedding_ = vectors.of_side(target, shape[1]) if sided else None
        # What a new row needs of its neighbours, the columns.
        self._basis = _Rows(run, open_zarr(run.path / "basis")[:]).of_side(target, shape[1])
        degrees = _Rows(run, open_zarr(graph.degrees_path)[:]).of_side(target, shape[1])
        self._spec = EmbedSpec(**run.manifest["spec"])
        self._scale = inverse_root(degrees + self._spec.regularization)
        self._mean_degree = graph.mean_degree

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.pairwise = self.kind != "bipartite"
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class _Rows:
    """Rows of a run, each of which has an integer as its id."""

    def __init__(self, run: Embedding, rows: npt.NDArray[Any]) -> None:
        self._run, self._rows = run, rows

    def of_side(self, side: Side | None, count: int) -> npt.NDArray[Any]:
        """Rows in the order of their ids; zeros for ids that are in no edge."""
        first, end = self._run.graph.index.side_range(side)
        found = np.zeros((count, *self._rows.shape[1:]), self._rows.dtype)
        found[self._run.ids(side=side).to_numpy()] = self._rows[first:end]
        return found


@contextmanager
def _in_threads(folder: str) -> Iterator[distributed.Client]:
    """A Dask cluster in threads of this process, which listens to nobody else.

    Dask's HTTP servers always listen: on loopback, at a port that is free, and with nothing to
    serve.
    """
    with (
        dask.config.set(http_routes(pages=False)),
        distributed.Client(
            processes=False,
            n_workers=1,
            threads_per_worker=CPU_COUNT,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            worker_dashboard_address="127.0.0.1:0",
            set_as_default=False,
            local_directory=f"{folder}/dask",
        ) as client,
    ):
        yield client
