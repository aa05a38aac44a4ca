"""Graphs with planted communities, of any size, streamed to Parquet a partition at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.files import written_aside

Integers = npt.NDArray[np.int64]

_BATCH_NODES = 1 << 15


@dataclass(frozen=True)
class PlantedGraph:
    """Nodes 0 to n - 1 in communities; most edges of a node stay in its own.

    Node ``j`` belongs to community ``j % communities``, so the order of ids tells nothing. Nodes
    from ``nodes`` up to ``nodes + new_nodes`` are held back.

    Attributes
    ----------
    nodes, communities : int
    edges_per_node : int
        Mean number of edges that begin at a node; some of them repeat.
    inside : float
        Share of edges that stay in the community.
    tail : float
        0: all nodes have the same number of edges. Above: degrees follow a power law, and the
        larger the heavier its tail; 0.4 is like a social network.
    new_nodes : int
    ids : {"int", "string"}
        Whether ids are integers or texts such as ``user/00001234``.
    seed : int
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
        """Edges that begin at the nodes from `start` up to `stop`; they end at nodes seen."""
        rng = np.random.default_rng([self.seed, start])
        source = np.repeat(np.arange(start, stop), self._edges_per_node(rng, stop - start))
        stays = rng.random(source.size) < self.inside
        fellows = self.nodes // self.communities
        # A power of a uniform variable prefers small numbers: those are the hubs.
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
        """Write edges that begin at nodes from `start` up to `stop`; return their number."""
        kind = pa.int64() if self.ids == "int" else pa.string()
        schema = pa.schema({"source": kind, "target": kind})
        edges = 0
        with written_aside(path) as aside, pq.ParquetWriter(aside, schema) as writer:
            for table in self._tables(start, stop, schema):
                writer.write_table(table)
                edges += table.num_rows
        return edges

    def _tables(self, start: int, stop: int, schema: pa.Schema) -> Iterator[pa.Table]:
        """Tables of about a million edges."""
        step = max(1, min(_BATCH_NODES, (1 << 20) // self.edges_per_node))
        for begin in range(start, stop, step):
            ends = self.edges_of(begin, min(begin + step, stop))
            yield pa.table([self._named(end) for end in ends], schema)

    def _named(self, nodes: Integers) -> pa.Array:
        if self.ids == "int":
            return pa.array(nodes)
        digits = pc.utf8_lpad(pa.array(nodes).cast(pa.string()), 10, "0")
        return pc.binary_join_element_wise("user", digits, "/")

    def write_partitions(self, folder: Path, partitions: int) -> int:
        """Write the seen graph to ``folder/known`` and held-back edges to ``folder/new``.

        Returns the number of rows of the seen graph.
        """
        edges = 0
        cuts = np.linspace(0, self.nodes, partitions + 1).astype(int)
        for number, (start, stop) in enumerate(pairwise(cuts)):
            path = folder / "known" / f"part-{number:03d}.parquet"
            edges += self.write(path, int(start), int(stop))
        last = self.nodes + self.new_nodes
        self.write(folder / "new" / "part-000.parquet", self.nodes, last)
        return edges
