"""The edge formats.

To add one, write a module that ends in a `FORMAT` (see `figrl.ingestion.format`), and add it to the
table below.
"""

from __future__ import annotations

import csv as csv_lines
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.format import Format, Piece, RawBatch
from figrl.ingestion.formats import csv, jsonl, parquet, text
from figrl.ingestion.opening import AnyFile
from figrl.store.objects import RemoteFile

FORMATS = (parquet.FORMAT, csv.FORMAT, text.FORMAT, jsonl.FORMAT)
_BY_SUFFIX = {suffix: known for known in FORMATS for suffix in known.suffixes}
SUFFIXES = ", ".join(sorted(_BY_SUFFIX))

MATRICES = (".mtx", ".npz")
_TABLE = "Read it with pandas, and write Parquet: frame.to_parquet('edges.parquet')."
_GRAPH = "Read it with networkx, and give the graph to figrl.ingest in Python."
_UNPACK = "Unpack it first, or compress it as .gz instead."
_HINTS = {
    **dict.fromkeys(MATRICES, "A matrix is read alone: give that one file as EDGES."),
    ".npy": "Give the array to figrl.ingest in Python: figrl.ingest(numpy.load(FILE)).",
    ".json": "Give JSON with one object a line, in a file that ends in .jsonl.",
    **dict.fromkeys((".xlsx", ".feather", ".arrow", ".orc"), _TABLE),
    **dict.fromkeys((".graphml", ".gexf", ".gml", ".net"), _GRAPH),
    **dict.fromkeys((".zip", ".bz2", ".xz", ".zst", ".7z"), _UNPACK),
}
"""What to do with files of other formats."""


def format_of(path: AnyFile) -> Format:
    """Format of a file, by its ending."""
    name = Path(str(path)).name
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    if suffix not in _BY_SUFFIX:
        remedy = _HINTS.get(suffix, "Rename the file, or name a glob pattern that leaves it out.")
        if isinstance(path, RemoteFile) and suffix in MATRICES:
            remedy = "A matrix is read from a local file: copy it first."
        raise BadInputError(
            f"{path}: files that end in '{suffix or name}' are not read. Known: "
            f"{SUFFIXES}, of which text, CSV and JSON may be gzipped (.gz); .mtx and .npz. {remedy}"
        )
    return _BY_SUFFIX[suffix]


def has_known_ending(name: str) -> bool:
    """Whether a name ends as those of files that are read."""
    return Path(name.removesuffix(".gz")).suffix.lower() in _BY_SUFFIX


def read_piece(piece: Piece) -> Iterator[RawBatch]:
    """Read a piece of the input, a batch at a time."""
    known = format_of(piece.file.path)
    with readable(piece.file.path, known):
        yield from known.read(piece)


@contextmanager
def readable(path: AnyFile, known: Format) -> Iterator[None]:
    """Turn errors of reading into one that names the file and its format."""
    try:
        yield
    except PermissionError as error:
        raise ConfigError(
            f"{path}: it may not be read by this user. Change its permissions (chmod +r), or leave "
            "it out."
        ) from error
    except (OSError, EOFError, pa.ArrowException, csv_lines.Error) as error:
        raise BadInputError(
            f"{path}: cannot be read as {known.name}: {error}. Repair the file or leave it out."
        ) from error
