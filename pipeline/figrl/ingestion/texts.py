"""Numbers that are written as text, and bytes that are none."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))"


def is_number(text: str) -> bool:
    """Whether a text is a number, finite or not."""
    return re.fullmatch(_NUMBER, text, re.ASCII) is not None


def parse_numbers(texts: pa.Array) -> pa.Array:
    """Texts as float64; null where one is not a number."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        good = pc.match_substring_regex(texts, f"^({_NUMBER})$")
        return pc.if_else(good, texts, pa.scalar(None, texts.type)).cast(pa.float64())


def first_invalid(texts: pa.Array) -> int | None:
    """Place of the first text that is not valid UTF-8; None if all are."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        values = texts.cast(pa.large_binary()).to_pylist()
        return next(i for i, value in enumerate(values) if not _is_utf8(value))
    return None


def _is_utf8(value: bytes | None) -> bool:
    return value is None or value.decode("utf-8", "replace").encode() == value
