"""Pictures of the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.serve.pictures import PALETTE, svg


@dataclass(frozen=True)
class Curve:
    """Means over some draws, and how far they spread.

    Attributes
    ----------
    x, y : sequence of float
    spread : sequence of float
        Standard deviations; zeros draw nothing.
    dashed : bool
    """

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    dashed: bool = False


def curves(
    lines: Mapping[str, Curve],
    *,
    title: str,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """Curves with bands of one standard deviation."""

    def draw(axes: Any) -> None:
        for number, (name, curve) in enumerate(lines.items()):
            color = PALETTE[number % len(PALETTE)]
            style = "--" if curve.dashed else "-"
            axes.plot(curve.x, curve.y, style, marker="o", markersize=3, color=color, label=name)
            if curve.spread:
                middle, around = np.asarray(curve.y), np.asarray(curve.spread)
                low = np.maximum(middle - around, middle / 10) if log_y else middle - around
                axes.fill_between(
                    curve.x, low, middle + around, color=color, alpha=0.15, linewidth=0
                )
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)

    return _with_legend(draw, list(lines), title=title)


def bars(
    groups: Mapping[str, Mapping[str, float | None]],
    *,
    title: str,
    x: str,
    y: str,
    log_y: bool = False,
) -> str:
    """Groups of bars side by side, one colour for each name."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))

    def draw(axes: Any) -> None:
        width = 0.8 / max(len(names), 1)
        for number, name in enumerate(names):
            places = np.arange(len(groups)) - 0.4 + width * (number + 0.5)
            heights = [group.get(name) or 0.0 for group in groups.values()]
            axes.bar(places, heights, width, color=PALETTE[number % len(PALETTE)], label=name)
        turned = {"rotation": 20, "ha": "right"} if crowded else {}
        axes.set_xticks(range(len(groups)), list(groups), fontsize=8, **turned)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if log_y:
            axes.set_yscale("log")

    crowded = len(groups) > 3
    return _with_legend(draw, names, title=title, bottom=0.75 if crowded else 0.5)


def _with_legend(
    draw: Callable[[Any], None], names: Sequence[str], *, title: str, bottom: float = 0.5
) -> str:
    """Draw with a title above and a legend below, where it hides nothing."""
    columns = 3 if max(map(len, names), default=0) < 24 else 2
    rows = -(-len(names) // columns)

    def draw_all(axes: Any) -> None:
        draw(axes)
        axes.set_title(title, fontsize=10, loc="left")
        axes.figure.legend(
            loc="lower center", frameon=False, fontsize=8, ncols=columns, borderaxespad=0.2
        )

    bottom += 0.19 * rows + 0.05
    return svg(draw_all, title=title, height=2.9 + bottom, bottom=bottom, top=0.35)


def scatter(
    points: Sequence[Sequence[float]],
    classes: Sequence[str],
    names: Sequence[str],
    marked: Sequence[int],
    *,
    title: str,
) -> str:
    """Nodes in two or three dimensions, coloured by class; some of them marked and named."""
    places = np.asarray(points, float)
    flat = places.shape[1] == 2

    def draw(axes: Any) -> None:
        for number, label in enumerate(dict.fromkeys(classes)):
            chosen = places[[other == label for other in classes]]
            axes.scatter(*chosen.T, s=18, color=PALETTE[number], label=label, linewidths=0)
        ring = {"s": 90, "facecolors": "none", "edgecolors": "#222933", "linewidths": 1.3}
        axes.scatter(*places[list(marked)].T, label="structural holes", **ring)
        for node in marked:
            # Past the ring, whose size is in points too.
            axes.annotate(
                names[node],
                places[node] if flat else _projected(axes, places[node]),
                xytext=(7, 4),
                textcoords="offset points",
                fontsize=9,
            )
        axes.set_xlabel("first dimension")
        axes.set_ylabel("second dimension")
        if not flat:
            axes.set_zlabel("third dimension")
        axes.set_title(title, fontsize=10, loc="left")
        axes.legend(frameon=False, fontsize=8)

    return svg(
        draw,
        title=title,
        height=4.1,
        top=0.35,
        projection=None if flat else "3d",
        left=0.16 if flat else 0.02,
    )


def _projected(axes: Any, place: Sequence[float]) -> tuple[float, float]:
    """Where a place in space is on the paper."""
    from mpl_toolkits.mplot3d import proj3d

    x, y, _ = proj3d.proj_transform(*place, axes.get_proj())
    return float(x), float(y)
