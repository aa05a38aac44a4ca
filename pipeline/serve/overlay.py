"""Vectors that were folded in after a run was published, and are served with it.

    runs/RUN/overlay/
      edges/NAME       edges that arrived since, as they came
      VERSION/         ids and vectors of their new nodes, in parts of some thousand rows
      current          names the version that counts; swapped in one atomic step

The edges are kept, because a node's vector comes from all of its edges: when late ones arrive, it
is folded in again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.blocks import Stats
from pipeline.files import (
    load_array,
    read_json,
    remove,
    save_array,
    write_json,
    write_text,
    written_aside,
)
from pipeline.ingest.arrow import write_ids
from pipeline.ingest.ids import IdIndex, range_path
from pipeline.job import Block, Job
from pipeline.lease import Lease, not_in_use
from pipeline.serve.export import part_path
from pipeline.tiles import Floats

_TRIES = 20


@dataclass(frozen=True)
class Overlay:
    """Folded-in vectors that are served with a run.

    Attributes
    ----------
    path : Path
        Folder of the version.
    starts : tuple of int
        First row of each part, and the number of rows at the end.
    dim : int
    facts : dict
        What the version was made of.
    lease : Lease
        Keeps its files there as long as this object is.
    """

    path: Path
    starts: tuple[int, ...]
    dim: int
    facts: dict[str, Any]
    lease: Lease = field(repr=False, compare=False)

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def index(self) -> IdIndex:
        """Rows of ids and ids of rows, counted from 0."""
        return IdIndex(self.path / "ids", self.starts)

    def part(self, number: int) -> Floats:
        """Vectors of a part, mapped into memory."""
        return load_array(vectors_path(self.path, number), mapped=True)

    def pieces(self, *, first_row: int = 0) -> Iterator[tuple[int, Floats]]:
        """All vectors, a part at a time, with the number of the first row of each."""
        for number, start in enumerate(self.starts[:-1]):
            if self.starts[number + 1] > start:
                yield first_row + start, np.array(self.part(number))

    def take(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Vectors of some rows."""
        out = np.empty((rows.size, self.dim), np.float32)
        parts = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(parts):
            chosen = parts == number
            out[chosen] = self.part(int(number))[rows[chosen] - self.starts[number]]
        return out


def vectors_path(folder: Path, number: int) -> Path:
    """Where the vectors of a part lie."""
    return folder / "vectors" / f"{number:06d}.npy"


def overlay_folder(run: Path) -> Path:
    """Where the overlay of a run lies."""
    return run / "overlay"


def open_overlay(run: Path) -> Overlay | None:
    """Open what was folded into a run since; None if nothing was."""
    folder = overlay_folder(run)
    for _ in range(_TRIES):
        try:
            version = folder / (folder / "current").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        try:
            lease = Lease(version)
        except FileNotFoundError:
            # Between the two looks a newer version took its place.
            continue
        facts = read_json(version / "manifest.json")
        return Overlay(version, tuple(facts["starts"]), facts["dim"], facts, lease)
    return None


def kept_edges(run: Path) -> list[Path]:
    """Edges that were folded into a run since it was published."""
    folder = overlay_folder(run) / "edges"
    return sorted(path for path in folder.glob("*") if not path.name.startswith("."))


def hand_over_edges(old: Path, new: Path) -> None:
    """Copy the edges that were folded into a run to another one, as yet unfolded."""
    target = overlay_folder(new)
    there = {path.name for path in kept_edges(new)}
    for path in kept_edges(old):
        if path.name not in there:
            (target / "edges").mkdir(parents=True, exist_ok=True)
            with written_aside(target / "edges" / path.name) as aside:
                shutil.copyfile(path, aside)
    options = overlay_folder(old) / "options.json"
    if options.exists() and not (target / "options.json").exists():
        write_json(target / "options.json", read_json(options))


def write_overlay(
    job: Job, parts: Path, blocks: int, run: Path, name: str, facts: dict[str, Any]
) -> None:
    """Make an overlay of folded-in parts, and let it count."""
    folder = overlay_folder(run)
    version = folder / name
    tasks = [Block(f"{b:06d}", (parts, b, version)) for b in range(blocks)]
    done = job.run("overlay", overlay_part, tasks)
    sizes = [done.stats[task.key]["rows"] for task in tasks]
    starts = [0, *np.cumsum(sizes).tolist()]
    write_json(version / "manifest.json", {**facts, "starts": starts}, durable=True)
    write_text(folder / "current", name + "\n", durable=True)
    for other in folder.glob("*"):
        if other.is_dir() and other.name not in ("edges", name):
            with not_in_use(other) as free:
                if free:
                    remove(other)


def overlay_part(parts: Path, number: int, version: Path) -> Stats:
    """Turn a part of folded-in vectors into ids that can be searched, and plain vectors."""
    table = pq.read_table(part_path(parts, number))
    vectors = table["vector"].combine_chunks()
    if isinstance(vectors, pa.ChunkedArray):
        vectors = pa.concat_arrays(vectors.chunks)
    dim = table.schema.field("vector").type.list_size
    flat = vectors.flatten().to_numpy().reshape(-1, dim)
    ids = table["id"].combine_chunks()
    ids = pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
    written = write_ids(range_path(version / "ids", number), {"id": _searchable(ids)})
    save_array(vectors_path(version, number), np.ascontiguousarray(flat))
    return {"rows": len(table), "written_bytes": written + flat.nbytes}


def _searchable(ids: pa.Array) -> pa.Array:
    """Ids in the type in which they are searched."""
    return ids if pa.types.is_integer(ids.type) else ids.cast(pa.large_string())
