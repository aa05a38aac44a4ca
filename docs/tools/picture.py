"""The picture of README: a graph whose order says nothing, its vectors, and nodes folded in later.

Run it as ``python docs/tools/picture.py``; it writes ``docs/embedding.png``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq
from PIL import Image

import figrl
from figrl.serve.pictures import PALETTE
from figrl.study.planted import PlantedGraph

mpl.use("agg")

from matplotlib import pyplot as plt

OUT = Path(__file__).parents[1] / "embedding.png"
PLANTED = PlantedGraph(
    nodes=3_000, communities=6, edges_per_node=12, inside=0.75, new_nodes=90, seed=5
)


def draw(out: Path = OUT) -> None:
    """Embed the planted graph, fold in nodes that it did not have, and draw both."""
    with tempfile.TemporaryDirectory() as folder:
        PLANTED.write_partitions(Path(folder), partitions=1)
        known, added = Path(folder, "known"), Path(folder, "new")
        run = figrl.embed(known, dim=32, prominence=0, progress=False)
        new = run.fold_in(added, progress=False)
        edges = pq.read_table(known)
        ids, vectors = np.asarray(run.ids), np.asarray(run)
        new_ids, new_vectors = np.asarray(new.ids), new.vectors
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    order = np.random.default_rng(0).permutation(PLANTED.nodes)
    ends = [order[edges[name].to_numpy()] for name in ("source", "target")]
    for pair in (ends, ends[::-1]):
        left.plot(*pair, ".", color="#3a4a5c", markersize=0.5, alpha=0.5)
    left.set(title=f"edges of {PLANTED.nodes:,} nodes, as they come", xticks=[], yticks=[])
    left.set_aspect("equal")
    _scatter(right, ids, vectors, new_ids, new_vectors)
    title = (
        f"their vectors, by community; \N{MULTIPLICATION SIGN} {len(new_ids)} nodes folded in later"
    )
    right.set(title=title, xticks=[], yticks=[])
    figure.savefig(out, dpi=120, metadata={"Software": None})
    # A palette: a third of the bytes.
    colors = Image.open(out).convert("RGB").quantize(160, Image.Quantize.MAXCOVERAGE)
    colors.save(out, optimize=True)


def _scatter(axes: Any, ids: Any, vectors: Any, new_ids: Any, new_vectors: Any) -> None:
    """Draw both kinds of nodes in the plane that tells most communities of the known ones apart."""
    centred = vectors - vectors.mean(axis=0)
    plane = np.linalg.svd(centred, full_matrices=False)[2][:2]
    shift = vectors.mean(axis=0)
    for number in range(PLANTED.communities):
        color = PALETTE[number % len(PALETTE)]
        known = (vectors[PLANTED.community(ids) == number] - shift) @ plane.T
        added = (new_vectors[PLANTED.community(new_ids) == number] - shift) @ plane.T
        axes.plot(*known.T, ".", color=color, markersize=3, alpha=0.6, markeredgewidth=0)
        axes.plot(*added.T, "x", color="white", markersize=8, markeredgewidth=3.5)
        axes.plot(*added.T, "x", color=color, markersize=7, markeredgewidth=1.8)


if __name__ == "__main__":
    draw()
