"""The progress of a whole job: the share that is done, the time left, the stage in plain words.

`figrl.engine.screens` shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from figrl.engine.stage import StageResult
from figrl.units import human_seconds

WORDS = {
    "write": "writing the partitions of the frame",
    "scan": "reading edges",
    "rescan": "reading edges again, ids as text",
    "ranges": "collecting ids",
    "ids-regroup": "collecting ids",
    "ids": "sorting ids",
    "places-regroup": "sorting ids",
    "relabel": "turning ids into rows",
    "edges-regroup": "gathering edges",
    "build": "storing the graph",
    "embed": "learning vectors",
    "sketch": "multiplying with the graph",
    "factor": "decomposing the sketch",
    "factor-solve": "solving for eigenvectors",
    "norm": "measuring the accuracy",
    "vectors": "writing vectors",
    "smooth": "smoothing",
    "smooth-mix": "smoothing: means of the neighbours",
    "smooth-gram": "evening out the dimensions",
    "smooth-balance": "evening out the dimensions",
    "embedding": "storing vectors",
    "align": "comparing with the last run",
    "align-solve": "finding the rotation",
    "rotate": "rotating onto the last run",
    "sample": "checking a sample",
    "check": "checking the run",
    "recall": "checking neighbours",
    "map": "drawing a map",
    "index": "building the index",
    "match": "finding known nodes",
    "weigh": "weighing the new edges",
    "fold": "computing vectors of new nodes",
    "overlay": "storing vectors of new nodes",
    "export": "writing Parquet",
    "export-overlay": "writing Parquet: nodes folded in",
    "join": "joining the files",
    "centers": "finding clusters",
    "labels": "labelling nodes",
    "lists": "reading neighbours",
    "scores": "scoring nodes",
    "highest": "collecting the best",
}
"""What a person reads in place of a stage's name."""

Steps = tuple[tuple[str, float], ...]

_INGEST: Steps = (("scan", 3), ("ranges", 0.1), ("ids", 0.3), ("relabel", 2), ("build", 4))
_EMBED: Steps = (("embed", 12),)
_EXPORT: Steps = (("export", 1), ("join", 0.5))
_FOLD: Steps = (("match", 0.3), ("weigh", 0.5), ("fold", 2))
_ALIGN: Steps = (("align", 1), ("align-solve", 0.1), ("rotate", 1))
_CHECK: Steps = (("sample", 0.2), ("check", 2), ("recall", 1), ("map", 0.1))

JOBS: dict[str, dict[str, Steps]] = {
    "ingest": {"ingest": _INGEST},
    "embed": {"embed": _EMBED},
    "ingest and embed": {"ingest": _INGEST, "embed": _EMBED},
    "edges to vectors": {"ingest": _INGEST, "embed": _EMBED, "export": _EXPORT},
    "export": {"export": _EXPORT},
    "fold-in": {"ingest": _INGEST, "fold": (*_FOLD, ("join", 0.1))},
    "cluster": {"cluster": (("centers", 3), ("labels", 1))},
    "reindex": {"ingest": _INGEST, "embed": _EMBED, "publish": (*_ALIGN, *_CHECK, ("index", 1))},
    "demo": {"ingest": _INGEST, "embed": _EMBED, "fold": tuple((n, 0.2) for n, _ in _FOLD)},
}
"""Parts of each job, and the stages of each part with what they usually take beside each other.

The part ``embed`` is replaced by the stages and seconds of the plan, as soon as there is one.
"""

_TRUST_IN_PLAN = 0.15
"""Share of the planned seconds that has to be measured before the measurement counts half."""

_LEAST_SHARE = 0.03
"""Without a plan, no time is given before this share is measured."""


@dataclass
class _Step:
    part: str
    name: str
    weight: float


@dataclass(frozen=True)
class View:
    """What is shown: `share` of the job that is done and seconds `left`, if they are known."""

    job: str
    share: float | None
    left: float | None
    words: str
    seconds: float
    state: str = ""

    @property
    def percent(self) -> str:
        """Share that is done."""
        return "" if self.share is None else f"{self.share:.0%}"

    @property
    def time_left(self) -> str:
        """Time left, as exact as it can be known."""
        if self.left is None:
            return ""
        if self.left < 60:
            return f"{5 * round(self.left / 5)} s left" if self.left >= 8 else "seconds left"
        minutes = round(self.left / 60)
        return f"{minutes} min left" if minutes < 90 else f"{minutes / 60:.1f} h left"

    @property
    def text(self) -> str:
        """All of it in one line."""
        if self.state:
            return f"{self.job}: {self.state} in {human_seconds(self.seconds)}"
        return f"{self.job}: {', '.join(filter(None, (self.percent, self.time_left, self.words)))}"


class Progress:
    """How much of a job is done, by the plan's seconds where there is one, and how long it takes.

    Planned seconds are corrected by those that the stages before took. Stages that were done by an
    earlier attempt count as done, but say nothing of the speed.
    """

    def __init__(self, job: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.job, self._clock, self._began = job, clock, clock()
        parts = JOBS.get(job.replace("_", "-"), {})
        self._steps = [_Step(part, *step) for part, steps in parts.items() for step in steps]
        self._at, self._running, self._words = 0, False, "starting"
        self._step_began = self._heard = self._began
        self._blocks, self._inside, self._reused = 1, 0.0, 0.0
        self._planned = self._worked = self._spent = 0.0
        self._highest = 0.0

    def planned(self, stages: Sequence[tuple[str, float]]) -> None:
        """Stages of the part ``embed`` that comes next, with predicted seconds."""
        places = [i for i, step in enumerate(self._steps) if step.part == "embed"]
        if not places:
            return
        first, stop = places[0], places[-1] + 1
        usual = sum(step.weight for step in self._steps[first:stop])
        self._planned = sum(seconds for _, seconds in stages)
        scale = self._planned / usual
        measured = self._spent / self._worked if self._worked else scale
        before = [replace(s, weight=s.weight * measured) for s in self._steps[:first]]
        after = [replace(s, weight=s.weight * scale) for s in self._steps[stop:]]
        new = [_Step("embed", name, seconds) for name, seconds in stages]
        self._steps, self._at = [*before, *new, *after], first
        self._running, self._worked, self._spent = False, 0.0, 0.0

    def started(self, result: StageResult) -> None:
        """A stage begins; one that is not expected counts as a part of the one before."""
        later = range(self._at, len(self._steps))
        place = next((i for i in later if self._steps[i].name == result.name), None)
        self._running = place is not None
        self._words = WORDS.get(result.name, result.name.replace("-", " "))
        self._step_began = self._heard = self._clock()
        self._blocks = max(result.blocks, 1)
        self._inside = self._reused = result.reused / self._blocks
        if place is not None:
            self._at = place
            same = [i for i, step in enumerate(self._steps) if step.name == result.name]
            same = [i for i in same if self._steps[i].part == self._steps[place].part]
            if len(same) > 1:
                self._words += f", {same.index(place) + 1} of {len(same)}"

    def advanced(self, result: StageResult) -> None:
        """One more block is done."""
        self._inside, self._heard = len(result.stats) / self._blocks, self._clock()

    def finished(self, result: StageResult) -> None:
        """The stage is complete."""
        if not self._running:
            return
        self._worked += self._steps[self._at].weight * (1 - self._reused)
        self._spent += self._clock() - self._step_began if self._reused < 1 else 0.0
        self._at, self._running, self._inside = self._at + 1, False, 0.0

    def view(self, state: str = "") -> View:
        """Where the job is now."""
        seconds = self._clock() - self._began
        total = sum(step.weight for step in self._steps)
        if state == "done" or not total:
            return View(self.job, 1.0 if state else None, None, self._words, seconds, state)
        done = sum(step.weight for step in self._steps[: self._at])
        slowness = self._slowness(total)
        if self._running:
            done += self._steps[self._at].weight * self._share_inside(slowness)
        left = None if slowness is None else slowness * (total - done)
        self._highest = max(self._highest, min(done / total, 0.99))
        return View(self.job, self._highest, left, self._words, seconds, state)

    def _slowness(self, total: float) -> float | None:
        """Seconds for each unit of weight; None if too little is known."""
        worked, spent = self._worked, self._spent
        if self._running and self._inside > self._reused:
            worked += self._steps[self._at].weight * (self._inside - self._reused)
            spent += self._heard - self._step_began
        trust = _TRUST_IN_PLAN * self._planned
        if not trust and worked < _LEAST_SHARE * total:
            return None
        found = (trust + spent) / (trust + worked)
        if self._running and self._inside == self._reused:
            # A stage that takes longer than it should takes at least what it took.
            weight = self._steps[self._at].weight * (1 - self._reused)
            found = max(found, (self._clock() - self._step_began) / max(weight, 1e-9))
        return found

    def _share_inside(self, slowness: float | None) -> float:
        """Share of the stage: its blocks, and a guess of those that are at work."""
        if slowness is None:
            return self._inside
        expected = slowness * self._steps[self._at].weight / self._blocks
        guess = (self._clock() - self._heard) / max(expected, 1e-9) / self._blocks
        return min(self._inside + min(guess, 0.95 / self._blocks), 1.0)
