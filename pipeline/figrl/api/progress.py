"""The progress of a call: in a notebook by itself, elsewhere where it is asked for."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from figrl.api.words import python_words
from figrl.engine.progress import Progress, View
from figrl.engine.screens import Bar, Screen, text_screen
from figrl.engine.stage import Monitor, Silent

_REDRAW_SECONDS = 0.2


@contextmanager
def showing(progress: bool | None, call: str) -> Iterator[Monitor]:
    """Show the progress of a call: if it is asked for, or by default in a notebook."""
    wanted = in_notebook() if progress is None else progress
    if not wanted:
        yield Silent()
        return
    screen: Screen = NotebookScreen() if in_notebook() else text_screen(says_end=True)
    bar = Bar(Progress(call), screen, worded=python_words)
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


class NotebookScreen:
    """A bar of HTML that replaces itself; it takes no widgets."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._notes: list[str] = []
        self._drawn = 0.0

    def begin(self, view: Callable[[], View]) -> None:
        """Nothing: there is no bar before the first stage."""

    def changed(self, view: View) -> None:
        """Draw the bar, unless it was just drawn."""
        if time.monotonic() - self._drawn > _REDRAW_SECONDS:
            self._draw(view)

    def say(self, text: str) -> None:
        """Keep a line, which is shown below the bar."""
        self._notes.append(text)

    def end(self, view: View) -> None:
        """Draw the end."""
        self._draw(view)

    def _draw(self, view: View) -> None:
        from IPython.display import HTML, display

        self._drawn = time.monotonic()
        lines = "".join(f"<br/><small>{html.escape(note)}</small>" for note in self._notes)
        value = "" if view.share is None else f"value='{view.share:.3f}' "
        bar = f"<progress {value}max='1' style='width:20em'></progress>"
        page = HTML(f"<div>{bar} {html.escape(view.text)}{lines}</div>")
        if self._shown is None:
            self._shown = display(page, display_id=True)
        else:
            self._shown.update(page)
