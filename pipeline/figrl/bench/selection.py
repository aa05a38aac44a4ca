"""Which graphs, methods and measures a run is restricted to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from figrl.bench.methods import Method
from figrl.bench.problems import MEASURES, Case, Problem, make_problems

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Selection:
    """What to run, by names; where none is given, all.

    A method that takes more than `timeout_seconds` is skipped. `notify` is called with lines on the
    progress.
    """

    data: Path
    graphs: Collection[str] = ()
    methods: Collection[str] = ()
    measures: Collection[str] = ()
    timeout_seconds: float = TIMEOUT_SECONDS
    notify: Callable[[str], None] = lambda text: None

    @property
    def wanted(self) -> Collection[str]:
        """Names of the measures."""
        return self.measures or tuple(MEASURES)

    def problems(self, cases: Sequence[Case]) -> Iterator[Problem]:
        """Problems of the graphs; one that the data folder does not have is left out."""
        for case in (case for case in cases if not self.graphs or case.graph in self.graphs):
            try:
                for problem in make_problems(self.data, case, self.wanted):
                    self.notify(f"  {problem.graph}, {problem.learnt}")
                    yield problem
            except FileNotFoundError as error:
                self.notify(f"  {case.graph} is skipped: {error.filename} is not there")

    def choose(self, methods: Sequence[Method]) -> list[Method]:
        """Methods of those given."""
        return [method for method in methods if not self.methods or method.name in self.methods]

    def keep(self, measures: dict[str, float]) -> dict[str, float]:
        """Measures that are wanted, of those that were computed together."""
        return {name: value for name, value in measures.items() if name in self.wanted}
