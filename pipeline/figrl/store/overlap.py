"""Read ahead and write behind: I/O in a thread while the caller computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


def read_ahead(load: Callable[[Item, int], Loaded], items: Sequence[Item]) -> Iterator[Loaded]:
    """Yield ``load(item, turn)`` for each item, and load the next one meanwhile.

    `load`: called in a thread; `turn` alternates between 0 and 1, to select one of two buffers.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="figrl-read") as reader:
        coming = [reader.submit(load, item, 0) for item in items[:1]]
        for number in range(1, len(items) + 1):
            loaded = coming.pop().result()
            if number < len(items):
                coming.append(reader.submit(load, items[number], number % 2))
            yield loaded


class WriteBehind:
    """Writes in a thread, one at a time; a new write first waits for the previous one.

    Two alternating buffers are enough: when the second write is accepted, the first buffer is free.
    Leaving the block waits for the last write; an exception of a write is raised here.
    """

    def __enter__(self) -> Self:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="figrl-write")
        self._last: Future[object] | None = None
        return self

    def __call__(self, write: Callable[..., object], *args: Any) -> None:
        """Start a write when the previous one has finished."""
        self._wait()
        self._last = self._writer.submit(write, *args)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._writer.shutdown(wait=True)
        if error is None:
            self._wait()
