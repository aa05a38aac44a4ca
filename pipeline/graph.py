"""A stored graph, opened: how many nodes and edges, and where its blocks lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.ingest.arrow import IdKind
from pipeline.ingest.ids import IdIndex
from pipeline.ingest.partition import edges_path
from pipeline.store import StorePaths, read_manifest

EdgeRun = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32] | None]


@dataclass(frozen=True)
class Graph:
    """An undirected graph on disk. Cheap to make, cheap to send to a worker.

    Attributes
    ----------
    path : Path
    version : str
        Name of the graph in its store, made of its input and the way it was read.
    nodes, edges : int
        Nodes, and undirected edges (each is stored in both directions).
    block_rows, blocks : int
        Rows in a row block, and the number of row blocks.
    largest_block_edges : int
        Stored entries of the fullest row block.
    """

    path: Path
    version: str
    nodes: int
    edges: int
    block_rows: int
    blocks: int
    largest_block_edges: int
    id_kind: IdKind
    id_starts: tuple[int, ...]
    weighted: bool
    mean_degree: float

    @property
    def index(self) -> IdIndex:
        """Rows of ids and ids of rows."""
        return IdIndex(self.path / "ids", self.id_starts)

    @property
    def degrees_path(self) -> Path:
        """Zarr array of the sum of weights at each node."""
        return self.path / "degrees"

    @property
    def keys_path(self) -> Path:
        """Zarr array of the 64-bit key of each node's id."""
        return self.path / "keys"

    def block_range(self, block: int) -> tuple[int, int]:
        """First row of a row block, and the row after its last."""
        start = block * self.block_rows
        return start, min(start + self.block_rows, self.nodes)

    def edge_runs(self, block: int) -> Iterator[EdgeRun]:
        """Entries of a row block, sorted by row then column, a row group at a time.

        Returns
        -------
        iterator of (rows, columns, weights)
            Two int64 arrays and a float32 array, or None where all weights are 1.
        """
        return read_edges(edges_path(self.path, block))

    def edge_bytes(self, block: int) -> int:
        """Bytes of a row block's edges on disk."""
        return edges_path(self.path, block).stat().st_size

    def __repr__(self) -> str:
        kind = "weighted" if self.weighted else "unweighted"
        return (
            f"<Graph {self.version}: {self.nodes:,} nodes, {self.edges:,} {kind} edges, "
            f"{self.id_kind} ids, {self.blocks} row blocks>"
        )


def read_edges(path: Path) -> Iterator[EdgeRun]:
    """Entries of a file of edges, a row group at a time."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, use_threads=False)
        rows, columns, *weights = (_numbers(table.column(i)) for i in range(table.num_columns))
        yield rows, columns, weights[0].astype(np.float32) if weights else None


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column as it lies in memory; Arrow's own way to NumPy would import pandas first."""
    return np.from_dlpack(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))


class EdgeCursor:
    """Goes through the entries of a row block once, some rows at a time."""

    def __init__(self, runs: Iterator[EdgeRun]) -> None:
        self._runs = runs
        self._rest: EdgeRun | None = None

    def rows_below(self, stop: int) -> Iterator[EdgeRun]:
        """Entries that are left in rows before `stop`, in runs."""
        while (run := self._rest or next(self._runs, None)) is not None:
            rows, columns, weights = run
            cut = int(np.searchsorted(rows, stop))
            self._rest = None
            if cut < rows.size:
                self._rest = rows[cut:], columns[cut:], None if weights is None else weights[cut:]
            if cut:
                yield rows[:cut], columns[:cut], None if weights is None else weights[:cut]
            if self._rest is not None:
                return


def open_graph(paths: StorePaths, version: str | None = None) -> Graph:
    """Open a graph of a store; by default the one that was ingested last."""
    name = version or cast("str", paths.latest_graph())
    return graph_from_manifest(paths.graph(name), read_manifest(paths.graph(name)))


def graph_from_manifest(path: Path, manifest: dict[str, Any]) -> Graph:
    """Make a graph of what its manifest says."""
    facts = manifest["graph"]
    return Graph(
        path=path,
        version=path.name,
        nodes=facts["nodes"],
        edges=facts["edges"],
        block_rows=facts["block_rows"],
        blocks=facts["blocks"],
        largest_block_edges=facts["largest_block_edges"],
        id_kind=facts["id_kind"],
        id_starts=tuple(facts["id_starts"]),
        weighted=facts["weighted"],
        mean_degree=facts["mean_degree"],
    )
