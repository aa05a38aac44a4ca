"""Any bytes as text, CSV or a configuration: the right edges, or an error that names the file.

``FIGRL_FUZZ_EXAMPLES=20000 pytest tests/faults/test_fuzz.py`` goes on for longer than CI does.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from figrl.config import make_options
from figrl.engine.cluster_file import read_cluster_config
from figrl.errors import ConfigError, FigrlError
from figrl.ingestion.checks import Quarantine, check_edges
from figrl.ingestion.formats import read_piece
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sources import agree, inspect_file, split_into_pieces
from figrl.nightly.config import read_reindex_config

EXAMPLES = int(os.environ.get("FIGRL_FUZZ_EXAMPLES", "150"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FIGRL_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)

_NAMES = ("source", "target", "weight", "year", "index", "a", "ü", "x y", "")
_NUMBERS = ("1", "2", "10", "0.5", "1e9", "nan", "-3", "007", "9" * 25)
_ODD = ("#", "%", '"', '""', '"q"', '"q,r"', "\ufeff", "\x00", "\x0b")
_WORD = st.sampled_from((*_NAMES, *_NUMBERS, *_ODD))
_BREAK = st.sampled_from(["\n", "\r\n", "\r", "\n\n", " \n", ""])
_JOIN = st.sampled_from([",", " ", "\t", ", ", ",,", ";", ""])
_LINE = st.tuples(st.lists(_WORD, max_size=5), _JOIN, _BREAK).map(
    lambda line: line[1].join(line[0]) + line[2]
)
_BYTES = st.one_of(
    st.lists(_LINE, max_size=12).map(lambda lines: "".join(lines).encode()),
    st.binary(max_size=200),
)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.sampled_from(["none", "3", "weight", "w"]),
        "source": st.sampled_from(["source", "1", "2", "index"]),
        "target": st.sampled_from(["target", "2", "3"]),
        "ids": st.sampled_from(["auto", "int", "string"]),
        "csv_header": st.sampled_from(["auto", "yes", "no"]),
        "on_bad_edges": st.sampled_from(["fail", "quarantine"]),
    },
)


def read_all(path: Path, options: IngestOptions) -> tuple[list[tuple[Any, ...]], int]:
    """All edges of a file as strings, read as ingest reads them, and how many rows are bad."""
    file = inspect_file(str(path), options)
    kind, _ = agree([file], options)
    edges: list[tuple[Any, ...]] = []
    bad = 0
    for piece in split_into_pieces([file]):
        quarantine = Quarantine(piece, options.on_bad_edges == "fail")
        for batch in read_piece(piece):
            checked = check_edges(batch, kind, quarantine, strict_ids=options.ids != "auto")
            columns = [column.to_pylist() for column in checked.columns]
            edges += [tuple(row) for row in zip(*columns, strict=True)]
        bad += len(quarantine.rows)
    return edges, bad


def outcome(path: Path, given: dict[str, Any]) -> tuple[list[tuple[Any, ...]], int] | None:
    """Edges and bad rows; None where the file was refused, with its name and a remedy."""
    try:
        return read_all(path, make_options(IngestOptions, given))
    except FigrlError as error:
        refused = error
    assert refused.exit_code in (2, 3)
    assert refused.message.startswith(str(path)) or isinstance(refused, ConfigError)
    return None


@fuzz
@given(content=_BYTES, options=_OPTIONS)
def test_any_bytes_as_text(tmp_path: Path, content: bytes, options: dict[str, Any]) -> None:
    path = tmp_path / "e.txt"
    path.write_bytes(content)
    found = outcome(path, options)
    if found is None:
        return
    edges, bad = found
    lines = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"").split(b"\n")
    rows = [line.split() for line in lines if line.split()]
    rows = [row for row in rows if row[0][:1] not in (b"#", b"%")]
    # Every line that is no comment is an edge or a bad row: nothing is lost in silence.
    assert len(edges) + bad == len(rows)
    ends = [(str(a), str(b)) for a, b, *_ in edges]
    written = [tuple(token.decode() for token in row[:2]) for row in rows if len(row) >= 2]
    assert bad or ends == written


@fuzz
@given(content=_BYTES, options=_OPTIONS, form=st.sampled_from(["csv", "tsv"]))
@example(content=b"source,target\n\x0b\n", options={}, form="csv")
def test_any_bytes_as_csv(
    tmp_path: Path, content: bytes, options: dict[str, Any], form: str
) -> None:
    path = tmp_path / f"e.{form}"
    path.write_bytes(content)
    found = outcome(path, options)
    if found is None:
        return
    edges, bad = found
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    reader = csv.reader(text, delimiter="\t" if form == "tsv" else ",", skipinitialspace=True)
    # A row of nothing but blanks is an empty line.
    rows = [row for row in reader if len(row) > 1 or "".join(row).strip(" \t")]
    header = inspect_file(str(path), make_options(IngestOptions, options)).named
    assert len(edges) + bad == len(rows) - header


_REINDEX = ("store", "sources", "path", "ingest", "embed", "gates", "keep", "dim", "weight")
_CLUSTER = ("local", "scheduler", "custom", "class", "workers", "memory_limit")
_KEYS = st.sampled_from((*_REINDEX, *_CLUSTER, "window", "days", "x", "1", "~"))
_SCALARS = ("1", "-1", "yes", ".nan", ".inf", "~", "a", "''", "2GB", "2026-13-45", "1e400", "0x10")
_OTHERS = ("[]", "{}", "!!x y", "&a [*a]", "*b", "tcp://a:1", "'\\0'", "|", ">", "- a", "\t", "@")
_VALUES = st.sampled_from((*_SCALARS, *_OTHERS))
_YAML = st.one_of(
    st.lists(st.tuples(st.integers(0, 2), _KEYS, _VALUES), max_size=8).map(
        lambda rows: "".join(f"{'  ' * deep}{key}: {value}\n" for deep, key, value in rows).encode()
    ),
    st.binary(max_size=100),
)


@fuzz
@given(content=_YAML)
def test_any_bytes_as_a_configuration(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    for read in (read_reindex_config, read_cluster_config):
        message = str(path)
        try:
            read(path)
        except ConfigError as error:
            message = error.message
        assert str(path) in message
