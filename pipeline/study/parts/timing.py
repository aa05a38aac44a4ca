"""Running time by sketch size, beside the paper's, and beside other libraries in the same run."""

from __future__ import annotations

import tempfile
import time

from pipeline.errors import FigrlError
from pipeline.files import remove
from pipeline.store import store_paths
from pipeline.study import paper
from pipeline.study.bench.peers import PEERS, is_installed
from pipeline.study.bench.process import TookTooLongError, run_within
from pipeline.study.figures import Curve, curves
from pipeline.study.page import Cell, Picture, Section, Table
from pipeline.study.workbench import Item, Result, Workbench

_DIM = 100
_AT_MOST = 120.0
_LARGE_NODES = 100_000


def items(bench: Workbench) -> list[Item]:
    """Every graph with every sketch size, with the default preset, and with every peer."""
    names = bench.graphs[1:2] if bench.quick else bench.graphs
    peers = list(PEERS)[:1] if bench.quick else list(PEERS)
    found = []
    for name in names:
        found += [
            Item(f"{name}-d-{size}", measure, (bench, name, size)) for size in paper.SKETCH_SIZES
        ]
        found.append(Item(f"{name}-accurate", measure, (bench, name, None)))
        found += [Item(f"{name}-{_key(peer)}", other, (bench, name, peer)) for peer in peers]
    return found


def _key(peer: str) -> str:
    return peer.replace(" ", "-")


def dimension(nodes: int) -> int:
    """Length of vectors: the paper's 100, or half the nodes of a small graph."""
    return min(_DIM, nodes // 2)


def measure(bench: Workbench, name: str, size: int | None) -> Result:
    """Seconds of an embedding on a cluster that runs already: the least of a few."""
    study = bench.graph(name)
    dim = dimension(study.graph.nodes)
    options = {"preset": "accurate", "dim": dim}
    if size is not None:
        options = {"preset": "paper", "sketch_size": size, "dim": min(dim, size)}
    took = []
    for seed in range(1 if study.graph.nodes > _LARGE_NODES else 3):
        # What is left of a study that was stopped would make it look fast.
        remove(store_paths(study.store).runs)
        started = time.perf_counter()
        bench.embed(study, **options, seed=seed)
        took.append(time.perf_counter() - started)
    return {"seconds": min(took)}


def other(bench: Workbench, name: str, peer: str) -> Result:
    """Seconds of another library, in a process of its own; its second call."""
    if not is_installed(peer):
        return {"skipped": f"{PEERS[peer].module} is not installed"}
    study = bench.graph(name)
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        try:
            measured = run_within(
                _AT_MOST,
                "pipeline.study.bench.peers:learn",
                name=peer,
                store=str(study.store),
                dim=dimension(study.graph.nodes),
                out=out.name,
            )
        except TookTooLongError:
            return {"skipped": f"more than {_AT_MOST:.0f} s"}
        except FigrlError as error:
            return {"skipped": str(error)}
    return {"seconds": measured.seconds}


def section(bench: Workbench, results: dict[str, Result]) -> Section:
    """One table by graph, and the growth with the sketch size."""
    names = [name for name in bench.graphs if f"{name}-accurate" in results]
    rows: list[list[Cell]] = []
    for size in paper.SKETCH_SIZES:
        ours = [results[f"{name}-d-{size}"]["seconds"] for name in names]
        theirs = [paper.SECONDS[name][size] for name in names]
        rows.append([f"figrl, preset paper, d = {size}", *ours])
        rows.append([f"paper's machine, d = {size}", *theirs])
    rows.append(["figrl, default preset", *(results[f"{n}-accurate"]["seconds"] for n in names)])
    for peer in PEERS:
        found = [results.get(f"{name}-{_key(peer)}", {}) for name in names]
        cells = [one.get("seconds", one.get("skipped")) for one in found]
        if any(cell is not None for cell in cells):
            rows.append([peer, *cells])
    shown = [name for name in names if bench.graph(name).graph.nodes > 1000]
    lines = {}
    for name in shown or names:
        figures = [results[f"{name}-d-{size}"]["seconds"] for size in paper.SKETCH_SIZES]
        lines[name] = Curve(paper.SKETCH_SIZES, figures)
    title = "Seconds by sketch size"
    return Section(
        "timing",
        "Running time",
        [
            "Seconds from the stored graph to the stored vectors, on a cluster that runs already; "
            "k = 100, or half the nodes. The paper's column was measured on another machine, in "
            "memory: only its growth can be compared. Below a second, figrl's time is that of "
            "starting a job, of its locks and of its marks.",
            "The other libraries ran in the same run on the same machine, each in a process of its "
            f"own and ended after {_AT_MOST:.0f} s; their second call is measured. The paper's "
            "node2vec takes 75 s on ca-HepTh and more than ten hours on com-dblp.",
        ],
        [Table("timing", "Seconds", ("method", *names), rows)],
        [
            Picture(
                curves(
                    lines, title=title, x="sketch columns d", y="seconds", log_x=True, log_y=True
                ),
                "Time grows with the sketch size, and slower than in proportion where reading "
                "the graph and starting the job are most of it.",
            )
        ],
    )
