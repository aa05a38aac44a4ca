"""What has to be in a store, as a dictionary knows it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Run:
    """What the model knows of a run."""

    graph: int
    options: int
    kept: frozenset[int] = frozenset()
    """Arrivals whose edges are kept with it."""

    served: frozenset[int] = frozenset()
    """Arrivals whose nodes are served with it."""

    pinned: bool = False
    night: bool = False
    """Whether a job that publishes through gates has learnt it."""


@dataclass
class Model:
    """What is in a store."""

    latest: int | None = None
    current: str | None = None
    published: list[str] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    by_reindex: bool = False
    """Whether the history has a publication by reindex."""

    @property
    def gated(self) -> bool:
        """Whether runs are published through gates only."""
        return self.by_reindex or (self.current is not None and self.runs[self.current].night)

    def publish(self, name: str) -> None:
        """Make a run the published one."""
        if self.current not in (None, name):
            self.runs[name].kept |= self.runs[self.current or ""].kept
        self.current = name
        self.note_published()

    def note_published(self) -> None:
        """Record what is published, unless it is recorded."""
        if self.current is not None and self.published[-1:] != [self.current]:
            self.published.append(self.current)

    def learn(self, name: str, run: Run) -> None:
        """Add a run, unless it is there."""
        self.runs.setdefault(name, run)

    def publish_by_night(self, name: str, run: Run, keep: int, read: str | None) -> None:
        """Learn a run, publish it through gates, serve with it what was served before, retire."""
        self.note_published()
        last = None if self.current is None else self.runs[self.current]
        self.learn(name, run)
        new = self.runs[name]
        if last is not None and last.kept:
            new.kept |= last.kept
            new.served = new.kept
        self.latest = run.graph
        self.publish(name)
        self.retire(keep, read)

    def retire(self, keep: int, read: str | None) -> None:
        """Forget all but the last publications, and what is pinned, published or being read."""
        last = [run for run in dict.fromkeys(reversed(self.published)) if run in self.runs]
        kept = {*last[:keep], self.current, read}
        self.runs = {name: run for name, run in self.runs.items() if name in kept or run.pinned}


def check_between(before: Model, found: Model, after: Model) -> None:
    """Check what a job left that did not come to its end."""
    assert found.latest in (before.latest, after.latest)
    assert found.current in (before.current, after.current)
    assert found.by_reindex in (before.by_reindex, after.by_reindex)
    there, wanted = len(before.published), len(found.published)
    assert found.published[:there] == before.published
    assert found.published == after.published[:wanted]
    assert before.runs.keys() & after.runs.keys() <= found.runs.keys()
    assert found.runs.keys() <= before.runs.keys() | after.runs.keys()
    for name, run in found.runs.items():
        old, new = before.runs.get(name, run), after.runs.get(name, run)
        assert (run.graph, run.options) in ((old.graph, old.options), (new.graph, new.options))
        assert old.kept <= run.kept <= new.kept
        assert run.served in (old.served, new.served)
        assert run.pinned in (old.pinned, new.pinned)
        assert run.night in (old.night, new.night)
