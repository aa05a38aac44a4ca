"""Plots of a run, as SVG to be embedded in a page."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PALETTE = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
_INK, _GRID = "#333a45", "#d9dee6"


def svg(
    draw: Callable[[Any], None],
    *,
    title: str,
    x: str = "",
    y: str = "",
    height: float = 3.0,
    left: float = 0.13,
    bottom: float = 0.5,
    top: float = 0.12,
    projection: str | None = None,
) -> str:
    """Let `draw` fill axes (``projection="3d"``: in space), and return an SVG that scales.

    `height`, `bottom` and `top` are in inches, `left` is a share of the width.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "svg.hashsalt": "figrl",
    }
    with rc_context(style):
        # Fixed margins: a tight layout would draw all text several times.
        figure = Figure(figsize=(5.2, height))
        figure.subplots_adjust(left=left, right=0.98, bottom=bottom / height, top=1 - top / height)
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(projection=projection)
        axes.tick_params(colors=_INK, length=3)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(_GRID)
        axes.grid(color=_GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        draw(axes)
        if x or y:
            axes.set(xlabel=x, ylabel=y)
        text = io.StringIO()
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=no_metadata, transparent=True)
    picture = text.getvalue()
    picture = picture[picture.index("<svg") :]
    # Ids have to be unique on a page with several pictures.
    prefix = title.lower().replace(" ", "-")
    for before in (' id="', "url(#", 'href="#'):
        picture = picture.replace(before, f"{before}{prefix}-")
    head, _, rest = picture.partition(">")
    return f'{head} role="img" aria-label="{title}" style="width:100%;height:auto">{rest}'


def spectrum(values: Sequence[float], *, name: str) -> str:
    """Eigenvalues or singular values by dimension."""

    def draw(axes: Any) -> None:
        places, heights = np.arange(1, len(values) + 1), np.asarray(values)
        for sign, label, color in ((1, "positive", PALETTE[0]), (-1, "negative", PALETTE[2])):
            chosen = heights * sign > 0
            if chosen.any():
                axes.plot(places[chosen], np.abs(heights[chosen]), ".", color=color, label=label)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)

    return svg(draw, title=f"{name} by dimension", x="dimension", y=f"size of the {name}")


def degrees(counts: Sequence[int]) -> str:
    """Histogram of degrees, in bins of doubling width."""

    def draw(axes: Any) -> None:
        last = max((i for i, count in enumerate(counts) if count), default=0)
        places = np.arange(last + 1)
        axes.bar(places, counts[: last + 1], color=PALETTE[0])
        step = max(1, (last + 1) // 8)
        axes.set_xticks(places[::step], [f"{1 << int(p):,}" for p in places[::step]])
        axes.set_yscale("log")

    return svg(
        draw, title="Degree distribution", x="degree (sum of weights of edges), up to", y="nodes"
    )


def drift(counts: Sequence[int], mean: float, unaligned: float) -> str:
    """Histogram of the cosines between the vectors of two runs."""

    def draw(axes: Any) -> None:
        edges = np.linspace(-1, 1, len(counts) + 1)
        axes.stairs(counts, edges, fill=True, color=PALETTE[0], alpha=0.85, label="nodes, aligned")
        axes.axvline(mean, color=PALETTE[2], label=f"mean {mean:.3f}")
        axes.axvline(unaligned, color=_INK, linestyle=":", label=f"unaligned {unaligned:.3f}")
        axes.legend(frameon=False)

    x = "cosine between a node's vectors in the last run and this one"
    return svg(draw, title="Drift since the last run", x=x, y="nodes")
