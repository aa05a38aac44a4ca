"""New nodes with their vectors, as fold-in gives them to Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.api.tables import indexed_frame
from figrl.api.temporary import TemporaryFolder
from figrl.engine.session import Session
from figrl.ingestion.inputs import Edges
from figrl.serve.fold_in import FoldInOptions, run_fold_in
from figrl.store.layout import PathLike
from figrl.store.matrix import Floats
from figrl.store.places import local_path
from figrl.units import facts_html


@dataclass(frozen=True)
class FoldedNodes:
    """New nodes that were given vectors.

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
    """Fold new nodes into a run; without `out`, to a temporary folder."""
    keep = TemporaryFolder() if out is None else None
    if keep is not None:
        keep.check_seen_by(session.client)
    target = local_path(out) if keep is None else keep.path / "vectors"  # type: ignore[arg-type]
    report = run_fold_in(store, edges, target, options, session, run=run, overwrite=overwrite)
    return FoldedNodes(Path(report["out"]), report["counts"], keep)
