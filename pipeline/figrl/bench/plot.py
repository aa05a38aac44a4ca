"""Plots the report of a benchmark."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from figrl.bench.options import MEASURES
from figrl.errors import ConfigError
from figrl.store.files import atomic_write

_REACHED, _MISSED = "#2a7f62", "#c8553d"
_PANELS_IN_ROW, _MARKERS = 3, "osD^vPX"


def plot_report(report: dict[str, Any], path: Path) -> None:
    """Plot a report of ``figrl bench --json`` to a .png, .svg or .pdf.

    It shows quality against seconds, and values relative to their goals: bars beyond 1 reach them.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'figrl[bench]'.") from error
    bars = [*map(_comparison_bar, report["lines"]), *map(_metric_bar, report["figures"])]
    panels = _score_panels(report.get("scores", []))
    rows = -(-len(panels) // _PANELS_IN_ROW)
    heights = {"scores": 3.4 * rows} if rows else {}
    heights |= {"bars": 1.2 + 0.42 * len(bars)} if bars else {}
    figure = Figure(figsize=(11, sum(heights.values())), layout="constrained")
    grid = figure.add_gridspec(len(heights), height_ratios=list(heights.values()))
    for place, panel in enumerate(heights):
        part = figure.add_subfigure(grid[place])
        if panel == "scores":
            _plot_scores(part, panels, rows)
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


def _score_panels(scores: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Points by the title of their panel: a graph, and a measure of each use of its vectors."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for measure, score in product(MEASURES, scores):
        if measure in score["measures"]:
            options = ", options" if score["part"] == "options" else ""
            point = {"name": score["method"], "seconds": score["seconds"]}
            point["quality"] = score["measures"][measure]
            panels.setdefault(f"{score['graph']}: {measure}{options}", []).append(point)
    return panels


def _plot_scores(figure: Any, panels: dict[str, list[dict[str, Any]]], rows: int) -> None:
    """Plot quality against seconds; a method has the same marker in all panels."""
    names = list(dict.fromkeys(point["name"] for points in panels.values() for point in points))
    for place, axes in enumerate(figure.subplots(rows, _PANELS_IN_ROW, squeeze=False).flat):
        axes.set_visible(place < len(panels))
    for axes, (title, points) in zip(figure.axes, panels.items(), strict=False):
        for point in points:
            ours, place = point["name"].startswith("figrl"), names.index(point["name"])
            marker = "*" if ours else _MARKERS[place % len(_MARKERS)]
            look = {"marker": marker, "markersize": 13 if ours else 6, "color": f"C{place % 10}"}
            at = max(point["seconds"], 1e-3), point["quality"]
            axes.plot(*at, linestyle="none", label=point["name"], **look)
        axes.set_xscale("log")
        axes.margins(x=0.1, y=0.12)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("seconds", fontsize=8)
        axes.set_ylabel(title.partition(": ")[2], fontsize=8)
        axes.tick_params(labelsize=7)
    handles = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    style = {"loc": "outside lower center", "ncols": 4, "fontsize": 8}
    figure.figure.legend(handles.values(), handles.keys(), **style)


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
