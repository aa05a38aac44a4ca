"""Sizes, durations and types, as people write and read them."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dask.utils import parse_bytes

from figrl.errors import ConfigError


def parse_memory(text: str) -> int:
    """Bytes of a size such as ``2GB`` or ``512MiB``."""
    try:
        return memory_bytes(text)
    except ValueError as error:
        raise ConfigError(f"The memory limit is wrong: {error}.") from error


def memory_bytes(text: str) -> int:
    """Bytes of a size; a ValueError, as a validator raises it, where it is none."""
    try:
        size = int(parse_bytes(text))
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"'{text}' is not a size of memory; write for example 2GB, 512MB or 4GiB"
        ) from error
    if size <= 0:
        raise ValueError(f"'{text}' is too small; write for example 2GB")
    return size


def counted(number: int, thing: str) -> str:
    """A number of things, one or several.

    Examples
    --------
    >>> counted(1, "file"), counted(1_200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def human_bytes(count: float) -> str:
    """Format a number of bytes in decimal units.

    Examples
    --------
    >>> human_bytes(1_234_000_000)
    '1.23 GB'
    """
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    index = 0
    while count >= 1000 and index < len(units) - 1:
        count /= 1000
        index += 1
    return f"{count:.0f} B" if index == 0 else f"{count:.3g} {units[index]}"


def human_seconds(seconds: float) -> str:
    """Format a duration.

    Examples
    --------
    >>> human_seconds(3725)
    '1 h 02 min'
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def kind_of(value: Any) -> str:
    """Type of a value with its article.

    Examples
    --------
    >>> kind_of(7), kind_of({}), kind_of(None)
    ('an int', 'a dict', 'None')
    """
    name = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if name[0].lower() in 'aeio' or name == 'ndarray' else 'a'} {name}"


def facts_html(caption: str, facts: Mapping[str, str], picture: str = "") -> str:
    """Names and values as the HTML table that a notebook shows, and a picture below it.

    Names stay on one line, beside values of one sentence or more, which are wrapped.
    """
    both = "text-align:left;vertical-align:top"
    rows = "".join(
        f"<tr><th style='{both};white-space:nowrap;padding-right:1.5em'>{html.escape(name)}</th>"
        f"<td style='{both};white-space:normal;max-width:40em'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    title = f"<caption style='text-align:left'>{html.escape(caption)}</caption>"
    return f"<table>{title}{rows}</table>{picture}"


def bars_svg(values: Sequence[float], title: str) -> str:
    """A small picture of numbers as bars, negative ones below the line, with its title."""
    shown = [value for value in values if math.isfinite(value)]
    if not shown:
        return ""
    width, height = 320.0, 60.0
    top, bottom = max(0.0, *shown), min(0.0, *shown)
    scale = height / ((top - bottom) or 1.0)
    step = width / len(shown)
    bars = "".join(
        f'<rect x="{i * step:.1f}" y="{(top - max(value, 0.0)) * scale:.1f}" '
        f'width="{max(step * 0.8, 0.5):.1f}" height="{abs(value) * scale:.1f}" '
        f'fill="{"#4269d0" if value >= 0 else "#ff725c"}"/>'
        for i, value in enumerate(shown)
    )
    name = html.escape(title)
    return (
        f'<div><svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="{name}"><title>{name}</title>{bars}</svg>'
        f"<br/><small>{name}</small></div>"
    )
