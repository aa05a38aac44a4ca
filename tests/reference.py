"""The paper in dense float64 NumPy: the oracle of the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.learn.projection import fill_projection
from figrl.store.ids import id_type, node_keys

Id = int | str


def write_edges(path: Path, edges: list[tuple[Any, ...]]) -> Path:
    """Write edges, with or without weights, as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ("source", "target", "weight")[: len(edges[0])]
    pq.write_table(
        pa.table(dict(zip(names, map(list, zip(*edges, strict=True)), strict=True))), path
    )
    return path


@dataclass(frozen=True)
class DenseGraph:
    """Sorted ids and a dense weight matrix, by the rules of ingest, spelt out."""

    ids: list[Id]
    weights: np.ndarray[Any, np.dtype[np.float64]]
    target_start: int | None = None

    @classmethod
    def with_sides(cls, edges: list[tuple[Any, ...]], kind: str) -> DenseGraph:
        """A bipartite graph, or a directed one as its bipartite double."""
        ends = [{edge[side] for edge in edges} for side in (0, 1)]
        if kind == "directed":
            ends = [ends[0] | ends[1]] * 2
        sides = [sorted(end, key=_order) for end in ends]
        place = [{end: i for i, end in enumerate(ids)} for ids in sides]
        block = np.zeros((len(sides[0]), len(sides[1])))
        for edge in edges:
            if kind == "directed" and edge[0] == edge[1]:
                continue
            i, j = place[0][edge[0]], place[1][edge[1]]
            block[i, j] = block[i, j] + edge[2] if len(edge) > 2 else 1.0
        zeros = [np.zeros((size, size)) for size in block.shape]
        matrix = np.block([[zeros[0], block], [block.T, zeros[1]]])
        return cls(sides[0] + sides[1], matrix, len(sides[0]))

    @classmethod
    def of(cls, edges: list[tuple[Any, ...]]) -> DenseGraph:
        ends = {end for edge in edges for end in edge[:2]}
        ids = sorted(ends, key=_order)
        place = {end: i for i, end in enumerate(ids)}
        matrix = np.zeros((len(ids), len(ids)))
        for edge in edges:
            i, j = place[edge[0]], place[edge[1]]
            if i == j:
                continue
            weight = matrix[i, j] + edge[2] if len(edge) > 2 else 1.0
            matrix[i, j] = matrix[j, i] = weight
        return cls(ids, matrix)

    @property
    def degrees(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.weights.sum(axis=1)

    @property
    def inverse_root(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        with np.errstate(divide="ignore"):
            root = 1 / np.sqrt(self.degrees)
        return np.where(self.degrees > 0, root, 0.0)

    @property
    def normalised(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.inverse_root[:, None] * self.weights * self.inverse_root[None, :]

    def projection(self, size: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        kind = "string" if isinstance(self.ids[0], str) else "int"
        cut = len(self.ids) if self.target_start is None else self.target_start
        parts = (self.ids[:cut], None), (self.ids[cut:], "target")
        keys = np.concatenate([node_keys(pa.array(i, id_type(kind)), side) for i, side in parts])
        rows = np.empty((len(self.ids), size), np.float32)
        ones = np.ones(len(self.ids), np.float32)
        fill_projection(keys, seed=seed, first_column=0, scale=ones, out=rows)
        return rows.astype(np.float64)


def _order(end: Id) -> Any:
    """Ids are sorted by value, or by their UTF-8 bytes."""
    return end.encode() if isinstance(end, str) else end


@dataclass(frozen=True)
class DensePaper:
    """Algorithm 1 of the paper on a dense matrix, with all its parts."""

    singular_values: np.ndarray[Any, np.dtype[np.float64]]
    left: np.ndarray[Any, np.dtype[np.float64]]
    right: np.ndarray[Any, np.dtype[np.float64]]
    vectors: np.ndarray[Any, np.dtype[np.float64]]
    basis: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def of(cls, graph: DenseGraph, *, dim: int, sketch_size: int, seed: int = 0) -> DensePaper:
        projected = graph.projection(sketch_size, seed) / np.sqrt(sketch_size)
        sketch = graph.normalised @ projected
        left, values, right = np.linalg.svd(sketch, full_matrices=False)
        left, right = left[:, :dim], right[:dim].T
        largest = np.abs(right).argmax(axis=0)
        signs = np.sign(right[largest, np.arange(right.shape[1])])
        left, right = left * signs, right * signs
        values_k = values[: right.shape[1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            basis = projected @ (right / values_k)
        return cls(values, left, right, graph.inverse_root[:, None] * left, basis)


def largest_angle(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Sine of the largest principal angle between the spaces that two sets of columns span."""
    first, _ = np.linalg.qr(a.astype(np.float64))
    second, _ = np.linalg.qr(b.astype(np.float64))
    return float(np.linalg.norm(first - second @ (second.T @ first), 2))


@dataclass(frozen=True)
class DenseDeep:
    """The deep sketch, Rayleigh-Ritz, representations and smoothing, all dense in float64.

    The space of the sketch is that of ``[L R, L^2 R, ..., L^s R]``, orthonormalised on the way.
    """

    matrix: np.ndarray[Any, np.dtype[np.float64]]
    left: np.ndarray[Any, np.dtype[np.float64]]
    values: np.ndarray[Any, np.dtype[np.float64]]
    vectors: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def of(
        cls,
        graph: DenseGraph,
        *,
        dim: int,
        width: int,
        depth: int,
        regularization: float,
        representation: str = "unit",
        smoothing: int = 0,
        prominence: float = 0.0,
        seed: int = 0,
    ) -> DenseDeep:
        with np.errstate(divide="ignore"):
            root = 1 / np.sqrt(graph.degrees + regularization)
        root[~np.isfinite(root)] = 0
        matrix = root[:, None] * graph.weights * root[None, :]
        space = krylov_space(matrix, graph.projection(width, seed), depth)
        values, turn = np.linalg.eigh(space.T @ matrix @ space)
        order = np.argsort(-(np.abs(values) if representation == "degree" else values))
        order = order[: dim - (prominence > 0)]
        left, values = space @ turn[:, order], values[order]
        if representation == "degree":
            return cls(matrix, left, values, graph.inverse_root[:, None] * left)
        if representation == "product":
            scale = np.sqrt(graph.degrees + regularization)[:, None]
            return cls(matrix, left, values, scale * left * np.sqrt(np.maximum(values, 0)))
        vectors = unit_rows(left * sum(values**power for power in range(1, 6)))
        walk = graph.weights / np.where(graph.degrees > 0, graph.degrees, 1)[:, None]
        if smoothing:
            share = np.square(matrix @ left).sum() / np.square(matrix).sum()
            vectors = smooth(walk, vectors, smoothing, share)
        if prominence:
            linked = graph.degrees / (graph.degrees + 3 * graph.degrees.mean())
            vectors = unit_rows(np.column_stack([vectors, prominence * np.sqrt(linked)]))
        return cls(matrix, left, values, vectors)


def smooth(
    walk: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any], steps: int, share: float
) -> np.ndarray[Any, Any]:
    """The low-pass filter by the definition of Chebyshev polynomials; then even dimensions."""
    bound, local = 0.85, min(4 * share, 0.5)
    filtered = chebyshev(walk / bound, vectors, steps - 1)
    at_one = chebyshev(np.eye(1) / bound, np.ones((1, 1)), steps - 1).item()
    mixed = unit_rows((1 - local) * filtered / at_one + local * vectors)
    means = unit_rows(walk @ mixed)
    squares, directions = np.linalg.eigh(means.T @ means)
    even = means @ (directions * squares**-0.175) @ directions.T
    common = directions[:, -1]
    return unit_rows(even - 2.4 * max(local - 0.25, 0) * np.outer(even @ common, common))


def chebyshev(
    matrix: np.ndarray[Any, Any], start: np.ndarray[Any, Any], degree: int
) -> np.ndarray[Any, Any]:
    """``T_degree(matrix) start``."""
    previous, latest = matrix @ start, start
    for _ in range(degree):
        previous, latest = latest, 2 * matrix @ latest - previous
    return latest


def krylov_space(matrix: Any, start: Any, depth: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Orthonormal basis of the space of ``[L R, ..., L^s R]``."""
    space, block = np.empty((len(matrix), 0)), start
    for _ in range(depth):
        block = matrix @ block
        for _ in range(2):
            block = block - space @ (space.T @ block)
        left, values, _ = np.linalg.svd(block, full_matrices=False)
        block = left[:, values > 1e-10 * max(values.max(initial=0), 1e-300)]
        if space.shape[1] and values.max(initial=0) < 1e-10:
            break
        space = np.hstack([space, block])
    return space


def unit_rows(rows: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, Any]:
    """Rows of length 1."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
