"""Fenced blocks of Markdown pages, and how those of Python and of a shell are tried.

The info string says what a block is: ``python`` is executed, each command of ``bash`` is checked
against what it calls, ``yaml`` is read as the configuration that it is. ``python no-run`` and the
like mark a block that cannot be tried here; blocks without a language are drawings and output.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker

from figrl_jobs.main import figrl

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

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


def commands(block: Block) -> Iterator[list[str]]:
    """Words of each command of a shell block, without comments and redirections."""
    for line in block.text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|", line):
            # An index such as [peers] is quoted; what stands after > is not an argument.
            words = shlex.split(part.split(" > ")[0].strip("() "), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield words


def check_command(words: list[str], folder: Path) -> None:
    """Raise an error if a command names an option, a file or an extra that is not there.

    `folder` is the working directory, with what options want to exist.
    """
    program, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
    if program in ("python", "python3") and arguments[:1] == ["-m"]:
        program, *arguments = arguments[1:]
    if program in _PROGRAMS:
        with contextlib.chdir(folder):
            _parse(_PROGRAMS[program], program, arguments)
    elif program == "pip":
        _check_extras(arguments)
    elif program in _TAKE_FILES:
        missing = [word for word in arguments if "/" in word and not (ROOT / word).exists()]
        if missing:
            raise AssertionError(f"not in the repository: {missing}")
    elif program.startswith("tests."):
        if importlib.util.find_spec(program) is None:
            raise AssertionError(f"there is no module {program}")
    elif not (ROOT / program).exists():
        raise AssertionError(f"cannot be tried: mark the block that calls {program} as no-run")


_TAKE_FILES = ("build", "lint-imports", "mkdocs", "mypy", "pytest", "python", "ruff", "venv")
"""Programs whose arguments with a slash are files of the repository."""

_PROGRAMS: dict[str, click.Command] = {
    "figrl": figrl,
    "dask": click.Group("dask", {"scheduler": dask_scheduler, "worker": dask_worker}),
}


def _parse(command: click.Command, name: str, arguments: list[str]) -> None:
    """Parse a command line as the command does, down to the types of its options."""
    if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        job, *rest = arguments
        inner = command.get_command(click.Context(command), job)
        if inner is None:
            raise AssertionError(f"{name} has no command {job}")
        _parse(inner, job, rest)
        return
    with contextlib.suppress(click.exceptions.Exit):
        # --help and --version end here.
        command.make_context(name, list(arguments))


def _check_extras(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in arguments:
        found = re.fullmatch(r"(?:\.|figrl)\[([\w,]+)\]", word)
        unknown = set(found[1].split(",") if found else ()) - set(project["optional-dependencies"])
        if unknown:
            raise AssertionError(f"pyproject.toml has no extra {sorted(unknown)}")
