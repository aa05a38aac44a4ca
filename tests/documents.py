"""Fenced blocks of Markdown pages, and how those of Python are executed."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block, its language, its marks and the line of the page on which it begins."""

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        """Where it is, as an error names it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """All fenced blocks of a page in order, or those of one language that are to be tried."""
    text, found = page.read_text(encoding="utf-8"), []
    for fence in _FENCE.finditer(text):
        words = fence[2].split() or [""]
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, words[0], tuple(words[1:]), dedent(fence[3])))
    return [b for b in found if language is None or (b.language == language and not b.marks)]


def run_python_blocks(page: Path, folder: Path) -> dict[str, Any]:
    """Execute the Python blocks of a page in order, in a folder; return the names they made."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in blocks(page, "python"):
            # Tracebacks name the page and its line.
            source = "\n" * block.line + block.text
            exec(compile(source, str(page), "exec"), names)
    return names
