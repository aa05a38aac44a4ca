"""Edges and arcs held out, and random pairs to compare them with. Pure functions of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_MOST_DRAWS = 50
"""A node that is linked to nearly all others keeps some of them as random partners."""


def undirected(pairs: Integers) -> Integers:
    """Each edge once, the lesser end first; no loops."""
    ends = np.sort(pairs, axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)


def numbered(pairs: Integers) -> tuple[Integers, Integers]:
    """Number the nodes from 0 on; return the pairs of numbers, and the id of each number."""
    ids, places = np.unique(pairs, return_inverse=True)
    return places.reshape(pairs.shape).astype(np.int64), ids


def bipartite_double(pairs: Integers) -> tuple[Integers, Integers, Integers]:
    """Give each kind of end nodes of its own: an undirected graph of sources and targets.

    Returns the pairs of numbers, the id of each source, and the id of each target; targets are
    numbered after the sources.
    """
    sources, first = np.unique(pairs[:, 0], return_inverse=True)
    targets, second = np.unique(pairs[:, 1], return_inverse=True)
    return np.stack([first, sources.size + second], axis=1), sources, targets


def hold_out(pairs: Integers, share: float, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Draw a share of the edges to hold out; return those to learn, and those held out.

    In a random order the first edge of every node is kept, so that no node disappears.
    """
    order = rng.permutation(len(pairs))
    # Ends in the order of the edges: both ends of the first edge, of the second, and so on.
    _, first = np.unique(pairs[order].ravel(), return_index=True)
    needed = np.zeros(len(pairs), bool)
    needed[order[first // 2]] = True
    free = order[~needed[order]]
    held = np.zeros(len(pairs), bool)
    held[free[: round(share * len(pairs))]] = True
    return pairs[~held], pairs[held]


def draw_unlinked(
    sources: Integers, targets: Integers, pairs: Integers, rng: np.random.Generator
) -> Integers:
    """Draw one of the `targets` for each of the `sources` that is neither it nor linked to it.

    Pairs count as links from the first to the second node.
    """
    size = 1 + max(int(part.max(initial=0)) for part in (sources, targets, pairs))
    links = np.unique(pairs[:, 0] * size + pairs[:, 1])
    drawn = rng.choice(targets, sources.shape)
    for _ in range(_MOST_DRAWS):
        bad = (drawn == sources) | _contains(links, sources * size + drawn)
        if not bad.any():
            break
        drawn[bad] = rng.choice(targets, int(bad.sum()))
    return drawn


def _contains(ordered: Integers, wanted: Integers) -> npt.NDArray[np.bool_]:
    """Whether each number is among those that are in ascending order."""
    if not ordered.size:
        return np.zeros(wanted.shape, bool)
    places = np.searchsorted(ordered, wanted).clip(max=ordered.size - 1)
    return np.asarray(ordered[places] == wanted)


def both_ways(pairs: Integers) -> Integers:
    """Each pair, and each pair reversed."""
    return np.concatenate([pairs, pairs[:, ::-1]])
