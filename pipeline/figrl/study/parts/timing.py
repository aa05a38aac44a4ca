"""Running time by sketch size, beside the paper's, and beside other libraries in the same run."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from figrl.store.files import delete
from figrl.store.layout import store_paths
from figrl.study import paper
from figrl.study.experiment import Experiment, Key, Result, Results
from figrl.study.figures import Axes, Curve, curves
from figrl.study.page import Cell, Picture, Section, Table
from figrl.study.peers import PEERS, SkippedError, run_peer

_DIM = 100
_TIMEOUT_SECONDS = 120.0
_LARGE_NODES = 100_000


class Timing(Experiment):
    """Every graph with every sketch size, with the default preset, and with every peer."""

    name = "timing"
    title = "Running time"

    def keys(self) -> list[Key]:
        """Graph; sketch size, preset or peer."""
        peers = list(PEERS)[:1] if self.study.quick else list(PEERS)
        found: list[Key] = []
        for name in self._names():
            found += [(name, "d", size) for size in paper.SKETCH_SIZES]
            found.append((name, "accurate"))
            found += [(name, peer) for peer in peers]
        return found

    def _names(self) -> list[str]:
        return self.graphs[1:2] if self.study.quick else self.graphs

    def measure(self, name: str, method: str, size: int | None = None) -> Result:
        """Seconds of an embedding on a running cluster: the least of a few; or of a peer."""
        graph = self.study.graph(name)
        dim = min(_DIM, graph.nodes // 2)
        if method in PEERS:
            # In a process of its own; its second call is measured.
            try:
                with tempfile.NamedTemporaryFile(suffix=".npy") as out:
                    found = run_peer(method, str(graph.store), dim, out.name, _TIMEOUT_SECONDS)
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
            theirs = [paper.SECONDS[name][size] for name in names]
            rows.append([f"paper's machine, d = {size}", *theirs])
        default = [results[name, "accurate"]["seconds"] for name in names]
        rows.append(["figrl, default preset", *default])
        for peer in PEERS:
            found = [results.get((name, peer), {}) for name in names]
            cells = [one.get("seconds", one.get("skipped")) for one in found]
            if any(cell is not None for cell in cells):
                rows.append([peer, *cells])
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
        table = Table(self.name, "Seconds", ("method", *names), rows)
        return Section(self.name, self.title, _TEXT, [table], [Picture(svg, caption)])


_TEXT = (
    "Seconds from the stored graph to the stored vectors, on a running cluster; k = 100, or half "
    "the nodes. The paper's column was measured on another machine, in memory: only its growth can "
    "be compared. Below a second, figrl's time is that of starting a job, of its locks and of its "
    "block marks.",
    "The other libraries ran in the same run on the same machine, each in a process of its own and "
    f"stopped after {_TIMEOUT_SECONDS:.0f} s; their second call is measured. The paper's node2vec "
    "takes 75 s on ca-HepTh and more than ten hours on com-dblp.",
)
