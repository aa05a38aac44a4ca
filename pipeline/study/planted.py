"""A graph with planted communities, made partition by partition as Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.files import written_aside
from pipeline.mixing import mix_all

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlantedGraph:
    """Nodes 0 to n - 1 in communities; most edges of a node stay in its own.

    Node ``j`` belongs to community ``j % communities``, so the order of ids tells nothing. Nodes
    from ``nodes`` up to ``nodes + new_nodes`` are held back.
    """

    nodes: int = 50_000
    communities: int = 20
    edges_per_node: int = 50
    inside: float = 0.9
    new_nodes: int = 1_000
    seed: int = 1

    def community(self, nodes: Integers) -> Integers:
        """Community of each node."""
        return nodes % self.communities

    def edges_of(self, nodes: Integers) -> tuple[Integers, Integers]:
        """Edges that begin at some nodes: their ends, the other ends among the nodes seen."""
        seeds = mix_all(nodes.astype(np.uint64) + np.uint64(self.seed) * np.uint64(1 << 32))
        rng = np.random.default_rng([int(seeds.sum(dtype=np.uint64)), self.seed])
        source = np.repeat(nodes, self.edges_per_node)
        stays = rng.random(source.size) < self.inside
        anywhere = rng.integers(0, self.nodes, source.size)
        size = self.nodes // self.communities
        fellow = self.community(source) + self.communities * rng.integers(0, size, source.size)
        return source, np.where(stays, fellow, anywhere)

    def write(self, path: Path, start: int, stop: int) -> None:
        """Write the edges that begin at the nodes from `start` up to `stop`."""
        source, target = self.edges_of(np.arange(start, stop))
        with written_aside(path) as aside:
            pq.write_table(pa.table({"source": source, "target": target}), aside)

    def write_partitions(self, folder: Path, partitions: int) -> None:
        """Write the seen graph to ``folder/known`` and held-back edges to ``folder/new``."""
        cuts = np.linspace(0, self.nodes, partitions + 1).astype(int)
        for number, (start, stop) in enumerate(pairwise(cuts)):
            self.write(folder / "known" / f"part-{number:03d}.parquet", int(start), int(stop))
        last = self.nodes + self.new_nodes
        self.write(folder / "new" / "part-000.parquet", self.nodes, last)
