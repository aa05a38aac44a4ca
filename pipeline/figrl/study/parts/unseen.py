"""Unseen nodes: held out at random, folded in, and clustered with the rest."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from figrl.analyze.metrics import modularity
from figrl.config import make_options
from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.fold_in import FoldInOptions, run_fold_in
from figrl.serve.runs import run_embed
from figrl.study import paper
from figrl.study.experiment import Experiment, Key, Result, Results, preset_options
from figrl.study.figures import Axes, Curve, curves
from figrl.study.graphs import Integers, largest_component, read_pairs, write_pairs
from figrl.study.page import Cell, Picture, Section, Table, pivot
from figrl.study.parts.clustering import cluster

Vectors = npt.NDArray[np.float32]

PRESETS = ("paper", "accurate")
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)

_LARGE = ("ca-HepTh", "ca-CondMat", "email-Enron")
DIMS = {"karate": 3, "dolphins": 4, "us-football": 11, "polblogs": 5} | dict.fromkeys(_LARGE, 128)
"""Vector length by graph: one that does well in the grid of the clustering part."""

CLUSTERS = dict.fromkeys(_LARGE, 100)
"""Clusters where the paper's number would leave a handful of nodes in each."""


class Unseen(Experiment):
    """One measurement for every graph, preset, share and draw; share 0 is the whole graph."""

    name = "unseen"
    title = "Unseen nodes"
    covers = tuple(DIMS)

    def keys(self) -> list[Key]:
        """Graph, preset, share held out, seed of the draw."""
        shares = SHARES[1:4:2] if self.study.quick else SHARES
        return [
            (name, preset, share, seed)
            for name in self.graphs
            for preset in PRESETS
            for share in (0.0, *shares)
            for seed in range(self.study.repeats if share else 1)
        ]

    def measure(self, name: str, preset: str, share: float, seed: int) -> Result:
        """Modularity of the whole graph, a share of whose nodes was held out of learning."""
        graph = self.study.graph(name, connected=True)
        ids, count = graph.ids(), CLUSTERS.get(name, paper.CLUSTERS[name])
        options = preset_options(preset, graph.nodes, DIMS[name])
        if share == 0:
            vectors, _ = self.study.embed(graph, **options)
            return {"modularity": modularity(graph.graph, cluster("k-means", vectors, count))}
        pairs = largest_component(read_pairs(self.study.path(name)))
        held, config = draw_held_out(ids, share, seed), make_options(EmbedOptions, options)
        # In the folder of results, which workers on other machines can read.
        with tempfile.TemporaryDirectory(prefix="unseen-", dir=self.study.out) as folder:
            found = learn_without(Path(folder), pairs, held, config, self.study.session)
        labels = cluster("k-means", np.concatenate([found.vectors, found.new_vectors]), count)
        at = found.positions(ids)
        # A node without a vector is a cluster of its own.
        clusters = np.where(at >= 0, labels[at], count + np.arange(ids.size))
        return {"modularity": modularity(graph.graph, clusters), "new_nodes": len(found.new_ids)}

    def section(self, results: Results) -> Section:
        """Modularity by the share of unseen nodes."""
        rows: list[list[Cell]] = []
        means: dict[tuple[Cell, ...], Curve] = {}
        for preset, name in product(PRESETS, self.graphs):
            samples: dict[float, list[float]] = defaultdict(list)
            for (graph, by, share, _), result in results.items():
                if (graph, by) == (name, preset):
                    samples[100 * float(share)].append(result["modularity"])
            means[name, preset] = curve = Curve.of(samples)
            for at, mean, spread in zip(curve.x, curve.y, curve.spread, strict=True):
                draws = len(samples[at])
                rows.append([name, preset, at, draws, mean, spread, mean / curve.y[0]])
        caption = "Modularity of the whole graph, means over the draws"
        columns = ("graph", "preset", "% unseen", "draws", "modularity", "deviation", "over whole")
        tables = [
            pivot("unseen", caption, columns[:2], "% unseen", means),
            Table("unseen-all", "Draws and deviations", columns, rows, folded=True),
        ]
        pictures = [
            _picture(preset, {name: means[name, preset] for name in self.graphs})
            for preset in PRESETS
        ]
        return Section(self.name, self.title, _TEXT, tables, pictures)


def _picture(preset: str, lines: dict[str, Curve]) -> Picture:
    title = f"Modularity by unseen nodes, preset {preset}"
    return Picture(
        curves(lines, Axes(title, "nodes that were not seen in learning, %", "modularity")),
        f"Preset {preset}: a flat curve means that folded-in nodes are placed as well as learnt "
        "ones. Bands are one standard deviation over the draws.",
    )


_TEXT = (
    "A share of the nodes is held out, the rest is learnt, the others are folded in, and k-means "
    "clusters all vectors together, as in the paper. Largest components; the paper's number of "
    "clusters on small graphs and 100 on the others, for the paper's would leave a handful of "
    "nodes in each.",
    "The paper prints a figure and no table: its curves are flat up to 40 % and fall at 50 %. With "
    "the preset accurate ours are similar. With the preset paper they are not: without power "
    "iterations and tau, a few nodes get vectors many times as long as all others, in some draws "
    "and not in others, and k-means spends its clusters on them; hence the wide bands.",
)


@dataclass(frozen=True)
class HeldOut:
    """Vectors of the nodes that were learnt, and of the new ones, which were folded in."""

    ids: Integers
    vectors: Vectors
    new_ids: Integers
    new_vectors: Vectors

    def positions(self, ids: Integers) -> Integers:
        """Position of nodes among those learnt, then those folded in; -1 for one in neither."""
        known = np.concatenate([self.ids, self.new_ids])
        order = np.argsort(known)
        found = order[np.searchsorted(known[order], ids).clip(max=known.size - 1)]
        return np.where(known[found] == ids, found, -1)


def draw_held_out(ids: Integers, share: float, seed: int) -> Integers:
    """Draw the nodes to hold out, uniformly."""
    rng = np.random.default_rng(seed)
    return rng.choice(ids, round(share * ids.size), replace=False)


def learn_without(
    folder: Path, pairs: Integers, held: Integers, config: EmbedOptions, session: Session
) -> HeldOut:
    """Learn a graph, in an empty folder, without the nodes that are `held` out, and fold them in.

    A node all of whose neighbours are held out is not learnt either, and so it is new too.
    """
    is_held = np.isin(pairs, held)
    is_held = ~np.isin(pairs, pairs[~is_held.any(axis=1)])
    # Fold-in reads the new node first; an edge between two new nodes is given in both directions.
    new = np.concatenate([pairs[is_held[:, 0]], pairs[is_held[:, 1]][:, ::-1]])
    known_path = write_pairs(folder / "known.parquet", pairs[~is_held.any(axis=1)])
    new_path = write_pairs(folder / "new.parquet", new)
    store = folder / "store"
    run_ingest(known_path, store, IngestOptions(), session)
    run_embed(store, config, session)
    run_fold_in(store, new_path, folder / "out.parquet", FoldInOptions(), session)
    learnt = open_store(store).embedding()
    folded = pq.read_table(folder / "out.parquet")
    flat = folded["vector"].combine_chunks().flatten().to_numpy()
    return HeldOut(
        learnt.ids().to_numpy(),
        np.asarray(learnt.vectors),
        folded["id"].to_numpy(),
        flat.reshape(folded.num_rows, -1),
    )
