"""One bar for a whole job: on a terminal, as the lines of a log, or in the cell of a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from figrl.engine.progress import Progress, View
from figrl.engine.stage import StageResult
from figrl.units import human_seconds

_REDRAW_SECONDS, _LINE_SECONDS = 0.2, 15.0


class Screen(Protocol):
    """Where the progress of a job is shown."""

    def begin(self, view: Callable[[], View]) -> None:
        """Start; `view` may be asked at any moment."""

    def changed(self, view: View) -> None:
        """Something happened."""

    def say(self, text: str) -> None:
        """Show a line of text that stays."""

    def end(self, view: View) -> None:
        """The job has ended."""


class Bar:
    """A monitor that shows one bar for the whole job; with `verbose`, a line for each stage too."""

    def __init__(
        self,
        progress: Progress,
        screen: Screen,
        *,
        worded: Callable[[str], str] = str,
        verbose: bool = False,
    ) -> None:
        self._progress, self._screen = progress, screen
        self._worded, self._verbose = worded, verbose
        screen.begin(progress.view)

    def planned(self, stages: Sequence[tuple[str, float]]) -> None:
        """Take over what a plan predicts."""
        self._progress.planned(stages)

    def started(self, result: StageResult) -> None:
        """Show a stage that begins."""
        self._progress.started(result)
        self._screen.changed(self._progress.view())

    def advanced(self, result: StageResult) -> None:
        """Show that a block is done."""
        self._progress.advanced(result)
        self._screen.changed(self._progress.view())

    def finished(self, result: StageResult) -> None:
        """Show that a stage is done."""
        self._progress.finished(result)
        if self._verbose:
            reused = f", {result.reused} of them done before" if result.reused else ""
            plural = "s" if result.blocks != 1 else ""
            took = human_seconds(result.seconds)
            self._screen.say(f"{result.name}: {result.blocks} block{plural} in {took}{reused}")
        self._screen.changed(self._progress.view())

    def note(self, text: str) -> None:
        """Show a message to the user."""
        self._screen.say(f"note: {self._worded(text)}")

    def end(self, state: str) -> None:
        """Show how the job ended: ``done`` or ``stopped``."""
        self._screen.end(self._progress.view(state))


class TerminalScreen:
    """A bar on a terminal that is gone when the job has ended; `says_end` leaves a line there."""

    def __init__(self, console: Console, *, says_end: bool) -> None:
        self._console, self._says_end = console, says_end
        self._live: Live | None = None

    def begin(self, view: Callable[[], View]) -> None:
        """Draw the bar, several times a second."""
        self._live = Live(
            console=self._console,
            get_renderable=lambda: self._row(view()),
            transient=True,
            refresh_per_second=1 / _REDRAW_SECONDS,
            redirect_stdout=False,
        )
        self._live.start()

    def _row(self, view: View) -> Table:
        row = Table.grid(padding=(0, 1), expand=False)
        for _ in range(4):
            row.add_column(no_wrap=True, overflow="ellipsis")
        pulse = view.share is None
        bar = ProgressBar(100.0, 100 * (view.share or 0.0), width=22, pulse=pulse)
        row.add_row(bar, f"{view.percent:>4}", view.time_left, view.words)
        return row

    def changed(self, view: View) -> None:
        """Nothing: the bar is drawn all the time."""

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def end(self, view: View) -> None:
        """Take the bar away."""
        if self._live is not None:
            self._live.stop()
        if self._says_end:
            self.say(view.text)


class LineScreen:
    """Few lines where there is no terminal: one every 15 seconds, and one at the end."""

    def __init__(self, console: Console, *, says_end: bool = True) -> None:
        self._console, self._printed = console, time.monotonic()
        self._says_end = says_end

    def begin(self, view: Callable[[], View]) -> None:
        """Nothing."""

    def changed(self, view: View) -> None:
        """Print a line, if the last was a while ago."""
        if time.monotonic() - self._printed >= _LINE_SECONDS:
            self._printed = time.monotonic()
            self.say(view.text)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def end(self, view: View) -> None:
        """Print how the job ended, and in how long unless the caller says that of a result."""
        is_told = view.state == "done" and not self._says_end
        self.say(f"{view.job}: {view.state}" if is_told else view.text)


def text_screen(*, says_end: bool = False) -> Screen:
    """The screen of standard error."""
    console = Console(stderr=True)
    if console.is_terminal:
        return TerminalScreen(console, says_end=says_end)
    return LineScreen(console, says_end=says_end)
