"""Reading and writing while a core computes: one step ahead, one step behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


def read_ahead(load: Callable[[Item, int], Loaded], items: Sequence[Item]) -> Iterator[Loaded]:
    """Yield ``load(item, turn)`` for each item, loading the next while the last one is used.

    Parameters
    ----------
    load : callable
        Called in a thread of its own; `turn` is 0 and 1 by turns, to pick one of two buffers.
    items : sequence
    """
    with ThreadPoolExecutor(1, thread_name_prefix="figrl-read") as reader:
        coming = reader.submit(load, items[0], 0) if items else None
        for number in range(len(items)):
            assert coming is not None
            loaded = coming.result()
            if number + 1 < len(items):
                coming = reader.submit(load, items[number + 1], (number + 1) % 2)
            yield loaded


class WriteBehind:
    """Writes in a thread of its own, one at a time; a write waits for the one before it.

    So two buffers, used by turns, are enough: when the second write is taken, the first buffer
    is free. Leaving the block waits for the last write, and raises what any of them raised.
    """

    def __enter__(self) -> Self:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="figrl-write")
        self._last: Future[object] | None = None
        return self

    def __call__(self, write: Callable[..., object], *args: Any) -> None:
        """Begin a write, when the one before it has ended."""
        self._wait()
        self._last = self._writer.submit(write, *args)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.shutdown(wait=True)
        if error is None:
            self._wait()
