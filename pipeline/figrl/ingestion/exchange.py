"""Exchange of numbers between many sources and many targets, such as chunks and row blocks.

A source writes one file, with a part for each target. A target that read its part of every file
would open as many as there are sources. With more than `FAN_IN` of both, the files are regrouped
first: a task merges the files of a group of sources for a group of targets, so that a target opens
one file a group. Groups are the root of the number of sources: the square root with one level, the
cube root with two. No task of theirs opens more than `FAN_IN` files, so the files that are opened
grow in number as the tasks do.

A part always holds what the sources gave in their order, whatever the levels.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from figrl.engine.stage import Block, Memory, Stage, StageResult, Stats
from figrl.store.files import size_bytes
from figrl.store.parts import PartsFile, Starts, new_parts, write_parts

FAN_IN = 64
"""Files that a task opens at most; for so many sources or targets, nothing is regrouped."""


class Reader(Protocol):
    """What a source has for its targets."""

    def starts(self, first: int, stop: int) -> Starts:
        """Starts of the parts from `first` up to `stop`, and the end of the last."""

    def read(self, column: int, begin: int, end: int) -> npt.NDArray[Any]:
        """Values of a column from `begin` up to `end`, as `starts` counts them."""


@dataclass(frozen=True)
class Exchange:
    """Files in which columns of some `types` travel; parameters shared by all tasks.

    Level 0 is what the sources wrote. In the files of a level, a group of sources has something
    for a group of targets.
    """

    folder: Path
    sources: int
    targets: int
    types: tuple[str, ...]
    fan_in: int = FAN_IN

    @property
    def levels(self) -> int:
        """Times that files are regrouped."""
        if min(self.sources, self.targets) <= self.fan_in:
            return 0
        levels = 1
        while self.fan_in ** (levels + 1) < self.sources:
            levels += 1
        return levels

    @property
    def _group(self) -> int:
        """Files that one task merges: the root of the sources, one root higher than the levels."""
        group = 1
        while group ** (self.levels + 1) < self.sources:
            group += 1
        return group

    def _width(self, level: int) -> int:
        """Targets of a file of a level."""
        if self.levels == 0:
            return self.targets
        # Counted from the last level, so that a group of targets lies in one of the level before.
        narrow = -(-self.targets // int(self._group**self.levels))
        return narrow * int(self._group ** (self.levels - level))

    def groups(self, level: int) -> tuple[int, int]:
        """Groups of sources, and of targets, at a level."""
        sources = -(-self.sources // self._group**level) if level else self.sources
        return sources, -(-self.targets // self._width(level))

    def target_range(self, level: int, part: int) -> tuple[int, int]:
        """First target of a group, and the target after its last."""
        width = self._width(level)
        return part * width, min((part + 1) * width, self.targets)

    def path(self, level: int, group: int, part: int = 0) -> Path:
        """File of a group of sources for a group of targets."""
        return self.folder / str(level) / f"{group:06d}-{part:06d}"

    def write(
        self, source: int, sizes: npt.NDArray[np.int64], columns: Sequence[npt.NDArray[Any]]
    ) -> int:
        """Write what a source has for all targets, and how much of each; return the bytes."""
        return write_parts(self.path(0, source), sizes, columns)

    def reader(self, level: int, group: int, target: int) -> AbstractContextManager[Reader]:
        """Open the file of a group of sources that has something for a target."""
        part = target // self._width(level)
        first, stop = self.target_range(level, part)
        return PartsFile(self.path(level, group, part), self.types, stop - first, first=first)

    def readers(self, target: int) -> Iterator[tuple[Reader, list[tuple[int, int]]]]:
        """Files with parts for a target, one open at a time, and where they are in each column."""
        for group in range(self.groups(self.levels)[0]):
            with self.reader(self.levels, group, target) as reader:
                begin, end = reader.starts(target, target + 1).tolist()
                yield reader, list(zip(begin, end, strict=True))

    def gather(self, target: int) -> list[npt.NDArray[Any]]:
        """All that the sources have for a target, column by column."""
        found = [
            [reader.read(column, *place) for column, place in enumerate(places)]
            for reader, places in self.readers(target)
        ]
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def members(self, level: int, group: int) -> range:
        """Groups of the level below that are merged into one."""
        return range(group * self._group, min((group + 1) * self._group, self.groups(level - 1)[0]))


def regroup_stages(
    name: str, exchanges: Sequence[Exchange], run_bytes: int, *, reads: tuple[Path, ...] = ()
) -> Generator[Stage, StageResult, None]:
    """Regroup the files of exchanges, as often as the one with most sources needs it.

    `run_bytes`: about as many are merged at a time. `reads`: where their sources lie besides.
    """
    for level in range(1, 1 + max(exchange.levels for exchange in exchanges)):
        some = [exchange for exchange in exchanges if level <= exchange.levels]
        yield Stage(
            f"{name}-regroup",
            regroup,
            [
                Block(
                    f"{exchanges.index(exchange)}-{group:06d}-{part:06d}",
                    (exchange, level, group, part, run_bytes),
                )
                for exchange in some
                for group in range(exchange.groups(level)[0])
                for part in range(exchange.groups(level)[1])
            ],
            memory=Memory(task_bytes=3 * run_bytes),
            reads=(*reads, *(exchange.folder for exchange in some)),
            frees=tuple(exchange.folder / str(level - 1) for exchange in some),
            step=level,
        )


def regroup(exchange: Exchange, level: int, group: int, part: int, run_bytes: int) -> Stats:
    """Merge what a group of sources has for a group of targets into one file."""
    first, stop = exchange.target_range(level, part)
    widths = [np.dtype(name).itemsize for name in exchange.types]
    path = exchange.path(level, group, part)
    with ExitStack() as files:
        readers = [
            files.enter_context(exchange.reader(level - 1, member, first))
            for member in exchange.members(level, group)
        ]
        starts = [reader.starts(first, stop) for reader in readers]
        sizes = np.sum([np.diff(one, axis=0) for one in starts], axis=0)
        with new_parts(path, sizes, exchange.types) as out:
            for begin, end in runs(sizes @ widths, run_bytes):
                for column, width in enumerate(widths):
                    cuts = [one[begin : end + 1, column].tolist() for one in starts]
                    for values in _merged(readers, column, cuts, run_bytes // width):
                        out.append(column, values)
    written = size_bytes(path)
    return {"read_bytes": written, "written_bytes": written}


def runs(sizes: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Cut a row of sizes where their sum would be more than `most`; a larger one is by itself."""
    ends = np.cumsum(sizes)
    begin = done = 0
    while begin < ends.size:
        end = max(int(np.searchsorted(ends, done + most, side="right")), begin + 1)
        yield begin, end
        begin, done = end, int(ends[end - 1])


def _merged(
    readers: Sequence[Reader], column: int, cuts: list[list[int]], most: int
) -> Iterator[npt.NDArray[Any]]:
    """Parts of some targets one after the other, each in the order of the sources."""
    if len(cuts[0]) == 2:
        # The part of one target may be larger than what fits, and is copied as it comes.
        for reader, (begin, end) in zip(readers, cuts, strict=True):
            for at in range(begin, end, most):
                yield reader.read(column, at, min(at + most, end))
        return
    found = [
        (reader.read(column, places[0], places[-1]), [place - places[0] for place in places])
        for reader, places in zip(readers, cuts, strict=True)
    ]
    yield np.concatenate(
        [
            values[places[target] : places[target + 1]]
            for target in range(len(cuts[0]) - 1)
            for values, places in found
        ]
    )
