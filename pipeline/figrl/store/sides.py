"""The kinds of graph, and the two sides of those whose columns hold different kinds of node.

An undirected graph has one set of nodes. A bipartite graph has two, each with ids of its own. A
directed graph is stored as its bipartite double: every node is there once as a source and once as
a target, and an arc is an edge between the two sides.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

GraphKind = Literal["undirected", "bipartite", "directed"]
Side = Literal["source", "target"]
Sides = tuple[Side | None, ...]

SIDES: tuple[Side, Side] = ("source", "target")


def sides_of(kind: GraphKind) -> Sides:
    """Sides that number their ids separately; the only one of an undirected graph has no name."""
    return (None,) if kind == "undirected" else SIDES


def other_side(side: Side) -> Side:
    """The side at the other end of each edge."""
    return "target" if side == "source" else "source"


def node_columns(ids: pa.Array, side: Side | None) -> list[pa.Array]:
    """Columns of a table that name nodes of one side: ids, and the side if it has a name."""
    return [ids] if side is None else [ids, pa.repeat(side, len(ids))]
