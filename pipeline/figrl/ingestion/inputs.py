"""What may be given as edges: files, or anything in memory or on a cluster that holds pairs.

What is no file is written as Parquet to a scratch folder, and read from there like any file: a
frame of this process in one piece, a frame of a cluster by its workers, a file for each partition.
The content of these files, not their place, identifies the graph, so the same frame is the same
graph. They are deleted when they were read; a call that was interrupted finds them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import distributed
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.runner import compute_parts, map_on_workers
from figrl.engine.stage import Monitor
from figrl.errors import BadInputError, ConfigError, FigrlError
from figrl.ingestion.format import Head, SourceFile
from figrl.ingestion.formats.parquet import sniff_schema
from figrl.ingestion.frames import (
    Frame,
    array_frame,
    pairs_frame,
    pandas_frame,
    pandas_schema,
    table_frame,
    take_pandas,
)
from figrl.ingestion.listing import find_files
from figrl.ingestion.matrices import is_matrix_file, matrix_file_frame
from figrl.ingestion.networks import matrix_frame, networkx_frame
from figrl.ingestion.opening import AnyFile
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sources import inspect_file
from figrl.store.access import Storage
from figrl.store.files import atomic_write, delete, digest, exists, file_digest, list_prefix
from figrl.store.files import size_bytes as bytes_of
from figrl.store.layout import PathLike
from figrl.units import kind_of

if TYPE_CHECKING:
    import dask.dataframe as dd
    import networkx as nx
    import numpy.typing as npt
    import scipy.sparse as sp


class ArrowStream(Protocol):
    """A frame of pandas, Polars, Arrow or any other library that hands over columns."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Stream of record batches."""


Edges: TypeAlias = (
    "PathLike | Sequence[PathLike] | ArrowStream | dd.DataFrame | nx.Graph | sp.sparray | "
    "sp.spmatrix | npt.NDArray[Any] | Iterable[tuple[Any, ...]]"
)
"""What may be given as edges."""

_ALLOWED = (
    "Give paths, a frame of pandas, Polars, Arrow or Dask, a graph of networkx, a sparse matrix of "
    "scipy, an array of pairs or a list of pairs."
)

_ROW_GROUP_ROWS = 1 << 20

_Part = tuple[str, int, int]
"""Of a written part: the digest of its content, its row groups, its bytes."""


def is_path(edges: Any) -> bool:
    """Whether edges are given by a path, or by several."""
    if isinstance(edges, str | os.PathLike):
        return True
    listed = isinstance(edges, list | tuple) and bool(edges)
    return listed and all(isinstance(one, str | os.PathLike) for one in edges)


def inspect_files(
    client: distributed.Client, files: Sequence[AnyFile], options: IngestOptions
) -> list[SourceFile]:
    """Sniff every file, on the workers."""
    return map_on_workers(client, inspect_file, [(path, options) for path in files])


@dataclass(frozen=True)
class EdgeFiles:
    """Edges in files: the paths that were given, and the files behind them."""

    given: tuple[PathLike, ...]
    files: list[AnyFile]
    options: IngestOptions

    @contextmanager
    def opened(
        self, client: distributed.Client, scratch: Path, monitor: Monitor
    ) -> Iterator[list[SourceFile]]:
        """The files, sniffed."""
        yield inspect_files(client, self.files, self.options)


@dataclass(frozen=True)
class EdgeFrame:
    """Edges that are no files.

    `key`: name of the scratch folder; the same for the same frame of a cluster.
    """

    frame: Frame | ClusterFrame
    head: Head
    key: str = "table"
    given: tuple[PathLike, ...] = ()
    files: tuple[AnyFile, ...] = ()

    @contextmanager
    def opened(
        self, client: distributed.Client, scratch: Path, monitor: Monitor
    ) -> Iterator[list[SourceFile]]:
        """Write the edges below a scratch folder, which is the caller's alone, as files."""
        folder = scratch / self.key
        for other in list_prefix(scratch):
            if other != folder:
                delete(other)
        try:
            sources = self._written(client, folder, monitor)
            with _named(sources):
                yield sources
        except FigrlError:
            # An error of the input comes again; after any other, the same call goes on.
            delete(scratch)
            raise
        delete(scratch)

    def _written(
        self, client: distributed.Client, folder: Path, monitor: Monitor
    ) -> list[SourceFile]:
        columns, name = self.head.columns, self.frame.name
        if isinstance(self.frame, ClusterFrame):
            parts = self.frame.write(client, columns, folder, monitor)
        else:
            parts = [write_part(self.frame.take(columns), part_path(folder, 0))]
        shown = [f"{name}, partition {i}" for i in range(len(parts))] if len(parts) > 1 else [name]
        return [
            SourceFile(
                path=str(part_path(folder, number)),
                kind="parquet",
                fingerprint=fingerprint[:24],
                size_bytes=size,
                stands_for=shown[number],
                **{**vars(self.head), "parts": groups, "empty": groups == 0},
            )
            for number, (fingerprint, groups, size) in enumerate(parts)
        ]


def part_path(folder: Path, number: int) -> Path:
    """Path of a part of a frame."""
    return folder / f"part-{number:06d}.parquet"


def write_part(table: pa.Table, path: Path) -> _Part:
    """Write edges as Parquet, without what their library says about itself."""
    plain = [
        column.cast(pa.large_string()) if column.type == pa.string_view() else column
        for column in table.columns
    ]
    table = pa.table(plain, names=table.column_names)
    with atomic_write(path) as aside:
        pq.write_table(table, aside, row_group_size=_ROW_GROUP_ROWS)
    return describe_part(path)


def describe_part(path: Path) -> _Part:
    """Describe a part that was written."""
    return file_digest(path), pq.read_metadata(path).num_row_groups, bytes_of(path)


@contextmanager
def _named(sources: Sequence[SourceFile]) -> Iterator[None]:
    """Name what the user gave in errors, in place of the file that stands for it."""
    try:
        yield
    except FigrlError as error:
        text = error.message
        for source in sources:
            text = text.replace(str(source.path), source.name)
        raise error.reworded(text) from error.__cause__


@dataclass(frozen=True)
class ClusterFrame:
    """A Dask DataFrame: its partitions are computed and written by the workers."""

    frame: Any
    name: str = "the Dask DataFrame"

    @property
    def schema(self) -> pa.Schema:
        """Types of its columns, as Dask knows them; objects are taken for strings."""
        return pandas_schema(self.frame._meta, objects=pa.large_string())

    def distinct(self, column: str) -> bool:
        """Whether the first values of a column all differ, as in an index."""
        first = self.frame[column].head(200)
        return bool(first.notna().all()) and first.nunique() == len(first)

    def write(
        self, client: distributed.Client, columns: Sequence[str], folder: Path, monitor: Monitor
    ) -> list[_Part]:
        """Write each partition to a file, unless it is there already."""
        from dask.delayed import delayed

        schema = self.schema
        types = [schema.field(column).type for column in columns]
        labels = [label for label in self.frame.columns if str(label) in columns]
        write = delayed(_write_partition, pure=False)
        describe = delayed(describe_part, pure=False)
        tasks = []
        for number, partition in enumerate(self.frame[labels].to_delayed()):
            path = part_path(folder, number)
            name = f"{self.name}, partition {number}"
            there = exists(path)
            tasks.append(
                describe(path) if there else write(partition, list(columns), types, path, name)
            )
        parts: list[_Part] = compute_parts(client, tasks, "write", monitor)
        return parts


def _write_partition(
    frame: Any, columns: list[str], types: list[pa.DataType], path: Path, name: str
) -> _Part:
    """Write a partition; a task."""
    return write_part(take_pandas(frame, columns, name, types), path)


def read_input(
    edges: Edges, options: IngestOptions, storage: Storage, *, new_nodes: bool = False
) -> EdgeFiles | EdgeFrame:
    """Find out what was given as edges, and check its columns; nothing is written yet.

    `storage`: how URLs are reached.
    `new_nodes`: the edges are those of new nodes, which matters where edges have no direction.
    """
    if is_path(edges):
        given: list[Any] = [edges] if isinstance(edges, str | os.PathLike) else list(edges)  # type: ignore[arg-type]
        if len(given) == 1 and is_matrix_file(path := os.fspath(given[0])):
            frame = matrix_file_frame(path, options, new_nodes=new_nodes)
            return replace(_in_memory(frame, options), given=(path,), files=(path,))
        return EdgeFiles(tuple(given), find_files(given, storage), options)
    found = _as_frame(edges, options, new_nodes=new_nodes)
    if isinstance(found, Frame):
        return _in_memory(found, options)
    from dask.base import tokenize

    head = sniff_schema(found.name, found.schema, options, found.distinct)
    return EdgeFrame(found, head, digest([tokenize(found.frame), head.columns]))


def _in_memory(frame: Frame, options: IngestOptions) -> EdgeFrame:
    if not frame.schema.names or not len(frame.first(frame.schema.names[0])):
        raise BadInputError(f"{frame.name} is empty. Give at least one edge.")
    head = sniff_schema(frame.name, frame.schema, options, frame.distinct, named=frame.named)
    return EdgeFrame(frame, _with_notes(head, frame.notes))


def _with_notes(head: Head, notes: tuple[str, ...]) -> Head:
    return Head(**{**vars(head), "notes": (*head.notes, *notes)})


def _as_frame(edges: Any, options: IngestOptions, *, new_nodes: bool) -> Frame | ClusterFrame:
    """Recognise a frame by its library, which need not be installed."""
    library, kind = type(edges).__module__.partition(".")[0], type(edges).__name__
    if hasattr(edges, "to_delayed") and hasattr(edges, "npartitions") and hasattr(edges, "columns"):
        return ClusterFrame(edges)
    if library == "pandas" and kind == "DataFrame":
        return pandas_frame(edges)
    if library == "polars" and kind == "LazyFrame":
        edges = edges.collect()
    if hasattr(edges, "__arrow_c_stream__"):
        shown = {"pyarrow": "Arrow", "polars": "Polars"}.get(library, library)
        return table_frame(f"the {shown} {type(edges).__name__}", pa.table(edges))
    if hasattr(edges, "is_directed") and hasattr(edges, "edges"):
        return networkx_frame(edges, options, new_nodes=new_nodes)
    if hasattr(edges, "tocsr"):
        return matrix_frame(edges, options, new_nodes=new_nodes)
    if hasattr(edges, "__array_interface__"):
        return array_frame(edges)
    if isinstance(edges, Iterable) and not isinstance(edges, str | bytes | dict):
        return pairs_frame(edges)
    raise ConfigError(f"Edges cannot be read from {kind_of(edges)}. {_ALLOWED}")
