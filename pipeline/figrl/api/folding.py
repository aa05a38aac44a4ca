"""New nodes with their vectors, as fold-in gives them to Python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from figrl.api.tables import indexed_frame
from figrl.api.temporary import TemporaryFolder
from figrl.engine.session import Session
from figrl.ingestion.inputs import Edges
from figrl.serve.fold_in import FoldInOptions, run_fold_in
from figrl.serve.lookup import is_id, plain_id
from figrl.store.layout import PathLike
from figrl.store.matrix import Floats
from figrl.store.places import local_path
from figrl.units import facts_html, kind_of

_CALLER = 6
"""Frames from a warning here up to the caller of `fold_in`, past its decorators."""


@dataclass(frozen=True)
class FoldedNodes:
    """New nodes that were given vectors; ``new[id]`` is the vector of one.

    Attributes
    ----------
    path : Path
        Parquet file or folder with the columns ``id``, ``side`` where nodes have sides, and
        ``vector``; without `out`, in a temporary folder that is deleted with this object.
    counts : dict
        Nodes folded in, and edges and nodes that were left out, by reason.
    """

    path: Path
    counts: dict[str, int]
    keep: TemporaryFolder | None = field(default=None, repr=False, compare=False)

    def table(self) -> pa.Table:
        """Ids and vectors as a table of Arrow."""
        return pq.read_table(self.path)

    to_arrow = table

    @property
    def ids(self) -> list[Any]:
        """Ids in the order of `vectors`."""
        found: list[Any] = pq.read_table(self.path, columns=["id"])["id"].to_pylist()
        return found

    @property
    def vectors(self) -> Floats:
        """Vectors, nodes x dimensions."""
        column = pq.read_table(self.path, columns=["vector"])["vector"]
        flat = column.combine_chunks().flatten().to_numpy()
        return np.asarray(flat.reshape(-1, column.type.list_size))

    def to_pandas(self) -> Any:
        """Vectors as a frame of pandas, named by their ids."""
        table = self.table()
        names = {name: table[name] for name in table.column_names if name != "vector"}
        return indexed_frame(names, self.vectors)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.vectors, dtype, copy=copy)

    def __getitem__(self, node: int | str) -> Floats:
        """Vector of a new node."""
        if not is_id(node):
            raise TypeError(
                f"new[...] takes the id of one new node, not {kind_of(node)}. For several use "
                "to_pandas().loc[[...]]; all are new.vectors, in the order of new.ids."
            )
        found = self._rows(node)
        if not found.num_rows:
            raise KeyError(f"{plain_id(node)!r} is none of the new nodes: see their ids.")
        return np.asarray(found["vector"][0].values.to_numpy())

    def __contains__(self, node: object) -> bool:
        return is_id(node) and bool(self._rows(node).num_rows)

    def __iter__(self) -> Iterator[Any]:
        """The ids, in the order of `vectors`."""
        return iter(self.ids)

    def _rows(self, node: Any) -> pa.Table:
        """The row of a new node; nothing where there is none."""
        written = ds.dataset(self.path)
        try:
            wanted = pa.scalar(plain_id(node), written.schema.field("id").type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return written.schema.empty_table()
        return written.to_table(filter=pc.field("id") == wanted)

    def __len__(self) -> int:
        return int(self.counts["nodes_folded_in"])

    def _facts(self) -> dict[str, str]:
        counts = {name: value for name, value in self.counts.items() if value}
        return {name.replace("_", " "): f"{value:,}" for name, value in counts.items()}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<FoldedNodes {self.path}: {facts}>"

    def _repr_html_(self) -> str:
        return facts_html(f"figrl new nodes, {self.path}", self._facts())


def fold_into(
    store: PathLike,
    run: str | None,
    edges: Edges,
    out: PathLike | None,
    options: FoldInOptions,
    session: Session,
    *,
    overwrite: bool = False,
) -> FoldedNodes:
    """Fold new nodes into a run; without `out`, to a temporary folder.

    In each edge the new node comes first, unless `options` name its column. A warning says how many
    new nodes have no edge to a node of the graph.
    """
    keep = TemporaryFolder() if out is None else None
    if keep is not None:
        keep.check_seen_by(session.client)
    target = local_path(out) if keep is None else keep.path / "vectors"  # type: ignore[arg-type]
    report = run_fold_in(store, edges, target, options, session, run=run, overwrite=overwrite)
    _warn_of_zeros(report["counts"])
    return FoldedNodes(Path(report["out"]), report["counts"], keep)


def _warn_of_zeros(counts: Mapping[str, int]) -> None:
    """Tell of new nodes that no edge links to the graph."""
    new, alone = counts["nodes_folded_in"], counts["nodes_without_known_neighbour"]
    if not alone:
        return
    has, vectors = ("has", "its vector is") if alone == 1 else ("have", "their vectors are")
    unless = ", but for what new neighbours pass on" if counts["edges_between_new_nodes"] else ""
    text = (
        f"{alone:,} of {new:,} new nodes {has} no edge to a node of the graph: {vectors} "
        f"zero{'' if alone == 1 else 's'}{unless}. The new node comes first in an edge, and the "
        "second has to have an id of the graph."
    )
    warnings.warn(text, stacklevel=_CALLER)
