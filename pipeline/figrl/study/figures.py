"""Figures of the study, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figrl.serve.pictures import PALETTE, svg


@dataclass(frozen=True)
class Curve:
    """Means of samples, and their standard deviations, which are drawn as a band."""

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()

    @classmethod
    def of(cls, samples: Mapping[float, Sequence[float]]) -> Curve:
        """Summarise the samples at each `x`."""
        x = sorted(samples)
        means = [float(np.mean(samples[at])) for at in x]
        return cls(x, means, [float(np.std(samples[at])) for at in x])


@dataclass(frozen=True)
class Axes:
    """Title, labels and scales of a figure."""

    title: str
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


def curves(lines: Mapping[str, Curve], labels: Axes) -> str:
    """Plot curves with bands of one standard deviation."""

    def draw(axes: Any) -> None:
        for number, (name, curve) in enumerate(lines.items()):
            color = PALETTE[number % len(PALETTE)]
            axes.plot(curve.x, curve.y, "-", marker="o", markersize=3, color=color, label=name)
            if curve.spread:
                mean, spread = np.asarray(curve.y), np.asarray(curve.spread)
                low = np.maximum(mean - spread, mean / 10) if labels.log_y else mean - spread
                band = {"color": color, "alpha": 0.15, "linewidth": 0}
                axes.fill_between(curve.x, low, mean + spread, **band)

    return _with_legend(draw, list(lines), labels)


def bars(groups: Mapping[str, Mapping[str, float | None]], labels: Axes) -> str:
    """Plot groups of bars, one colour for each name."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    crowded = len(groups) > 3

    def draw(axes: Any) -> None:
        width = 0.8 / max(len(names), 1)
        for number, name in enumerate(names):
            places = np.arange(len(groups)) - 0.4 + width * (number + 0.5)
            heights = [group.get(name) or 0.0 for group in groups.values()]
            axes.bar(places, heights, width, color=PALETTE[number % len(PALETTE)], label=name)
        rotated = {"rotation": 20, "ha": "right"} if crowded else {}
        axes.set_xticks(range(len(groups)), list(groups), fontsize=8, **rotated)

    return _with_legend(draw, names, labels, bottom=0.75 if crowded else 0.5)


def _with_legend(
    draw: Callable[[Any], None],
    names: Sequence[str],
    labels: Axes,
    *,
    bottom: float = 0.5,
    inside: float = 2.9,
    **layout: Any,
) -> str:
    """Draw with a title above the axes, which are `inside` inches high, and a legend below."""
    columns = 3 if max(map(len, names), default=0) < 24 else 2
    rows = -(-len(names) // columns)
    legend = {"frameon": False, "fontsize": 8, "ncols": columns, "borderaxespad": 0.2}

    def draw_all(axes: Any) -> None:
        draw(axes)
        axes.set(xlabel=labels.x, ylabel=labels.y)
        axes.set_title(labels.title, fontsize=10, loc="left")
        axes.set(**{f"{axis}scale": "log" for axis in "xy" if getattr(labels, f"log_{axis}")})
        axes.figure.legend(loc="lower center", **legend)

    bottom += 0.19 * rows + 0.05
    height = inside + bottom
    return svg(draw_all, title=labels.title, height=height, bottom=bottom, top=0.35, **layout)


def scatter(
    points: Sequence[Sequence[float]],
    classes: Sequence[str],
    names: Sequence[str],
    marked: Sequence[int],
    *,
    title: str,
) -> str:
    """Plot nodes in two or three dimensions, coloured by class; label the marked ones."""
    from mpl_toolkits.mplot3d import proj3d

    places = np.asarray(points, float)
    flat = places.shape[1] == 2
    holes = "structural holes"

    def draw(axes: Any) -> None:
        for number, label in enumerate(dict.fromkeys(classes)):
            chosen = places[[other == label for other in classes]]
            axes.scatter(*chosen.T, s=18, color=PALETTE[number], label=label, linewidths=0)
        ring = {"s": 90, "facecolors": "none", "edgecolors": "#222933", "linewidths": 1.3}
        axes.scatter(*places[list(marked)].T, label=holes, **ring)
        # Outside the ring, whose size is in points too.
        outside = {"xytext": (7, 4), "textcoords": "offset points", "fontsize": 9}
        for node in marked:
            at = places[node]
            if not flat:
                at = proj3d.proj_transform(*at, axes.get_proj())[:2]
            axes.annotate(names[node], at, **outside)
        if not flat:
            axes.set_zlabel("third dimension")

    labels = Axes(title, "first dimension", "second dimension")
    layout: dict[str, Any] = {"left": 0.16} if flat else {"projection": "3d", "left": 0.02}
    return _with_legend(draw, [*dict.fromkeys(classes), holes], labels, inside=3.6, **layout)
