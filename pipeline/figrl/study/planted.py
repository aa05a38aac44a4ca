"""Random graphs with planted communities, of any size, streamed to Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from figrl.store.files import atomic_write

Integers = npt.NDArray[np.int64]

_BATCH_NODES = 1 << 15


@dataclass(frozen=True)
class PlantedGraph:
    """Nodes 0 to n - 1 in communities, with most edges inside them.

    Node ``j`` belongs to community ``j % communities``, so that the order of ids is no help. Nodes
    from ``nodes`` up to ``nodes + new_nodes`` are held out. Ids are integers, or strings such as
    ``user/00001234``.

    A node has `edges_per_node` on average, some of them duplicates; the share `inside` stays in the
    community. With a `tail` of 0, all nodes have the same number. Above 0, degrees follow a power
    law, whose tail grows heavier with the value; 0.4 resembles a social network.
    """

    nodes: int = 50_000
    communities: int = 20
    edges_per_node: int = 50
    inside: float = 0.9
    tail: float = 0.0
    new_nodes: int = 1_000
    ids: Literal["int", "string"] = "int"
    seed: int = 1

    def community(self, nodes: Integers) -> Integers:
        """Community of each node."""
        return nodes % self.communities

    def edges_of(self, start: int, stop: int) -> tuple[Integers, Integers]:
        """Edges from the nodes `start` up to `stop`, all to nodes below `nodes`."""
        rng = np.random.default_rng([self.seed, start])
        source = np.repeat(np.arange(start, stop), self._edges_per_node(rng, stop - start))
        stays = rng.random(source.size) < self.inside
        fellows = self.nodes // self.communities
        # A power of a uniform variable favours small numbers: those are the hubs.
        place = (rng.random(source.size) ** (1 + 5 * self.tail) * fellows).astype(np.int64)
        elsewhere = rng.integers(0, self.communities, source.size)
        community = np.where(stays, self.community(source), elsewhere)
        return source, community + self.communities * place

    def _edges_per_node(self, rng: np.random.Generator, count: int) -> Integers:
        if self.tail == 0:
            return np.full(count, self.edges_per_node)
        weights = rng.pareto(1 / self.tail, count) + 1
        mean = 1 / (1 - self.tail)
        numbers = np.minimum(weights / mean * self.edges_per_node, 1000.0 * self.edges_per_node)
        return np.maximum(np.rint(numbers), 1).astype(np.int64)

    def write(self, path: Path, start: int, stop: int) -> int:
        """Write edges from the nodes `start` up to `stop`; return their number."""
        kind = pa.int64() if self.ids == "int" else pa.string()
        schema = pa.schema({"source": kind, "target": kind})
        edges = 0
        # Tables of about a million edges.
        step = max(1, min(_BATCH_NODES, (1 << 20) // self.edges_per_node))
        with atomic_write(path) as aside, pq.ParquetWriter(aside, schema) as writer:
            for begin in range(start, stop, step):
                ends = self.edges_of(begin, min(begin + step, stop))
                writer.write_table(pa.table([self._named(end) for end in ends], schema))
                edges += ends[0].size
        return edges

    def _named(self, nodes: Integers) -> pa.Array:
        if self.ids == "int":
            return pa.array(nodes)
        digits = pc.utf8_lpad(pa.array(nodes).cast(pa.string()), 10, "0")
        return pc.binary_join_element_wise("user", digits, "/")

    def write_partitions(self, folder: Path, partitions: int) -> int:
        """Write ``folder/known``, and held-out nodes to ``folder/new``; count edges in `known`."""
        last = self.nodes + self.new_nodes
        self.write(folder / "new" / "part-000.parquet", self.nodes, last)
        cuts = np.linspace(0, self.nodes, partitions + 1).astype(int).tolist()
        return sum(
            self.write(folder / "known" / f"part-{number:03d}.parquet", start, stop)
            for number, (start, stop) in enumerate(pairwise(cuts))
        )
