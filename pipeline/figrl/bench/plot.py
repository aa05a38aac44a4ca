"""Plots the report of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from figrl.errors import ConfigError
from figrl.store.files import atomic_write

_REACHED, _MISSED = "#2a7f62", "#c8553d"


def plot_report(report: dict[str, Any], path: Path) -> None:
    """Plot a report of ``figrl bench --json`` to a .png, .svg or .pdf.

    It shows quality against seconds, and values relative to their goals: bars beyond 1 reach them.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'figrl[bench]'.") from error
    bars = [*map(_comparison_bar, report["lines"]), *map(_metric_bar, report["figures"])]
    scores = [score for score in report.get("scores", []) if score["skipped"] is None]
    rows = (len({score["graph"] for score in scores}) + 2) // 3
    heights = {"scores": 3.4 * rows} if rows else {}
    heights |= {"bars": 1.2 + 0.42 * len(bars)} if bars else {}
    figure = Figure(figsize=(11, sum(heights.values())), layout="constrained")
    grid = figure.add_gridspec(len(heights), height_ratios=list(heights.values()))
    for place, panel in enumerate(heights):
        part = figure.add_subfigure(grid[place])
        if panel == "scores":
            _plot_scores(part, scores, rows)
        else:
            _plot_bars(part.subplots(), bars)
    with atomic_write(path) as aside:
        figure.savefig(aside, format=path.suffix.lstrip(".") or "png", dpi=120)


def _plot_bars(axes: Any, bars: list[tuple[str, float, str]]) -> None:
    """Plot each value relative to its goal."""
    places = range(len(bars), 0, -1)
    shares = [share for _, share, _ in bars]
    colours = [_REACHED if share >= 1 else _MISSED for share in shares]
    axes.barh(places, [share - 1 for share in shares], left=1, color=colours, height=0.6)
    style = {"textcoords": "offset points", "va": "center", "fontsize": 8}
    for place, (_, share, text) in zip(places, bars, strict=True):
        offset, side = (5, "left") if share >= 1 else (-5, "right")
        axes.annotate(text, (share, place), xytext=(offset, 0), ha=side, **style)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(min(*shares, 1) / 2.5, max(*shares, 1) * 2.5)
    axes.set_yticks(list(places), [name for name, _, _ in bars], fontsize=8)
    label = "measured, as a share of the goal (1 = the goal; green reaches it, red does not)"
    axes.set(xlabel=label, title="figrl bench")


def _plot_scores(figure: Any, scores: list[dict[str, Any]], rows: int) -> None:
    """Plot quality against seconds, in one panel for each graph."""
    graphs = list(dict.fromkeys(score["graph"] for score in scores))
    panels = figure.subplots(rows, 3, squeeze=False).flat
    for axes in panels:
        axes.set_visible(False)
    for axes, graph in zip(figure.axes, graphs, strict=False):
        axes.set_visible(True)
        of_graph = [score for score in scores if score["graph"] == graph]
        labelled = of_graph[0]["nmi"] is not None
        style = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 7}
        for score in of_graph:
            ours = score["method"] == "figrl"
            at = max(score["seconds"], 1e-3), score["nmi" if labelled else "modularity"]
            axes.plot(*at, "o", color=_REACHED if ours else "#888888")
            weight = "bold" if ours else "normal"
            axes.annotate(score["method"], at, fontweight=weight, **style)
        axes.set_xscale("log")
        axes.margins(x=0.25, y=0.12)
        axes.set_title(graph, fontsize=9)
        axes.set_xlabel("seconds", fontsize=8)
        axes.set_ylabel("NMI with labels" if labelled else "modularity", fontsize=8)
        axes.tick_params(labelsize=7)


def _comparison_bar(comparison: dict[str, Any]) -> tuple[str, float, str]:
    speedup, goal = comparison["speedup"], comparison["wanted"]
    name = f"{comparison['what']}\nagainst {comparison['other']}"
    return name, speedup / goal, f"{speedup:.3g} x, goal {goal:.3g} x"


def _metric_bar(metric: dict[str, Any]) -> tuple[str, float, str]:
    value, limit = metric["value"], metric["limit"]
    share = value / limit if metric["at_least"] else limit / max(value, 1e-3)
    bound = "at least" if metric["at_least"] else "at most"
    text = f"{value:.3g} {metric['unit']}".rstrip()
    return metric["what"], share, f"{text}, {bound} {limit:.3g}"
