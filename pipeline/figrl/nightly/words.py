"""Errors of a night in the words of its configuration: keys in place of options."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterator

from figrl.analyze.centers import ClusterOptions
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.fold_in import FoldInOptions


def _choices() -> Iterator[str]:
    """Words that an option may have as its value."""
    yield from ("none", "auto", "yes", "no")
    for model in (IngestOptions, EmbedOptions, FoldInOptions, ClusterOptions):
        for field in model.model_fields.values():
            parts = [field.annotation, *typing.get_args(field.annotation)]
            for part in parts:
                if typing.get_origin(part) is typing.Literal:
                    yield from (value for value in typing.get_args(part) if isinstance(value, str))


@functools.cache
def option_pattern() -> re.Pattern[str]:
    """An option of the command in a text, as groups ``name`` and ``value``, or a ``command``."""
    words = "|".join(sorted({re.escape(word) for word in _choices()}, key=len, reverse=True))
    value = rf"'[^']*'|\d+(?:\.\d+)?[a-z]*|(?:{words})\b"
    command = r"(?P<command>figrl [a-z-]+(?: (?:[A-Z]+\b|--[a-z-]+|/\S+))*)"
    return re.compile(rf"{command}|--(?P<name>[a-z][a-z-]*)(?: (?P<value>{value}))?")


_KEYS = {
    **{name: f"embed.{name}" for name in EmbedOptions.model_fields},
    **{name: f"ingest.{name}" for name in IngestOptions.model_fields},
    "memory_limit": "memory_limit",
}
"""Key of each option in the configuration of re-indexing."""


def yaml_words(text: str) -> str:
    """A text with keys of the configuration of re-indexing in place of options that it has.

    Examples
    --------
    >>> yaml_words("Give --weight 3 or --weight none, or lower --sketch-size.")
    'Give ingest.weight: 3 or ingest.weight: none, or lower embed.sketch_size.'
    """
    return option_pattern().sub(_key, text)


def _key(found: re.Match[str]) -> str:
    key = None if found["command"] else _KEYS.get(found["name"].replace("-", "_"))
    if key is None:
        return found[0]
    return key if found["value"] is None else f"{key}: {found['value']}"
