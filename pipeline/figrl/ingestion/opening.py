"""Opening a file of edges, on a file system or behind a URL, and what tells it from a later one.

A local file is opened as it is. One behind a URL is read in ranges: a reader that goes on from
where it was has more and more requests under way, and ranges that are known beforehand, such as the
columns of a row group, are asked for at once.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.worker import worker_state
from figrl.store.files import atomic_write
from figrl.store.objects import Bucket, Objects, RemoteFile

AnyFile: TypeAlias = str | RemoteFile
"""A file of edges: a path, or an object that was found behind a URL."""

HEAD_BYTES = 64 << 10

END = 1 << 62

_FIRST_BYTES = 256 << 10
"""Of the first request of a reader, which may want nothing but the beginning of a file."""

_REQUEST_BYTES = 2 << 20
_REQUESTS = 6
"""Requests of a reader that are under way at once, at most."""

_GAP_BYTES = 256 << 10
"""What lies between two ranges is read along with them if it is no more than that."""


def objects_of(bucket: Bucket) -> Objects:
    """The objects of a bucket; its connections are kept by the process."""
    found: Objects = worker_state().opened(bucket, partial(Objects, bucket))
    return found


def open_bytes(path: AnyFile, *, until: int = END) -> BinaryIO:
    """Open a file, decompressing it on the fly if it is gzipped.

    `until`: where the reader will probably stop; of a file behind a URL no more is read ahead.
    """
    if isinstance(path, RemoteFile):
        stream = _open_remote(path, until)
        if not str(path).endswith(".gz"):
            return stream
        return cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(stream), "gzip"))
    if path.endswith(".gz"):
        return cast("BinaryIO", pa.input_stream(path, compression="gzip"))
    return _open_local(path)


@contextmanager
def open_parquet(
    path: AnyFile, columns: Sequence[str] = (), groups: Sequence[int] = ()
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; behind a URL, the columns of these row groups are asked for at once."""
    if not isinstance(path, RemoteFile):
        with pq.ParquetFile(path) as file:
            yield file
        return
    reader = RemoteReader(path)
    with io.BufferedReader(reader, HEAD_BYTES) as stream:
        file = pq.ParquetFile(pa.PythonFile(stream, mode="r"))
        reader.fetch(_ranges(file.metadata, set(columns), groups))
        yield file


def _ranges(
    metadata: pq.FileMetaData, columns: set[str], groups: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """Where the columns of row groups lie in a file."""
    for group in map(metadata.row_group, groups):
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema
            if name in columns or name.partition(".")[0] in columns:
                start = column.data_page_offset
                if column.dictionary_page_offset:
                    start = min(start, column.dictionary_page_offset)
                yield start, start + column.total_compressed_size


def identify(path: AnyFile) -> tuple[str, int]:
    """What tells a file from any other and from a later version of it, and its size.

    Of a local file that is its path, the size, the time of the last change, and the first and last
    bytes, which for Parquet are its footer; behind a URL what the server says of its version.
    """
    if isinstance(path, RemoteFile):
        size, changed = path.size_bytes, path.version
        ends = b"" if changed is not None else _ends(path)
    else:
        status = Path(path).stat()
        size, changed = status.st_size, str(status.st_mtime_ns)
        ends = _ends(path)
    mark = hashlib.blake2b(f"{path}\0{size}\0{changed}\0".encode() + ends)
    return mark.hexdigest()[:24], size


def _ends(path: AnyFile) -> bytes:
    """The first and the last bytes of a file, compressed if it is."""
    with _open_remote(path) if isinstance(path, RemoteFile) else _open_local(path) as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - HEAD_BYTES))
        return head + file.read(HEAD_BYTES)


def _open_local(path: str) -> BinaryIO:
    return Path(path).open("rb")


def _open_remote(file: RemoteFile, until: int = END) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(RemoteReader(file, until), HEAD_BYTES))


def save_as(file: RemoteFile, path: Path) -> None:
    """Copy an object to a local file, as it is."""
    with (
        atomic_write(path) as aside,
        aside.open("wb") as target,
        _open_remote(file) as stream,
    ):
        shutil.copyfileobj(stream, target, _REQUEST_BYTES)


@dataclass(frozen=True)
class _Part:
    """Bytes of a file that were asked for."""

    start: int
    stop: int
    content: Future[memoryview]


class RemoteReader(io.RawIOBase):
    """Bytes of an object, read in ranges and ahead; for one thread."""

    def __init__(self, file: RemoteFile, until: int = END) -> None:
        super().__init__()
        self._file, self._until, self._at = file, until, 0
        self._objects = objects_of(file.bucket)
        self._ahead: deque[_Part] = deque()
        self._fetched: list[_Part] = []
        self._in_a_row = 0
        self._threads = ThreadPoolExecutor(_REQUESTS, "figrl-read")

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on from another byte."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size_bytes}
        self._at = max(0, base[whence] + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; none at the end."""
        if self._at >= self._file.size_bytes:
            return 0
        part = self._part()
        found = part.content.result()[self._at - part.start :][: len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        """Forget what was asked for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._ahead.clear()
        self._fetched.clear()
        super().close()

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Ask for ranges that will be read; they are kept until the reader is closed."""
        joined: list[list[int]] = []
        for start, stop in sorted(ranges):
            if joined and start - joined[-1][1] <= _GAP_BYTES:
                joined[-1][1] = max(stop, joined[-1][1])
            else:
                joined.append([start, stop])
        self._fetched = [
            self._ask(begin, min(begin + _REQUEST_BYTES, stop))
            for start, stop in joined
            for begin in range(start, stop, _REQUEST_BYTES)
        ]

    def _ask(self, start: int, stop: int) -> _Part:
        stop = min(stop, self._file.size_bytes)
        return _Part(start, stop, self._threads.submit(self._objects.read, self._file, start, stop))

    def _part(self) -> _Part:
        """The part with the next byte."""
        place = bisect_right(self._fetched, self._at, key=lambda part: part.start) - 1
        if place >= 0 and self._at < self._fetched[place].stop:
            return self._fetched[place]
        while self._ahead and self._ahead[0].stop <= self._at:
            self._ahead.popleft()
            self._in_a_row += 1
        if not self._ahead or self._at < self._ahead[0].start:
            self._ahead.clear()
            first = _REQUEST_BYTES if self._in_a_row else _FIRST_BYTES
            self._ahead.append(self._ask(self._at, self._limited(self._at, first)))
        wanted = min(1 << self._in_a_row, _REQUESTS) if self._in_a_row else 1
        last = min(self._until, self._file.size_bytes)
        while len(self._ahead) < wanted and (start := self._ahead[-1].stop) < last:
            self._ahead.append(self._ask(start, self._limited(start, _REQUEST_BYTES)))
        return self._ahead[0]

    def _limited(self, start: int, size: int) -> int:
        """End of a request: not far beyond what will be wanted."""
        return min(start + size, max(self._until, start + _FIRST_BYTES))
