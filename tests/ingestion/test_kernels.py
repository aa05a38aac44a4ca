"""The compiled loops, and what is built on them, against plain Python."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from figrl.ingestion.kernels import copy_tokens, parse_integers, split_lines
from figrl.ingestion.scan import number_ids
from figrl.store.ids import (
    IdKind,
    cut_points,
    id_type,
    node_keys,
    search_sorted,
    sorted_ids,
    string_buffers,
    strings_from_buffers,
)

MANY = settings(max_examples=200)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Few letters and short words, so that prefixes of one another and repeats are common.
WORD = st.one_of(st.text("aböz\U0001f600", max_size=4), st.text(max_size=6))
IDS = st.one_of(
    st.tuples(st.just("int"), st.lists(INT64 | st.integers(-9, 9))),
    st.tuples(st.just("string"), st.lists(WORD)),
)


def in_order(values: Any) -> list[Any]:
    """Distinct values in the order of ids: integers by value, strings by their UTF-8 bytes."""
    return sorted(set(values), key=lambda v: v.encode() if isinstance(v, str) else v)


def key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def arrow(values: list[Any], kind: IdKind, before: int = 0) -> pa.Array:
    """Ids as an array that begins in the middle of its buffers."""
    pad: list[Any] = [0 if kind == "int" else "pad"] * before
    return pa.array(pad + values + pad, id_type(kind)).slice(before, len(values))


@MANY
@given(ids=IDS, share=st.integers(0, 2**30), before=st.integers(0, 3))
def test_search_and_cut(ids: tuple[IdKind, list[Any]], share: int, before: int) -> None:
    kind, values = ids
    # Each value is hay, needle, or both, by the bits of one number.
    hay = in_order(v for i, v in enumerate(values) if (share >> i % 15) & 1)
    needles = in_order(v for i, v in enumerate(values) if (share >> (15 + i % 15)) & 1)
    expected = []
    for needle in needles:
        at = bisect_left([key(v) for v in hay], key(needle))
        found = at < len(hay) and hay[at] == needle
        expected.append(at if found else -1 - at)
    arrays = arrow(hay, kind, before), arrow(needles, kind, before)
    assert search_sorted(*arrays).tolist() == expected
    cuts = [at if at >= 0 else -1 - at for at in expected]
    assert cut_points(*arrays).tolist() == cuts


def test_search_in_a_long_hay() -> None:
    hay = [f"{i:05d}" for i in range(0, 30_000, 3)]
    needles = [f"{i:05d}" for i in (0, 1, 3, 14_998, 14_999, 15_000, 29_997, 29_998)]
    found = search_sorted(arrow(hay, "string"), arrow(needles, "string")).tolist()
    assert found == [0, -2, 1, -5001, -5001, 5000, 9999, -10001]


@MANY
@given(ids=IDS)
def test_ids_are_sorted_by_value_or_bytes(ids: tuple[IdKind, list[Any]]) -> None:
    kind, values = ids
    assert sorted_ids(arrow(values, kind)).to_pylist() == sorted(values, key=key)


@MANY
@given(ids=IDS)
def test_ids_are_numbered_in_order(ids: tuple[IdKind, list[Any]]) -> None:
    kind, values = ids
    source, target = values[: len(values) // 2], values[len(values) // 2 :][: len(values) // 2]
    found, places = number_ids(arrow(source, kind), arrow(target, kind))
    expected = in_order(source + target)
    assert found.to_pylist() == expected
    assert places.tolist() == [[expected.index(v) for v in end] for end in (source, target)]


def is_plain_int64(text: str) -> bool:
    """Whether a text is exactly how Python writes some int64."""
    try:
        value = int(text)
    except ValueError:
        return False
    return str(value) == text and -(2**63) <= value < 2**63


TOKEN = st.one_of(
    INT64.map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.integers(0, 99).map("0{}".format),
    st.text("0123456789+-e._ ", max_size=21),
)


@MANY
@given(tokens=st.lists(TOKEN))
@example(tokens=[str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1)])
@example(tokens=["9" * 19, "1" + "0" * 19, "-" + "9" * 19, str(2**64), str(2**64 + 1)])
@example(tokens=["0", "-0", "00", "-", "", "+1", "1e5", "007", "-7", "7\x00", "\uff11"])
def test_parse_integers(tokens: list[str]) -> None:
    data, offsets = string_buffers(pa.array(tokens, pa.large_string()))
    values, valid = parse_integers(data, offsets)
    assert valid.tolist() == [is_plain_int64(token) for token in tokens]
    assert values[valid].tolist() == [int(token) for token in tokens if is_plain_int64(token)]


@MANY
@given(text=st.lists(st.sampled_from("a1ü#% \t\r\n\n\x00-"), max_size=60).map("".join))
def test_split_lines(text: str) -> None:
    data = text.encode()
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    expected = []
    for number, line in enumerate(lines):
        tokens = line.replace(b"\x00", b" ").split()
        if tokens and tokens[0][:1] not in (b"#", b"%"):
            expected.append((number, len(tokens), tokens[:3]))
    places = np.full((len(lines) + 1, 8), -1, np.int64)
    rows, seen = split_lines(np.frombuffer(data, np.uint8), places)
    found = [
        (int(row[7]), int(row[6]), [data[row[i] : row[i + 1]] for i in (0, 2, 4)][: int(row[6])])
        for row in places[:rows]
    ]
    assert found == expected
    assert seen == len(lines)


@MANY
@given(words=st.lists(WORD), before=st.integers(0, 2))
def test_strings_to_buffers_and_back(words: list[str], before: int) -> None:
    data, offsets = string_buffers(arrow(words, "string", before))
    copied, copied_offsets = copy_tokens(data, offsets[:-1], offsets[1:])
    assert copied.tobytes() == "".join(words).encode()
    strings = strings_from_buffers(copied, copied_offsets)
    strings.validate(full=True)
    assert strings.to_pylist() == words


def mixed(state: int) -> int:
    """Output step of SplitMix64, on Python's integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def hashed(word: str) -> int:
    """FNV-1a over the bytes of a word, then mixed."""
    state = 0xCBF29CE484222325
    for byte in word.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return mixed(state ^ len(word.encode()))


@MANY
@given(ids=IDS, before=st.integers(0, 2))
def test_keys_follow_from_the_id_alone(ids: tuple[IdKind, list[Any]], before: int) -> None:
    kind, values = ids
    keys = node_keys(arrow(values, kind, before))
    assert keys.dtype == np.uint64
    expected = [mixed(v % 2**64) if kind == "int" else hashed(v) for v in values]
    assert keys.tolist() == expected


@pytest.mark.parametrize("kind", ["int", "string"])
def test_keys_of_a_million_ids_are_all_different(kind: IdKind) -> None:
    ids = pa.array(np.arange(-500_000, 500_000)).cast(id_type(kind))
    assert np.unique(node_keys(ids)).size == 1_000_000
