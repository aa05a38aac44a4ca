"""Vectors as Parquet: id, and the vector as a fixed-size list of floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import open_zarr
from pipeline.blocks import Stats
from pipeline.errors import ConfigError
from pipeline.files import load_array, remove, write_text, written_aside
from pipeline.graph import Graph
from pipeline.ingest.arrow import map_ids, parquet_id_type
from pipeline.job import Block, Job


def vectors_schema(graph: Graph, dim: int) -> pa.Schema:
    """Columns of exported vectors."""
    return pa.schema({"id": parquet_id_type(graph.id_kind), "vector": pa.list_(pa.float32(), dim)})


def vectors_table(ids: pa.Array, vectors: npt.NDArray[np.float32], schema: pa.Schema) -> pa.Table:
    """Put ids and vectors into one table."""
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table([ids.cast(schema.field("id").type), column], schema)


def part_path(folder: Path, block: int) -> Path:
    """Where the vectors of a block are written."""
    return folder / f"part-{block:06d}.parquet"


@dataclass(frozen=True)
class ExportTask:
    """What every shard has to know; `shard_rows` is a multiple of a chunk's."""

    graph: Graph
    embedding: Path
    out: Path
    shard_rows: int

    @property
    def shards(self) -> int:
        """Files that the learnt vectors are written to."""
        return -(-self.graph.nodes // self.shard_rows)


def export_shard(task: ExportTask, number: int) -> Stats:
    """Write the ids and vectors of a stretch of rows, a Zarr chunk at a time."""
    embedding = open_zarr(task.embedding)
    rows, dim = embedding.chunks
    start = number * task.shard_rows
    stop = min(start + task.shard_rows, task.graph.nodes)
    schema = vectors_schema(task.graph, dim)
    path = part_path(task.out, number)
    with written_aside(path) as aside, pq.ParquetWriter(aside, schema, use_dictionary=False) as out:
        for begin in range(start, stop, rows):
            end = min(begin + rows, stop)
            ids = task.graph.index.ids_of(begin, end)
            out.write_table(vectors_table(ids, np.asarray(embedding[begin:end]), schema))
    written = path.stat().st_size
    return {"rows": stop - start, "read_bytes": (stop - start) * dim * 4, "written_bytes": written}


def export_table(task: ExportTask, number: int, ids: Path, vectors: Path) -> Stats:
    """Write ids and vectors that lie in a file each: nodes that were folded in since."""
    rows = load_array(vectors)
    schema = vectors_schema(task.graph, rows.shape[1])
    path = part_path(task.out, number)
    with written_aside(path) as aside:
        pq.write_table(vectors_table(map_ids(ids), rows, schema), aside, use_dictionary=False)
    return {
        "rows": len(rows),
        "read_bytes": rows.nbytes,
        "written_bytes": path.stat().st_size,
    }


_DELIVERING = "delivering"


def check_target(out: Path, work: Path, *, overwrite: bool) -> None:
    """Refuse to write over something that is there, unless it may be replaced.

    The same job may have put it there itself, and been killed before its end.
    """
    if out.exists() and not overwrite and not (work / _DELIVERING).exists():
        raise ConfigError(f"{out} is there already. Give another --out, or --overwrite.")


def parts_beside(out: Path, work: Path) -> Path:
    """Folder of the parts of an output: beside it, so that they are on the same file system.

    Its name is that of the job's work too, or a job would deliver parts that another one left.
    """
    return out.with_name(f".{out.name}.{work.name}.parts")


def forget_delivered(work: Path, parts: Path) -> None:
    """Begin anew where a job was killed after its parts were delivered: its marks mean nothing."""
    if not parts.exists():
        remove(work / "marks")


def deliver(job: Job, parts: Path, schema: pa.Schema, out: Path) -> None:
    """Put finished parts in their place: one file if the name ends in .parquet, else a folder.

    The parts are there until the moment in which they are in their place, so a job that is killed
    at any other can be run again.
    """
    write_text(job.marks.with_name(_DELIVERING), f"{out}\n")
    for litter in parts.glob(".*"):
        remove(litter)
    if out.suffix == ".parquet":
        # What was joined before may have been taken away since.
        remove(job.marks / "join")
        job.run("join", join_parts, [Block("all", (parts, schema, out))])
        remove(parts)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove(out)
        parts.rename(out)


def join_parts(parts: Path, schema: pa.Schema, out: Path) -> Stats:
    """Write all parts into one file, a row group at a time."""
    if out.is_dir():
        remove(out)
    with written_aside(out) as aside, pq.ParquetWriter(aside, schema, use_dictionary=False) as sink:
        for table in _row_groups(parts):
            sink.write_table(table.cast(schema))
    return {"written_bytes": out.stat().st_size}


def _row_groups(parts: Path) -> Iterator[pa.Table]:
    for path in sorted(parts.glob("part-*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)
