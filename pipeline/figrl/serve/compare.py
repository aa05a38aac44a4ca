"""Two runs beside each other: how far the nodes that both have moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from figrl.errors import ConfigError
from figrl.serve.align import cosines_of
from figrl.serve.embedding import Embedding
from figrl.store.matrix import Floats, take_rows
from figrl.units import bars_svg, facts_html

_Rows = npt.NDArray[np.int64]

_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75)
_BINS = 40


@dataclass(frozen=True)
class Comparison:
    """How alike the vectors of two runs are, node by node, after one is rotated onto the other.

    Attributes
    ----------
    embedding, other : Embedding
        The two runs.
    rows : int64 array
        Rows of `embedding` whose nodes both have.
    cosines : float64 array
        Cosine of the two vectors of each; NaN where one is zero.
    """

    embedding: Embedding = field(repr=False)
    other: Embedding = field(repr=False)
    rows: _Rows = field(repr=False)
    cosines: npt.NDArray[np.float64] = field(repr=False)

    @property
    def common(self) -> int:
        """Nodes that both runs have."""
        return int(self.rows.size)

    @property
    def mean(self) -> float:
        """Mean cosine."""
        known = self.cosines[~np.isnan(self.cosines)]
        return float(known.mean()) if known.size else float("nan")

    @property
    def quantiles(self) -> dict[float, float]:
        """Quantiles of the cosine."""
        known = self.cosines[~np.isnan(self.cosines)]
        values = np.quantile(known, _QUANTILES) if known.size else [float("nan")] * len(_QUANTILES)
        return {share: float(value) for share, value in zip(_QUANTILES, values, strict=True)}

    def moved(self, count: int = 10) -> Any:
        """The nodes that moved most, as a frame of pandas: ``id``, ``side``, ``cosine``."""
        import pandas as pd

        order = np.argsort(self.cosines, kind="stable")[:count]
        order = order[~np.isnan(self.cosines[order])]
        rows = self.rows[order]
        sides = self.embedding.sides_at(rows)
        return pd.DataFrame(
            {
                "id": self.embedding.ids_at(rows),
                **({} if sides is None else {"side": sides}),
                "cosine": self.cosines[order],
            }
        )

    def _facts(self) -> dict[str, str]:
        return {
            "common nodes": f"{self.common:,}",
            "mean cosine": f"{self.mean:.4f}",
            **{f"quantile {share:g}": f"{value:.4f}" for share, value in self.quantiles.items()},
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Comparison of {self.embedding.run} with {self.other.run}: {facts}>"

    def _repr_html_(self) -> str:
        known = self.cosines[~np.isnan(self.cosines)].clip(-1, 1)
        # Most cosines are near 1: from -1 on, all would be in the last bars.
        least = min(0.9, np.floor(10 * known.min(initial=1.0)) / 10)
        counts, _ = np.histogram(known, _BINS, (least, 1.0))
        title = f"{self.embedding.run} compared with {self.other.run}"
        picture = bars_svg(counts.tolist(), f"Nodes by cosine, from {least:g} to 1")
        return facts_html(title, self._facts(), picture)


def compare(embedding: Embedding, other: Embedding) -> Comparison:
    """Rotate a run onto another one and compare the nodes of both, a chunk of rows at a time."""
    if embedding.dim != other.dim:
        raise ConfigError(
            f"Run {embedding.run} has {embedding.dim} dimensions and run {other.run} {other.dim}. "
            "Only runs of the same --dim can be compared."
        )
    total = np.zeros((embedding.dim, embedding.dim))
    for _, own, others in _pairs(embedding, other):
        total += own.T @ others
    rotation = _rotation(total, _rotated(embedding, other))
    rows, cosines = [np.empty(0, np.int64)], [np.empty(0)]
    for here, own, others in _pairs(embedding, other):
        rows.append(here)
        cosines.append(cosines_of(own @ rotation, others))
    return Comparison(embedding, other, np.concatenate(rows), np.concatenate(cosines))


def _pairs(embedding: Embedding, other: Embedding) -> Iterator[tuple[_Rows, Floats, Floats]]:
    """Rows of nodes that both runs have, and their vectors in each."""
    nodes = embedding.graph.nodes
    for begin in range(0, nodes, embedding.chunk_rows):
        stop = min(begin + embedding.chunk_rows, nodes)
        found = embedding.graph.index.match(begin, stop, other.graph.index)
        here = np.flatnonzero(found >= 0)
        own = take_rows(embedding.path / "embedding", here + begin)
        yield here + begin, own, take_rows(other.path / "embedding", found[here])


def _rotated(embedding: Embedding, other: Embedding) -> int:
    """Dimensions that are rotated: that of prominence means the same in both."""
    both = [run.manifest["spec"].get("prominence", 0) > 0 for run in (embedding, other)]
    return embedding.dim - all(both)


def _rotation(total: npt.NDArray[np.float64], size: int) -> Floats:
    left, _, right = scipy.linalg.svd(total[:size, :size], check_finite=False)
    rotation = np.eye(len(total), dtype=np.float32)
    rotation[:size, :size] = left @ right
    return rotation
