"""Ids of a run as a lazy sequence: they need not fit memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.serve.lookup import check_side
from figrl.store.graph import Graph
from figrl.store.sides import Side

_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class NodeIds:
    """Ids of the nodes of a graph, in the order of its rows."""

    graph: Graph = field(repr=False)

    def __call__(
        self, start: int = 0, stop: int | None = None, *, side: Side | None = None
    ) -> pa.Array:
        """Ids of the rows from `start` up to `stop`; by default all, which have to fit memory.

        With a side, rows are counted from its first; row 0 of the target side is row
        ``graph.target_start`` of the vectors.
        """
        check_side(self.graph, side)
        first, end = self.graph.index.side_range(side)
        return self.graph.index.ids_of(first + start, end if stop is None else first + stop)

    def __len__(self) -> int:
        return self.graph.nodes

    @overload
    def __getitem__(self, place: int) -> int | str: ...

    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                return self.graph.index.take(np.arange(start, stop, step)).tolist()
            return self(start, max(start, stop)).to_pylist()
        row = range(len(self))[place]
        return self(row, row + 1)[0].as_py()

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            yield from self[start : start + _ROWS_AT_A_TIME]

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        values = self().to_numpy(zero_copy_only=False)
        return np.array(values, dtype, copy=copy)

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 5 else ""
        return f"<NodeIds [{', '.join(map(repr, self[:5]))}{more}], {len(self):,} in all>"
