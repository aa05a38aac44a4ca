"""The overlay of a run: vectors of nodes that were folded in since it was published.

    runs/RUN/overlay/
      edges/NAME       files of edges that arrived since
      VERSION/         ids and vectors of their new nodes, in parts of some thousand rows
      current          names the version in use; replaced in one atomic step
      options.json     how the edges are read

The edges are kept because a vector depends on all edges of its node: when more arrive, the node is
folded in again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from figrl.store.checksums import damaged
from figrl.store.contents import Damage
from figrl.store.files import copy, exists, file_digest, list_prefix, load_array
from figrl.store.ids import IdIndex, group_places
from figrl.store.layout import read_manifest, read_name
from figrl.store.lease import Lease
from figrl.store.matrix import Floats
from figrl.store.sides import Side

_TRIES = 20


@dataclass(frozen=True)
class Overlay:
    """Folded-in vectors that are served with a run.

    `path`: folder of the version. `starts`: first row of each part, and the number of rows at the
    end. `facts`: its manifest. `lease`: keeps its files from being deleted while this object
    exists.
    """

    path: Path
    starts: tuple[int, ...]
    dim: int
    facts: dict[str, Any]
    lease: Lease = field(repr=False, compare=False)

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def side(self) -> Side | None:
        """Side of its nodes, all on one; None where nodes have no sides."""
        side: Side | None = self.facts.get("side")
        return side

    @property
    def index(self) -> IdIndex:
        """Rows of ids and ids of rows, counted from 0."""
        return IdIndex(self.path / "ids", self.starts)

    @property
    def filled_parts(self) -> list[int]:
        """Numbers of the parts that are not empty."""
        return [int(part) for part in np.flatnonzero(np.diff(self.starts))]

    def part(self, number: int) -> Floats:
        """Vectors of a part, mapped into memory."""
        return load_array(vectors_path(self.path, number), mapped=True)

    def pieces(self, *, first_row: int = 0) -> Iterator[tuple[int, Floats]]:
        """All vectors, a part at a time, with the number of the first row of each."""
        for number in self.filled_parts:
            yield first_row + self.starts[number], np.array(self.part(number))

    def take(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Vectors of some rows."""
        out = np.empty((rows.size, self.dim), np.float32)
        for number, places in group_places(np.searchsorted(self.starts, rows, side="right") - 1):
            out[places] = self.part(number)[rows[places] - self.starts[number]]
        return out


def vectors_path(folder: Path, number: int) -> Path:
    """Path of the vectors of a part."""
    return folder / "vectors" / f"{number:06d}.npy"


def open_overlay(run: Path) -> Overlay | None:
    """Open the overlay of a run; None if nothing was folded in since it was published."""
    for _ in range(_TRIES):
        version = overlay_version(run)
        if version is None:
            return None
        try:
            lease = Lease(version)
        except FileNotFoundError:
            # Since its name was read, a newer version has replaced it.
            continue
        facts = read_manifest(version)
        return Overlay(version, tuple(facts["starts"]), facts["dim"], facts, lease)
    raise damaged(run / "overlay" / "current", f"names a version that is not there ({version})")


def overlay_version(run: Path) -> Path | None:
    """Folder of the version in use; None if nothing was folded in.

    One that is complete is in use even if a job was killed before it wrote that.
    """
    folder = run / "overlay"
    name = read_name(folder / "current")
    if name is not None:
        return folder / name
    complete = [path.parent for path in list_prefix(folder, "*/manifest.json")]
    if len(complete) > 1:
        raise damaged(folder / "current", "is missing")
    return complete[0] if complete else None


def kept_edges(run: Path) -> list[Path]:
    """Files of edges that were folded into a run since it was published."""
    return list_prefix(run / "overlay" / "edges")


def check_edges(run: Path, overlay: Overlay | None) -> None:
    """Raise `DamagedError` if edges that were folded into a run are missing or were changed."""
    for path, problem in edge_damage(run, None if overlay is None else overlay.facts["files"]):
        raise damaged(path, problem)


def edge_damage(run: Path, expected: Sequence[str] | None) -> Iterator[Damage]:
    """Files of edges that are damaged: each begins with its digest; and those that are missing."""
    kept = kept_edges(run)
    for path in kept:
        if file_digest(path)[:16] != path.name.partition("-")[0]:
            yield path, "does not match the digest in its name"
    for name in sorted({*(expected or ())} - {path.name for path in kept}):
        yield run / "overlay" / "edges" / name, "is missing"


def hand_over_edges(old: Path, new: Path) -> None:
    """Copy the edges that were folded into a run to another one; they are not folded in there."""
    for path in [*kept_edges(old), old / "overlay" / "options.json"]:
        target = new / path.relative_to(old)
        if exists(path) and not exists(target):
            copy(path, target)
