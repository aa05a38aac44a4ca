"""Memory that tasks of one worker process share or use again.

Writing to fresh memory is several times slower than writing to memory that was used before, and
an operand of the product is wanted by every thread of a worker.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from pipeline.direct import ALIGNMENT, aligned_empty
from pipeline.tiles import Floats

_PAGE_FLOATS = ALIGNMENT // 4

_of_threads: dict[tuple[int, str], Floats] = {}


def thread_buffer(name: str, shape: tuple[int, int]) -> Floats:
    """Give an array that this thread may use until it asks for the same name again."""
    key = (threading.get_ident(), name)
    size = shape[0] * shape[1]
    held = _of_threads.get(key)
    if held is None or held.size < size:
        _of_threads.pop(key, None)
        held = _of_threads[key] = aligned_empty(4 * size).view(np.float32)
    return held[:size].reshape(shape)


def thread_pair(name: Literal["in", "out"], shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Two such arrays: one to work in while the other is on its way to or from the disk.

    There are only two names, for what is read and for what is written, so that one stage after the
    other uses the same memory.
    """
    return thread_buffer(f"{name} 0", shape), thread_buffer(f"{name} 1", shape)


class SharedOperand:
    """One operand at a time, filled by all the threads that wait for it.

    A thread that wants another operand than the one held waits until nobody uses that one, so a
    worker never holds two.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._memory: Floats = np.empty(0, np.float32)
        self._key: object = None
        self._users = 0
        self._next_block = 0
        self._filled_blocks = 0
        self._failed = False

    @contextmanager
    def use(
        self,
        key: object,
        shape: tuple[int, int],
        blocks: int,
        fill: Callable[[int, Floats], None],
    ) -> Iterator[Floats]:
        """Give the operand `key`, helping to fill it if it is not complete.

        Parameters
        ----------
        key : object
            What the operand is; the same key means the same content.
        shape : (int, int)
        blocks : int
            Blocks to be filled.
        fill : callable
            ``fill(block, operand)`` writes one block of the operand.
        """
        operand = self._enter(key, shape)
        try:
            self._help(key, blocks, fill, operand)
            yield operand
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _enter(self, key: object, shape: tuple[int, int]) -> Floats:
        with self._changed:
            # After a failure nobody may begin again while some are still at it: they would count as
            # filled, in the new attempt, what they filled in the old one.
            self._changed.wait_for(
                lambda: (self._key == key and not self._failed) or self._users == 0
            )
            if self._key != key or self._failed:
                self._key, self._failed = key, False
                self._next_block = self._filled_blocks = 0
                if self._memory.size < shape[0] * shape[1]:
                    self._memory = np.empty(0, np.float32)
                    self._memory = np.empty(shape[0] * shape[1], np.float32)
            self._users += 1
            return self._memory[: shape[0] * shape[1]].reshape(shape)

    def _help(
        self, key: object, blocks: int, fill: Callable[[int, Floats], None], operand: Floats
    ) -> None:
        while (block := self._take_block(blocks)) is not None:
            try:
                fill(block, operand)
            except BaseException:
                with self._changed:
                    self._failed = True
                    self._changed.notify_all()
                raise
            with self._changed:
                self._filled_blocks += 1
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._filled_blocks == blocks)
            if self._failed:
                raise RuntimeError(f"another thread could not fill the operand {key}")

    def _take_block(self, blocks: int) -> int | None:
        with self._changed:
            if self._failed or self._next_block >= blocks:
                return None
            self._next_block += 1
            return self._next_block - 1

    def release(self) -> None:
        """Give the memory back, unless somebody uses it."""
        with self._changed:
            if self._users == 0:
                self._key = None
                self._memory = np.empty(0, np.float32)


class SharedPair:
    """Two matrices of the same shape, for one user at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: Floats = np.empty(0, np.float32)

    @contextmanager
    def use(self, shape: tuple[int, int]) -> Iterator[tuple[Floats, Floats]]:
        """Give both; what is in them is whatever was there before."""
        size = math.prod(shape)
        # The second begins on a page of its own, so that the disk can take it as it lies there.
        place = -(-size // _PAGE_FLOATS) * _PAGE_FLOATS
        with self._lock:
            if self._memory.size < place + size:
                self._memory = np.empty(0, np.float32)
                self._memory = aligned_empty(4 * (place + size)).view(np.float32)
            memory = self._memory
            yield memory[:size].reshape(shape), memory[place : place + size].reshape(shape)

    def release(self) -> None:
        """Give the memory back, unless somebody uses it."""
        if self._lock.acquire(blocking=False):
            self._memory = np.empty(0, np.float32)
            self._lock.release()


class Kept:
    """Values that are read again and again, as many as fit; none makes way for another.

    The tiles of a slice go through the blocks of a graph in order, and then again for the next
    slice: whatever was used longest ago is what is wanted next.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Hashable, tuple[Any, int]] = {}
        self._bytes = 0

    def get(self, key: Hashable) -> Any:
        """Give a value, or None if it is not kept."""
        value, _ = self._values.get(key, (None, 0))
        return value

    def reserve(self, size: int, room: int) -> bool:
        """Set `size` bytes aside, unless all together would then take more than `room`."""
        with self._lock:
            fits = self._bytes + size <= room
            self._bytes += size if fits else 0
            return fits

    def give_back(self, size: int) -> None:
        """Give bytes back that were set aside."""
        with self._lock:
            self._bytes -= size

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value for which `size` bytes were set aside."""
        with self._lock:
            if key in self._values:
                self._bytes -= size
            else:
                self._values[key] = value, size

    def release(self) -> None:
        """Forget everything that is kept; what is set aside stays so."""
        with self._lock:
            self._bytes -= sum(size for _, size in self._values.values())
            self._values.clear()


shared_operand = SharedOperand()
"""The operand of this process."""

shared_pair = SharedPair()
"""The two matrices between which products of this process go back and forth."""

kept = Kept()
"""What this process keeps of the graph."""


def release_buffers() -> None:
    """Give all memory of this module back; called on every worker between two stages."""
    shared_operand.release()
    shared_pair.release()
    kept.release()
    _of_threads.clear()
