"""Where the ranges of a graph's ids start, which tasks read when they need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from figrl.store.files import exists, read_record, write_record
from figrl.store.layout import read_manifest

_FEW = 64
"""Starts that a task is sent with the graph."""


class RangeStarts(Sequence[int]):
    """First row of each range of ids, and the number of rows, of a graph with many ranges.

    A task is sent the path of the graph instead of them: a graph of thousands of ranges has tens of
    thousands of tasks, and few of them look at ids. One that does reads them once.
    """

    def __init__(self, graph: Path, starts: tuple[int, ...] | None = None) -> None:
        self._graph, self._starts = graph, starts

    @classmethod
    def of(cls, starts: Iterable[int], graph: Path) -> Sequence[int]:
        """The starts of a graph; few of them as they are."""
        known = tuple(starts)
        return known if len(known) <= _FEW else cls(graph, known)

    @property
    def _all(self) -> tuple[int, ...]:
        if self._starts is None:
            self._starts = tuple(_read_starts(self._graph))
        return self._starts

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self._all[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeStarts, (self._graph,)


def write_starts(graph: Path, starts: Iterable[int]) -> None:
    """Keep the starts of a graph that is never committed, so that tasks find them."""
    write_record(_unfinished(graph), {"id_starts": list(starts)})


def _read_starts(graph: Path) -> list[int]:
    if exists(_unfinished(graph)):
        return list(read_record(_unfinished(graph))["id_starts"])
    return list(read_manifest(graph)["graph"]["id_starts"])


def _unfinished(graph: Path) -> Path:
    return graph / "work" / "id-starts.json"
