"""Running time by sketch size, beside the paper's, its rivals and other libraries."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from figrl.store.files import delete
from figrl.store.layout import store_paths
from figrl.study import paper
from figrl.study.experiment import Experiment, Key, Result, Results
from figrl.study.figures import Axes, Curve, curves
from figrl.study.page import Cell, Picture, Section, Table
from figrl.study.parts.rivals import TIMEOUT_SECONDS, rival_dim
from figrl.study.peers import METHODS, PEERS, RIVALS, SkippedError, run_peer

_LARGE_NODES = 100_000


class Timing(Experiment):
    """Every graph with every sketch size, with the default preset, with every rival and peer."""

    name = "timing"
    title = "Running time"

    def keys(self) -> list[Key]:
        """Graph; sketch size, preset, rival or peer."""
        others = list(PEERS)[:1] if self.study.quick else [*RIVALS, *PEERS]
        found: list[Key] = []
        for name in self._names():
            found += [(name, "d", size) for size in paper.SKETCH_SIZES]
            found.append((name, "accurate"))
            found += [(name, other) for other in others]
        return found

    def _names(self) -> list[str]:
        return self.graphs[1:2] if self.study.quick else self.graphs

    def measure(self, name: str, method: str, size: int | None = None) -> Result:
        """Seconds of an embedding on a running cluster: the least of a few; or of a peer."""
        graph = self.study.graph(name)
        dim = rival_dim(graph.nodes)
        if method in METHODS:
            # In a process of its own; its second call is measured.
            try:
                with tempfile.NamedTemporaryFile(suffix=".npy") as out:
                    found = run_peer(method, str(graph.store), dim, out.name, TIMEOUT_SECONDS)
            except SkippedError as skipped:
                return {"skipped": str(skipped)}
            return {"seconds": found.seconds}
        options: dict[str, Any] = {"preset": method, "dim": dim}
        if size is not None:
            options = {"preset": "paper", "sketch_size": size, "dim": min(dim, size)}
        seconds = []
        for seed in range(1 if graph.nodes > _LARGE_NODES else 3):
            # Blocks left over from an interrupted study would be reused.
            delete(store_paths(graph.store).runs)
            started = time.perf_counter()
            self.study.embed(graph, **options, seed=seed)
            seconds.append(time.perf_counter() - started)
        return {"seconds": min(seconds)}

    def section(self, results: Results) -> Section:
        """Seconds by graph and method, and how they grow with the sketch size."""
        names = self._names()
        rows: list[list[Cell]] = []
        for size in paper.SKETCH_SIZES:
            ours = [results[name, "d", size]["seconds"] for name in names]
            rows.append([f"figrl, preset paper, d = {size}", *ours])
            rows.append([f"paper's machine, d = {size}", *_printed(size, names)])
        default = [results[name, "accurate"]["seconds"] for name in names]
        rows.append(["figrl, default preset", *default])
        for method in (*RIVALS, *PEERS):
            found = [results.get((name, method), {}) for name in names]
            cells = [one.get("seconds", one.get("skipped")) for one in found]
            if any(cell is not None for cell in cells):
                rows.append([method, *cells])
            if method in paper.TIMED:
                rows.append([f"paper's machine, {method}", *_printed(method, names)])
        shown = [name for name in names if self.study.graph(name).nodes > 1000] or names
        sizes = paper.SKETCH_SIZES
        lines = {
            name: Curve(sizes, [results[name, "d", size]["seconds"] for size in sizes])
            for name in shown
        }
        title = "Seconds by sketch size"
        svg = curves(lines, Axes(title, "sketch columns d", "seconds", log_x=True, log_y=True))
        caption = (
            "Time grows with the sketch size, and slower than in proportion where reading the "
            "graph and starting the job are most of it."
        )
        tables = [Table(self.name, "Seconds", ("method", *names), rows), printed_table()]
        return Section(self.name, self.title, _TEXT, tables, [Picture(svg, caption)])


def _printed(method: int | str, names: Sequence[str]) -> list[Cell]:
    """Seconds that the paper prints."""
    found = (paper.SECONDS[name][method] for name in names)
    return [seconds if math.isfinite(seconds) else "more than 10 h" for seconds in found]


def printed_table() -> Table:
    """The paper's own table, with the graph on which nothing is measured."""
    names = tuple(paper.SECONDS)
    rows: list[list[Cell]] = []
    for method in paper.TIMED:
        shown = f"FI-GRL, d = {method}" if method in paper.SKETCH_SIZES else str(method)
        rows.append([shown, *_printed(method, names)])
    caption = "Seconds as printed in the paper, all graphs"
    return Table("timing-paper", caption, ("method", *names), rows, folded=True)


_TEXT = (
    "Seconds from the stored graph to the stored vectors, on a running cluster; k = 100, or half "
    "the nodes. The paper's column was measured on another machine, in memory: only its growth can "
    "be compared. Below a second, figrl's time is that of starting a job, of its locks and of its "
    "block marks.",
    "The paper's rivals and other libraries ran in the same run on the same machine, each in a "
    f"process of its own and stopped after {TIMEOUT_SECONDS:.0f} s; their second call is measured. "
    "The paper prints no running time of LINE. The settings of the rivals are in the part on "
    "clustering; fastnode2vec, as a library, has fewer and shorter walks than node2vec.",
)
