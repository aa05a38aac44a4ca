"""One progress bar for a call: in a notebook by itself, elsewhere where it is asked for."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from figrl.api.words import python_words
from figrl.engine.stage import Monitor, Silent, StageResult
from figrl.units import human_seconds

_REDRAW_SECONDS = 0.2

_INGEST = ("scan", "ranges", "ids", "relabel", "build")
_STAGES = {
    "ingest": _INGEST,
    "embed": ("embed", "sketch", "factor", "norm", "vectors", "smooth"),
    "ingest and embed": (*_INGEST, "embed", "sketch", "factor", "norm", "vectors", "smooth"),
    "fold_in": (*_INGEST, "match", "weigh", "fold"),
    "cluster": ("centers", "labels"),
}
"""Stages of each call, in order; there may be others between them."""


@contextmanager
def showing(progress: bool | None, call: str) -> Iterator[Monitor]:
    """Show the progress of a call: if it is asked for, or by default in a notebook."""
    wanted = in_notebook() if progress is None else progress
    if not wanted:
        yield Silent()
        return
    bar = Bar(call, _NotebookScreen() if in_notebook() else _TextScreen())
    try:
        yield bar
    except BaseException:
        bar.end("stopped")
        raise
    bar.end("done")


def in_notebook() -> bool:
    """Whether this is a cell of a notebook."""
    shell = sys.modules.get("IPython")
    current = None if shell is None else shell.get_ipython()
    return current is not None and hasattr(current, "kernel")


class Screen(Protocol):
    """Where a bar is drawn."""

    def draw(self, share: float, text: str, notes: list[str]) -> None:
        """Draw the bar in place of what was drawn before."""


class Bar:
    """A monitor that draws the share of the stages that are done."""

    def __init__(self, call: str, screen: Screen) -> None:
        self._call, self._stages, self._screen = call, _STAGES[call], screen
        self._notes: list[str] = []
        self._began = time.monotonic()
        self._drawn, self._share, self._at = 0.0, 0.0, 0

    def planned(self, seconds: Mapping[str, float]) -> None:
        """Ignore it: stages count alike."""

    def started(self, result: StageResult) -> None:
        """Draw a stage that begins."""
        name = result.name.partition("-")[0]
        if name in self._stages[self._at :]:
            self._at = self._stages.index(name, self._at)
        self._draw(result)

    def advanced(self, result: StageResult) -> None:
        """Draw a block that is done, unless the last was just drawn."""
        if time.monotonic() - self._drawn > _REDRAW_SECONDS:
            self._draw(result)

    def finished(self, result: StageResult) -> None:
        """Draw a stage that is done."""
        self._draw(result)

    def note(self, text: str) -> None:
        """Show a message below the bar."""
        self._notes.append(python_words(text))

    def end(self, word: str) -> None:
        """Draw the end."""
        took = human_seconds(time.monotonic() - self._began)
        share = 1.0 if word == "done" else self._share
        self._screen.draw(share, f"{self._call}: {word} in {took}", self._notes)

    def _draw(self, result: StageResult) -> None:
        inside = len(result.stats) / max(result.blocks, 1)
        # A stage between two that are expected counts as a part of the first.
        self._share = max(self._share, (self._at + inside) / (len(self._stages) + 1))
        self._drawn = time.monotonic()
        text = f"{self._call}: {result.name}, {self._share:.0%}"
        self._screen.draw(self._share, text, self._notes)


class _NotebookScreen:
    """A bar of HTML that replaces itself; it takes no widgets."""

    def __init__(self) -> None:
        self._shown: Any = None

    def draw(self, share: float, text: str, notes: list[str]) -> None:
        from IPython.display import HTML, display

        lines = "".join(f"<br/><small>{html.escape(note)}</small>" for note in notes)
        bar = f"<progress value='{share:.3f}' max='1' style='width:20em'></progress>"
        page = HTML(f"<div>{bar} {html.escape(text)}{lines}</div>")
        if self._shown is None:
            self._shown = display(page, display_id=True)
        else:
            self._shown.update(page)


class _TextScreen:
    """A line of text on standard error that replaces itself on a terminal."""

    def draw(self, share: float, text: str, notes: list[str]) -> None:
        is_end = ": done" in text or ": stopped" in text
        end = "\n" if is_end or not sys.stderr.isatty() else ""
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        filled = round(20 * share)
        sys.stderr.write(f"{start}[{'=' * filled}{' ' * (20 - filled)}] {text}{end}")
        if is_end:
            sys.stderr.write("".join(f"note: {note}\n" for note in notes))
        sys.stderr.flush()
