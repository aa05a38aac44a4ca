"""Tree reduction of partial sums: one file a partial, combined in a fixed order.

The order does not depend on the number of workers, so neither do the bits. No task reads more than
`FAN_IN` partials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from figrl.engine.stage import Memory, Stage, Stages, Stats, numbered
from figrl.store.files import load_array, save_array

FAN_IN = 16
"""Partials that one task combines."""

Array = npt.NDArray[np.float64]
Combine = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Partials:
    """Partial results of a stage, one file each; `combine` is associative, by default the sum.

    Level 0 of the tree is what the stage wrote; `count` is the number of files of the level.
    """

    folder: Path
    combine: Combine = np.add
    level: int = 0
    count: int = 0

    def path(self, number: int) -> Path:
        """Where a partial lies."""
        return self.folder / f"{self.level}-{number:06d}.npy"

    def save(self, number: int, partial: Array) -> None:
        """Write a partial."""
        save_array(self.path(number), partial)

    def combined(self, numbers: range | None = None) -> Array:
        """Combine partials of this level, in their order; by default all of them."""
        chosen = range(self.count) if numbers is None else numbers
        combined: Array = reduce(self.combine, (load_array(self.path(n)) for n in chosen))
        return combined

    def above(self) -> Partials:
        """The next level of the tree."""
        return Partials(self.folder, self.combine, self.level + 1, -(-self.count // FAN_IN))


def combine_block(partials: Partials, number: int) -> Stats:
    """Combine up to `FAN_IN` partials into one of the next level."""
    first = number * FAN_IN
    numbers = range(first, min(first + FAN_IN, partials.count))
    combined = partials.combined(numbers)
    partials.above().save(number, combined)
    return {"read_bytes": combined.nbytes * len(numbers), "written_bytes": combined.nbytes}


def reduce_stages(
    name: str, partials: Partials, *, step: int | None = None, size_bytes: int, needed: bool = True
) -> Stages[Partials]:
    """Combine partials until at most `FAN_IN` are left, which the caller combines itself.

    `name` is that of the stage that wrote them, `size_bytes` the size of one; where they are not
    `needed`, the stages have no blocks.
    """
    while partials.count > FAN_IN:
        above = partials.above()
        yield Stage(
            f"{name}-combine-{above.level}",
            combine_block,
            numbered(partials, above.count) if needed else (),
            Memory(task_bytes=3 * size_bytes),
            step=step,
        )
        partials = above
    return partials
