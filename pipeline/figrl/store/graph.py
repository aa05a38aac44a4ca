"""A stored graph: its sizes, its row blocks and their edges in Parquet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.store.arrays import open_zarr
from figrl.store.checksums import check_file, damage_reported, insert_checksum
from figrl.store.files import atomic_write, size_bytes
from figrl.store.ids import IdIndex, IdKind, parquet_id_type
from figrl.store.layout import StorePaths, read_manifest
from figrl.store.range_starts import RangeStarts
from figrl.store.sides import GraphKind, Side
from figrl.units import bars_svg, facts_html

ROW_GROUP_EDGES = 1 << 18
"""Entries in a Parquet row group: what a product holds of a block at a time."""

RowGroup = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32] | None]
"""Rows, columns and weights of entries, sorted by row then column; None where weights are all 1."""


@dataclass(frozen=True)
class Graph:
    """A graph on disk: a small object, sent to workers as it is.

    The matrix that is stored is always symmetric. In a bipartite or directed graph the rows of the
    source side come first, then those of the target side, and each edge joins the two.

    Attributes
    ----------
    path : Path
    version : str
        Name of the graph in its store: a digest of its input and of the ingest options.
    nodes, edges : int
        Nodes of all sides, and edges (each is stored in both directions).
    block_rows, blocks : int
        Rows in a row block, and the number of row blocks.
    largest_block_edges : int
        Stored entries of the largest row block.
    id_kind : "int" or "string"
    id_starts : sequence of int
        First row of each range of ids, and the number of rows.
    weighted : bool
    mean_degree : float
    kind : "undirected", "bipartite" or "directed"
    target_start : int or None
        First row of the target side; None in an undirected graph, whose nodes have no sides.
    keep : object
        What has to live as long as the graph, such as its temporary store.
    """

    path: Path
    version: str
    nodes: int
    edges: int
    block_rows: int
    blocks: int
    largest_block_edges: int
    id_kind: IdKind
    id_starts: Sequence[int]
    weighted: bool
    mean_degree: float
    kind: GraphKind = "undirected"
    target_start: int | None = None
    keep: Any = field(default=None, repr=False, compare=False)

    @property
    def store(self) -> Path:
        """Folder of the store that it lies in."""
        return self.path.parent.parent

    @property
    def index(self) -> IdIndex:
        """Index between ids and rows."""
        return IdIndex(self.path / "ids", self.id_starts, self.target_start)

    @property
    def has_sides(self) -> bool:
        """Whether a node is named by its id and its side."""
        return self.target_start is not None

    def side_nodes(self) -> dict[Side, int]:
        """Number of nodes of each side; empty where there are no sides."""
        ranges = {side: self.index.side_range(side) for side in self.index.sides if side}
        return {side: stop - start for side, (start, stop) in ranges.items()}

    @property
    def node_fields(self) -> dict[str, pa.DataType]:
        """Columns that name nodes in a Parquet file: ``id``, and ``side`` where there are sides."""
        side = {"side": pa.string()} if self.has_sides else {}
        return {"id": parquet_id_type(self.id_kind), **side}

    def node_columns(self, start: int, stop: int) -> list[pa.Array]:
        """Names of the rows from `start` up to `stop`, in the columns of `node_fields`."""
        ids = self.index.ids_of(start, stop).cast(self.node_fields["id"])
        if not self.has_sides:
            return [ids]
        return [ids, pa.array(self.index.sides_at(np.arange(start, stop)))]

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

    def row_groups(self, block: int) -> Iterator[RowGroup]:
        """Entries of a row block, a Parquet row group at a time."""
        return read_edges(edges_path(self.path, block))

    def block_entries(self, block: int) -> int:
        """Stored entries of a row block."""
        path = edges_path(self.path, block)
        check_file(path)
        return int(pq.read_metadata(path).num_rows)

    def edge_bytes(self, block: int) -> int:
        """Bytes of a row block's edges on disk."""
        return size_bytes(edges_path(self.path, block))

    def all_edge_bytes(self) -> int:
        """Bytes of all edges on disk; 0 for a graph that is not stored."""
        return size_bytes(self.path / "edges") if self.path.name else 0

    def __repr__(self) -> str:
        weights = "weighted" if self.weighted else "unweighted"
        nodes = " and ".join(f"{count:,} {side}" for side, count in self.side_nodes().items())
        return (
            f"<Graph {self.version}: {nodes or f'{self.nodes:,}'} nodes, {self.edges:,} {weights} "
            f"edges, {self.id_kind} ids, {self.blocks} row blocks>"
        )

    def _repr_html_(self) -> str:
        facts = {
            "version": self.version,
            "kind": self.kind,
            "nodes": f"{self.nodes:,}",
            **{f"{side} nodes": f"{count:,}" for side, count in self.side_nodes().items()},
            "edges": f"{self.edges:,}",
            "weights": "yes" if self.weighted else "no",
            "ids": "integers" if self.id_kind == "int" else "strings",
            "mean degree": f"{self.mean_degree:.2f}",
        }
        return facts_html("figrl graph", facts, self._degrees_svg())

    def _degrees_svg(self) -> str:
        """Nodes by degree, in bins of doubling width; of the first million nodes."""
        degrees = np.asarray(open_zarr(self.degrees_path)[: 1 << 20], np.float64)
        bins = np.ceil(np.log2(degrees[degrees > 0])).clip(0, 63).astype(np.int64)
        counts = np.bincount(bins) if bins.size else np.zeros(1, np.int64)
        title = f"Nodes by degree, up to 1, 2, 4, ... {1 << (counts.size - 1):,}; log scale"
        return bars_svg(np.log1p(counts).tolist(), title)


def edges_path(graph: Path, block: int) -> Path:
    """Parquet file of a row block."""
    return graph / "edges" / f"part-{block:06d}.parquet"


def write_edges(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write entries sorted by row then column; each table is a row group.

    Of Arrow's integer encodings, delta encoding is the smallest and the fastest to read for sorted
    columns, and leaves nothing to a compressor: see docs/performance.md.
    """
    with atomic_write(path) as aside:
        with pq.ParquetWriter(
            aside,
            schema,
            use_dictionary=False,
            column_encoding={"row": "DELTA_BINARY_PACKED", "column": "DELTA_BINARY_PACKED"},
            compression="none",
            write_page_checksum=True,
        ) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=ROW_GROUP_EDGES)
        insert_checksum(aside)


def read_edges(path: Path) -> Iterator[RowGroup]:
    """Read a file of edges, a row group at a time, once its checksum is right.

    That covers the footer too; the checksums of pages, which are a part of it, are for others.
    """
    check_file(path)
    with damage_reported(path):
        file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        with damage_reported(path):
            table = file.read_row_group(group, use_threads=False)
        rows, columns, *weights = (_numbers(table.column(i)) for i in range(table.num_columns))
        yield rows, columns, weights[0].astype(np.float32) if weights else None


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """View a column as NumPy array; Arrow's own conversion would import pandas."""
    return np.from_dlpack(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))


class RowGroupReader:
    """Reads row groups in order, cut at given rows."""

    def __init__(self, groups: Iterator[RowGroup]) -> None:
        self._groups = groups
        self._rest: RowGroup | None = None

    def rows_before(self, stop: int) -> Iterator[RowGroup]:
        """Remaining entries in rows before `stop`, a row group or a part of one at a time."""
        while (group := self._rest or next(self._groups, None)) is not None:
            rows, columns, weights = group
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
    """Build a graph from its manifest."""
    stored = {**manifest["graph"], "path": path, "version": path.name}
    stored["id_starts"] = RangeStarts.of(stored["id_starts"], path)
    # What is missing, such as the kind of a graph of an earlier version, has its default.
    known = [one.name for one in fields(Graph) if one.name in stored]
    return Graph(**{name: stored[name] for name in known})


def choose_block_rows(nodes: int, entries: int) -> int:
    """Rows of a block, from the size of the graph alone, so that results do not depend on memory.

    A block holds enough edges for a task of about 0.1 s, and there are enough blocks for a dozen
    threads.
    """
    wanted = min(max(entries // 32, 1 << 18), 1 << 22)
    rows = max(1.0, wanted * nodes / max(entries, 1))
    return min(max(1 << round(math.log2(rows)), 1 << 10), 1 << 20)
