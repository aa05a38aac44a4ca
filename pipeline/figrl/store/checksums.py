"""A CRC-32C for every file that is committed, checked on every read.

A Zarr chunk ends with the checksum of Zarr's own codec. Other binary files end with a trailer of 8
bytes, which their readers ignore; in Parquet, which has to end with its footer, the trailer lies
just before that. JSON has the checksum among its values. So a file is written with its checksum in
one atomic step, and can be checked without any other file.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import crc32c as library
import numpy as np
import numpy.typing as npt

from figrl.errors import DamagedError

TRAILER_BYTES = 8
_TRAILER = "<4sI"
_MAGIC = b"CRC1"
_PARQUET_END, _PARQUET_END_BYTES = "<I4s", 8
_PIECE_BYTES = 1 << 20
_DAMAGE = (None, errno.ENOENT, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.EINVAL)
"""Errors of the system that mean damage; libraries raise OSError without a number."""

CHUNK_CRC_BYTES = 4
"""Bytes that the codec adds to a Zarr chunk."""


class WrongContentError(Exception):
    """A file is not what was written: too short, or with another checksum."""


def crc32c(content: bytes | npt.NDArray[Any], before: int = 0) -> int:
    """CRC-32C of some bytes, continued from that of the bytes before them."""
    plain: Any = content if isinstance(content, bytes) else content.reshape(-1).view(np.uint8)
    # It releases the lock of the interpreter, unlike the one that zarr uses.
    return int(library.crc32c(plain, before))


def chunk_crc(content: npt.NDArray[Any]) -> bytes:
    """What the codec of Zarr adds to the bytes of a chunk."""
    return struct.pack("<I", crc32c(content))


def check_chunk(content: npt.NDArray[Any], stored: bytes) -> None:
    """Raise unless a chunk has the checksum that was stored with it."""
    if chunk_crc(content) != stored:
        raise WrongContentError("does not match its checksum")


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file leads to into the one error for it."""
    try:
        yield
    except DamagedError:
        raise
    except FileNotFoundError as error:
        raise damaged(path, "is missing") from error
    except OSError as error:
        if error.errno not in _DAMAGE:
            raise
        raise damaged(path, f"cannot be read ({_short(error)})") from error
    except WrongContentError as error:
        raise damaged(path, str(error)) from error
    except (ValueError, LookupError, TypeError, EOFError, OverflowError) as error:
        raise damaged(path, f"cannot be read ({_short(error)})") from error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def damaged(path: Path, reason: str) -> DamagedError:
    """Build the error for a damaged file of a store."""
    return DamagedError(
        f"damaged: {path} {reason}. Find and recompute what is damaged: "
        f"figrl verify --store {_store_of(path)} --repair"
    )


def _store_of(path: Path) -> Path | str:
    """The store that a path lies in, judged by the names of its folders."""
    for folder in path.parents:
        if folder.name in ("runs", "graph") or (folder / "runs").is_dir():
            return folder.parent if folder.name in ("runs", "graph") else folder
    return "STORE"


def _crc_of_file(file: IO[bytes], start: int, stop: int, before: int = 0) -> int:
    file.seek(start)
    while start < stop:
        piece = file.read(min(_PIECE_BYTES, stop - start))
        if not piece:
            raise WrongContentError(f"ended after {start} bytes while it was read")
        before, start = crc32c(piece, before), start + len(piece)
    return before


def file_crc(path: Path) -> int:
    """CRC-32C of all bytes of a file; `DamagedError` if there is none."""
    with damage_reported(path), path.open("rb") as file:
        return _crc_of_file(file, 0, file.seek(0, os.SEEK_END))


def append_checksum(path: Path) -> None:
    """Add the trailer to a file that is complete."""
    with path.open("r+b") as file:
        crc = _crc_of_file(file, 0, file.seek(0, os.SEEK_END))
        file.seek(0, os.SEEK_END)
        file.write(struct.pack(_TRAILER, _MAGIC, crc))


def insert_checksum(path: Path) -> None:
    """Add the trailer to a Parquet file that is complete, before its footer."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        begin = _footer_start(file, size)
        crc = _crc_of_file(file, 0, size)
        file.seek(begin)
        footer = file.read()
        file.seek(begin)
        file.write(struct.pack(_TRAILER, _MAGIC, crc) + footer)


def _footer_start(file: IO[bytes], size: int) -> int:
    if size < _PARQUET_END_BYTES:
        raise WrongContentError(f"has {size} bytes")
    file.seek(size - _PARQUET_END_BYTES)
    length, _ = struct.unpack(_PARQUET_END, file.read(_PARQUET_END_BYTES))
    return size - _PARQUET_END_BYTES - int(length)


def check_file(path: Path) -> None:
    """Raise `DamagedError` unless a binary file has the content that was written."""
    with damage_reported(path), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = _footer_start(file, size) if path.suffix == ".parquet" else size
        begin = end - TRAILER_BYTES
        if begin < 0:
            raise WrongContentError(f"has {size} bytes, which cannot be all")
        file.seek(begin)
        magic, stored = struct.unpack(_TRAILER, file.read(TRAILER_BYTES))
        if magic != _MAGIC:
            raise WrongContentError("is cut off, or does not end as it was written")
        if _crc_of_file(file, end, size, _crc_of_file(file, 0, begin)) != stored:
            raise WrongContentError("does not match its checksum")


def sealed_json(value: dict[str, Any], *, inside: str | None = None) -> bytes:
    """JSON text of an object with its own checksum; `inside` one of its objects, or at the top."""
    crc = crc32c(_json(value))
    added = {"checksum": f"{crc:08x}"}
    if inside is None:
        return _json({**value, **added})
    return _json({**value, inside: {**value[inside], **added}})


def unsealed_json(content: bytes, *, inside: str | None = None) -> dict[str, Any]:
    """Read what `sealed_json` made; `WrongContentError` if it was changed since."""
    value = json.loads(content)
    holder = value if inside is None else value[inside]
    stored = holder.pop("checksum", None) if isinstance(holder, dict) else None
    if not isinstance(stored, str):
        raise WrongContentError("has no checksum")
    if f"{crc32c(_without_checksum(content, stored, inside)):08x}" != stored:
        raise WrongContentError("does not match its checksum")
    return dict(value)


def _without_checksum(content: bytes, stored: str, inside: str | None) -> bytes:
    """The text that `sealed_json` made a checksum of: quicker than to write the object again."""
    margin = " " if inside is None else "  "
    before, line, after = content.partition(f'\n{margin}"checksum": "{stored}"'.encode())
    if not line:
        raise WrongContentError("does not match its checksum")
    if after.startswith(b","):
        return before + after[1:]
    if before.endswith(b","):
        return before[:-1] + after
    # It was an object without anything else.
    return before + after.lstrip()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
