"""The lines and figures of a benchmark as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.files import written_aside

_REACHED, _MISSED = "#2a7f62", "#c8553d"


def plot_report(report: dict[str, Any], path: Path) -> None:
    """Draw quality against seconds, and how far goals are reached: bars right of 1 are beyond them.

    Parameters
    ----------
    report : dict
        What ``figrl bench --json`` prints.
    path : Path
        A file that ends in .png, .svg or .pdf.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'figrl[bench]'.") from error
    bars = [*map(_of_line, report["lines"]), *map(_of_figure, report["figures"])]
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
    with written_aside(path) as aside:
        figure.savefig(aside, format=path.suffix.lstrip(".") or "png", dpi=120)


def _plot_bars(axes: Any, bars: list[tuple[str, float, str]]) -> None:
    """How far each goal is reached or missed."""
    places = range(len(bars), 0, -1)
    shares = [share for _, share, _ in bars]
    colours = [_REACHED if share >= 1 else _MISSED for share in shares]
    axes.barh(places, [share - 1 for share in shares], left=1, color=colours, height=0.6)
    for place, (_, share, text) in zip(places, bars, strict=True):
        axes.annotate(
            text,
            (share, place),
            xytext=(5 if share >= 1 else -5, 0),
            textcoords="offset points",
            va="center",
            ha="left" if share >= 1 else "right",
            fontsize=8,
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(min(*shares, 1) / 2.5, max(*shares, 1) * 2.5)
    axes.set_yticks(list(places), [name for name, _, _ in bars], fontsize=8)
    axes.set_xlabel(
        "measured, as a share of the goal (1 = the goal; green reaches it, red does not)"
    )
    axes.set_title("figrl bench")


def _plot_scores(figure: Any, scores: list[dict[str, Any]], rows: int) -> None:
    """Quality against seconds, a panel for each graph."""
    graphs = list(dict.fromkeys(score["graph"] for score in scores))
    panels = figure.subplots(rows, 3, squeeze=False).flat
    for axes in panels:
        axes.set_visible(False)
    for axes, graph in zip(figure.axes, graphs, strict=False):
        axes.set_visible(True)
        of_graph = [score for score in scores if score["graph"] == graph]
        labelled = of_graph[0]["nmi"] is not None
        for score in of_graph:
            ours = score["method"] == "figrl"
            quality = score["nmi"] if labelled else score["modularity"]
            seconds = max(score["seconds"], 1e-3)
            axes.plot(seconds, quality, "o", color=_REACHED if ours else "#888888")
            axes.annotate(
                score["method"],
                (seconds, quality),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=7,
                fontweight="bold" if ours else "normal",
            )
        axes.set_xscale("log")
        axes.margins(x=0.25, y=0.12)
        axes.set_title(graph, fontsize=9)
        axes.set_xlabel("seconds", fontsize=8)
        axes.set_ylabel("NMI with labels" if labelled else "modularity", fontsize=8)
        axes.tick_params(labelsize=7)


def _of_line(line: dict[str, Any]) -> tuple[str, float, str]:
    name = f"{line['what']}\nagainst {line['other']}"
    text = f"{line['speedup']:.3g} x, goal {line['wanted']:.3g} x"
    return name, line["speedup"] / line["wanted"], text


def _of_figure(figure: dict[str, Any]) -> tuple[str, float, str]:
    value, limit = figure["value"], figure["limit"]
    share = value / limit if figure["at_least"] else limit / max(value, 1e-3)
    bound = "at least" if figure["at_least"] else "at most"
    return (
        figure["what"],
        share,
        f"{value:.3g} {figure['unit']}".rstrip() + f", {bound} {limit:.3g}",
    )
