"""Memory that tasks of one worker process share or use again.

Writing to fresh memory is several times slower than writing to memory that was used before, and
an operand of the product is wanted by every thread of a worker.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from figrl.store.matrix import ALIGNMENT, Floats, aligned_empty

_PAGE_FLOATS = ALIGNMENT // 4


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
        self, key: object, shape: tuple[int, int], blocks: int, fill: Callable[[int, Floats], None]
    ) -> Iterator[Floats]:
        """Yield the operand `key`, helping to fill it if it is not complete.

        The same key means the same content; ``fill(block, operand)`` writes one of its blocks.
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
            # After a failure no thread starts over while others still fill: their blocks would be
            # counted as filled in the new attempt.
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
        while True:
            with self._changed:
                block = self._next_block
                if self._failed or block >= blocks:
                    break
                self._next_block += 1
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

    def release(self) -> None:
        """Release the memory, unless it is in use."""
        with self._changed:
            if self._users == 0:
                self._key = None
                self._memory = np.empty(0, np.float32)


class SharedMatrices:
    """Matrices of one shape, for one user at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: Floats = np.empty(0, np.float32)

    @contextmanager
    def use(self, count: int, shape: tuple[int, int]) -> Iterator[list[Floats]]:
        """Yield `count` matrices; their content is undefined."""
        size = math.prod(shape)
        # Each begins on a page of its own, so that the disk can take it as it lies there.
        place = -(-size // _PAGE_FLOATS) * _PAGE_FLOATS
        with self._lock:
            if self._memory.size < count * place:
                self._memory = np.empty(0, np.float32)
                self._memory = aligned_empty(4 * count * place).view(np.float32)
            starts = range(0, count * place, place)
            yield [self._memory[start : start + size].reshape(shape) for start in starts]

    def release(self) -> None:
        """Release the memory, unless it is in use."""
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
        """Return a value, or None if it is not kept."""
        value, _ = self._values.get(key, (None, 0))
        return value

    def reserve(self, size: int, room: int) -> bool:
        """Set `size` bytes aside, unless all together would then take more than `room`."""
        with self._lock:
            fits = self._bytes + size <= room
            self._bytes += size if fits else 0
            return fits

    def give_back(self, size: int) -> None:
        """Return reserved bytes."""
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
