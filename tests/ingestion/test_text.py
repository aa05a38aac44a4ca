"""Text is cut at any byte and read in blocks of any size: every line comes once, numbered."""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from figrl.errors import BadInputError, IdTypeChangedError
from figrl.ingestion.checks import Quarantine, check_edges
from figrl.ingestion.format import Piece, RawBatch, SourceFile
from figrl.ingestion.formats import csv, fields, read_piece, text
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sources import inspect_file, split_into_pieces
from figrl.store.ids import IdKind

Row = tuple[int, str, str]
Bad = tuple[int, str]

_TOKEN = st.text("ab1ü-#%", min_size=1, max_size=4)
_SPACE = st.sampled_from([" ", "\t", "  ", " \t ", "\x0b"])
_LINE = st.one_of(
    st.tuples(_TOKEN, _SPACE, _TOKEN).map("".join),
    st.tuples(_SPACE, _TOKEN, _SPACE, _TOKEN, _SPACE).map("".join),
    st.sampled_from(["", " ", "\t\r", "#", "# a b", "  %a b c", "x" * 40 + " y"]),
    _TOKEN,
    st.tuples(_TOKEN, _SPACE, _TOKEN, _SPACE, _TOKEN).map("".join),
)
_NUMBER_LINE = st.tuples(st.integers(-50, 50), st.integers(0, 10**12)).map("{0[0]} {0[1]}".format)


def text_file(path: Path, id_kind: IdKind = "string") -> SourceFile:
    return SourceFile(
        path=str(path),
        kind="text",
        fingerprint="",
        id_kind=id_kind,
        columns=("1", "2"),
        weighted=False,
        size_bytes=path.stat().st_size,
    )


def rows_in(content: str) -> tuple[list[Row], list[Bad]]:
    """What a text holds, by plain Python."""
    rows, bad = [], []
    for number, line in enumerate(content.split("\n"), start=1):
        tokens = line.split()
        if not tokens or tokens[0][0] in "#%":
            continue
        if len(tokens) == 2:
            rows.append((number, tokens[0], tokens[1]))
        else:
            bad.append((number, tokens[0]))
    return rows, bad


def rows_read(batches: list[RawBatch]) -> tuple[list[Row], list[Bad]]:
    rows, bad = [], []
    for batch in batches:
        ends = zip(
            batch.edges["source"].to_pylist(), batch.edges["target"].to_pylist(), strict=True
        )
        rows += [(batch.row_number(i), s, t) for i, (s, t) in enumerate(ends)]
        bad += [(row, text.split()[0]) for row, text, _ in batch.malformed]
    return rows, bad


def read_cut(file: SourceFile, cuts: list[int]) -> list[RawBatch]:
    edges = sorted({0, file.size_bytes, *(cut for cut in cuts if cut < file.size_bytes)})
    pieces = [Piece(i, file, *cut) for i, cut in enumerate(pairwise(edges))]
    return [batch for piece in pieces for batch in read_piece(piece)]


@settings(max_examples=200)
@given(
    lines=st.lists(_LINE, max_size=12),
    ending=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
    cuts=st.lists(st.integers(1, 200), max_size=6),
    block=st.integers(1, 64),
)
def test_any_cut_reads_every_line_once(
    tmp_path: Path, lines: list[str], ending: str, closed: bool, cuts: list[int], block: int
) -> None:
    content = ending.join(lines) + (ending if closed else "")
    path = tmp_path / "e.txt"
    path.write_bytes(content.encode())
    with patch.object(fields, "_BLOCK_BYTES", block):
        batches = read_cut(text_file(path), cuts)
    assert rows_read(batches) == rows_in(content)


@settings(max_examples=200)
@given(
    lines=st.lists(_NUMBER_LINE, min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 400), max_size=6),
    block=st.integers(1, 64),
)
def test_any_cut_reads_every_integer(
    tmp_path: Path, lines: list[str], cuts: list[int], block: int
) -> None:
    path = tmp_path / "e.txt"
    path.write_text("\n".join(lines))
    with patch.object(fields, "_BLOCK_BYTES", block):
        batches = read_cut(text_file(path, "int"), cuts)
    assert rows_read(batches) == rows_in("\n".join(lines))
    quarantine = Quarantine(Piece(0, text_file(path), 0, 1), fail=True)
    checked = [check_edges(batch, "int", quarantine, strict_ids=True) for batch in batches]
    ends = [tuple(row.values()) for edges in checked for row in edges.to_pylist()]
    assert ends == [tuple(map(int, line.split())) for line in lines]


def test_every_cut_of_one_text(tmp_path: Path) -> None:
    content = "# c\n1 2\n\n3 4\r\n5\n6 7"
    path = tmp_path / "e.txt"
    path.write_bytes(content.encode())
    file = text_file(path, "int")
    expected = ([(2, "1", "2"), (4, "3", "4"), (6, "6", "7")], [(5, "5")])
    assert rows_in(content) == expected
    for first in range(len(content)):
        for second in range(first, len(content)):
            assert rows_read(read_cut(file, [first, second])) == expected


def test_a_line_longer_than_stretches_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "e.txt"
    path.write_text(f"{'a' * 5000} b\nc {'d' * 9000}\n")
    with patch.object(fields, "_BLOCK_BYTES", 7):
        batches = read_cut(text_file(path), list(range(0, 14_000, 1000)))
    assert rows_read(batches) == ([(1, "a" * 5000, "b"), (2, "c", "d" * 9000)], [])


def test_compressed_text_is_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "e.txt.gz"
    path.write_bytes(gzip.compress(b"1 2\n" * 1000))
    with patch.object(text, "_PIECE_BYTES", 10), patch.object(fields, "_BLOCK_BYTES", 30):
        (piece,) = split_into_pieces([inspect_file(str(path), IngestOptions())])
        rows, _ = rows_read(list(read_piece(piece)))
    assert rows == [(number, "1", "2") for number in range(1, 1001)]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 30, 31])
def test_stretches_cover_a_file(tmp_path: Path, size: int) -> None:
    (tmp_path / "e.txt").write_bytes(b"\n" * size)
    with patch.object(text, "_PIECE_BYTES", 10):
        pieces = split_into_pieces([replace(text_file(tmp_path / "e.txt"), size_bytes=size)] * 2)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert len(pieces) == 2 * max(1, -(-size // 10))
    covered = [byte for piece in pieces for byte in range(piece.start, piece.stop)]
    assert covered == [*range(size), *range(size)]


def test_an_id_that_is_no_integer_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "e.txt"
    path.write_text("1 2\n" * 100 + "# c\n3 x\n" + "1 2\n" * 100)
    file = text_file(path, "int")
    piece = Piece(1, file, 333, file.size_bytes)
    batches = list(read_piece(piece))
    quarantine = Quarantine(piece, fail=False)
    with pytest.raises(IdTypeChangedError, match=r"e\.txt, row 102: 'x'"):
        check_edges(batches[0], "int", quarantine, strict_ids=False)
    check_edges(batches[0], "int", quarantine, strict_ids=True)
    reason = "the target id is not a 64-bit integer"
    bad = {"file": str(path), "row": 102, "source": "3", "target": "x", "reason": reason}
    assert quarantine.rows == [bad]


@settings(max_examples=200)
@given(
    lines=st.lists(st.sampled_from(["1,2", "", "3", "4,5,6", '"7\n8",9', "  "]), max_size=30),
    header=st.booleans(),
    block=st.integers(16, 64),
)
def test_rows_of_csv_are_counted_over_blocks(
    tmp_path: Path, lines: list[str], header: bool, block: int
) -> None:
    """Empty lines are not counted; rows that are malformed are, and records over two lines once."""
    first = "source,target" if header else "0,0"
    path = tmp_path / "e.csv"
    path.write_text("\n".join([first, *lines]) + "\n")
    file = replace(text_file(path), kind="csv", named=header)
    file = replace(file, columns=("source", "target") if header else ("1", "2"))
    with patch.object(csv, "_BLOCK_BYTES", block):
        rows, bad = rows_read(list(read_piece(Piece(0, file, 0, 1))))
    counted = list(enumerate([line for line in [first, *lines] if line.strip()], start=1))
    good = {"0,0": ("0", "0"), "1,2": ("1", "2"), '"7\n8",9': ("7\n8", "9")}
    assert rows == [(number, *good[line]) for number, line in counted if line in good]
    assert [number for number, _ in bad] == [n for n, line in counted if line in ("3", "4,5,6")]


def test_weights_with_decimal_commas_are_not_left_out_in_silence(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source;target;weight\n1;2;0,5\n2;3;0,25\n")
    with pytest.raises(BadInputError, match="'weight' has the name of weights, and holds text"):
        inspect_file(str(path), IngestOptions())
    assert not inspect_file(str(path), IngestOptions(weight="none")).weighted


def test_a_comma_between_digits_is_no_delimiter_beside_semicolons(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("1;2;0,5\n2;3;0,25\n")
    (piece,) = split_into_pieces([inspect_file(str(path), IngestOptions(weight="none"))])
    rows, _ = rows_read(list(read_piece(piece)))
    assert rows == [(1, "1", "2"), (2, "2", "3")]
