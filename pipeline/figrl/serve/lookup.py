"""Rows of nodes by their ids and sides, in a graph and among the nodes folded in since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.errors import ConfigError
from figrl.serve.overlay import Overlay
from figrl.store.graph import Graph
from figrl.store.ids import id_type, sorted_ids
from figrl.store.sides import SIDES, Side
from figrl.units import kind_of

Ids = Sequence[int] | Sequence[str]
Rows = npt.NDArray[np.int64]


def check_side(graph: Graph, side: Side | None, option: str = "side") -> None:
    """Refuse a side that the nodes of a graph do not have."""
    if side is not None and not graph.has_sides:
        raise ConfigError(
            f"{option} is {side!r}, but this graph is undirected: its nodes have no sides. Leave "
            f"{option} out, or ingest the edges with --kind bipartite or --kind directed."
        )
    if side is not None and side not in SIDES:
        raise ConfigError(f"{option} is {side!r}. Allowed are 'source' and 'target'.")


def find_rows(graph: Graph, overlay: Overlay | None, ids: Ids, side: Side | None) -> Rows:
    """Rows of some nodes; nodes folded in since come after the learnt ones.

    Without a side, an id that only one side has is taken from that side.
    """
    check_side(graph, side)
    wanted = _typed(graph, ids)
    distinct = sorted_ids(wanted.unique())
    sides = graph.index.sides if side is None else (side,)
    found = np.array([_rows_on_side(graph, overlay, distinct, one) for one in sides])
    on_both = (found >= 0).sum(axis=0) > 1
    if on_both.any():
        raise ConfigError(
            f"{_shown(distinct, on_both)} on both sides, as a source and as a target. Say which is "
            "meant: --side source or --side target."
        )
    rows = found.max(axis=0)
    if (rows < 0).any():
        where = "" if side is None else f" as a {side}"
        count = int((rows < 0).sum())
        raise KeyError(
            f"{count} of the ids {'is' if count == 1 else 'are'} not in the graph{where}: "
            f"{_listed(distinct, rows < 0)}"
        )
    places: Rows = pa.compute.index_in(wanted, value_set=distinct).to_numpy()
    return np.asarray(rows[places])


def has_node(graph: Graph, overlay: Overlay | None, node: Any, side: Side | None) -> bool:
    """Whether there is a node of an id; nothing of another type than the ids is one."""
    check_side(graph, side)
    try:
        wanted = _typed(graph, [node])
    except (KeyError, TypeError):
        return False
    sides = graph.index.sides if side is None else (side,)
    return any((_rows_on_side(graph, overlay, wanted, one) >= 0).any() for one in sides)


def is_id(value: Any) -> bool:
    """Whether a value may be the id of a node."""
    return isinstance(value, int | str | np.integer)


def plain_id(value: Any) -> Any:
    """An id of NumPy as one of Python, which shows itself as people write it."""
    return value.item() if isinstance(value, np.generic) else value


def _typed(graph: Graph, ids: Ids) -> pa.Array:
    """Ids in the type of the graph's."""
    if is_id(ids) or isinstance(ids, bytes):
        raise TypeError(f"ids have to be a sequence; write [{plain_id(ids)!r}] for one.")
    if not hasattr(ids, "__iter__"):
        raise TypeError(f"ids have to be a sequence, such as a list, not {kind_of(ids)}.")
    kind = {"int": "integers", "string": "strings"}[graph.id_kind]
    given = ids if hasattr(ids, "__len__") else list(ids)
    try:
        found = pa.array(given, id_type(graph.id_kind))
        if pa.types.is_int64(found.type):
            # Arrow cuts off what stands behind the point of Python's floats.
            _check_whole(pa.array(given))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise KeyError(f"the ids of this graph are {kind}: {error}") from error
    if found.null_count:
        raise TypeError(f"the ids of this graph are {kind}, and one of these is missing (None).")
    return found


def _check_whole(values: pa.Array) -> None:
    if pa.types.is_floating(values.type):
        values.cast(pa.int64())


def _rows_on_side(graph: Graph, overlay: Overlay | None, ids: pa.Array, side: Side | None) -> Rows:
    """Row of each id on a side, -1 where it is not there."""
    rows = graph.index.rows_of(ids, side)
    missing = rows < 0
    if overlay is not None and overlay.side == side and missing.any():
        newer = overlay.index.rows_of(ids.filter(pa.array(missing)))
        rows[missing] = np.where(newer >= 0, newer + graph.nodes, -1)
    return rows


def _listed(ids: pa.Array, chosen: npt.NDArray[np.bool_]) -> str:
    return ", ".join(repr(value) for value in ids.filter(pa.array(chosen)).slice(0, 5).to_pylist())


def _shown(ids: pa.Array, chosen: npt.NDArray[np.bool_]) -> str:
    """The first of the chosen ids, as the subject of a sentence."""
    count = int(chosen.sum())
    return (
        f"Id {_listed(ids, chosen)} is"
        if count == 1
        else (f"{count} of the ids ({_listed(ids, chosen)}) are")
    )
