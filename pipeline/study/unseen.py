"""Nodes that are held back while a graph is learnt, and folded in afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from pipeline.api import Session, run_embed, run_ingest
from pipeline.config import EmbedConfig, FoldInConfig, IngestConfig
from pipeline.serve.embedding import open_store
from pipeline.serve.fold_calls import run_fold_in
from pipeline.study.workbench import Integers, write_pairs

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class HalfSeen:
    """Vectors of a graph of which some nodes were not seen.

    Attributes
    ----------
    ids, vectors
        Of the nodes that were learnt.
    new_ids, new_vectors
        Of the nodes that were folded in.
    """

    ids: Integers
    vectors: Vectors
    new_ids: Integers
    new_vectors: Vectors

    def places(self, ids: Integers) -> Integers:
        """Where nodes are among those learnt and then those folded in; -1 for one in neither."""
        known = np.concatenate([self.ids, self.new_ids])
        order = np.argsort(known)
        found = order[np.searchsorted(known[order], ids).clip(max=known.size - 1)]
        return np.where(known[found] == ids, found, -1)


def draw(ids: Integers, share: float, seed: int) -> Integers:
    """Nodes that are held back, at random."""
    rng = np.random.default_rng(seed)
    return rng.choice(ids, round(share * ids.size), replace=False)


def learn_without(
    folder: Path, pairs: Integers, held: Integers, config: EmbedConfig, session: Session
) -> HalfSeen:
    """Learn a graph without some of its nodes, and fold them in.

    Parameters
    ----------
    folder : Path
        An empty folder.
    pairs : int64 array, shape (edges, 2)
    held : int64 array
        Nodes that are held back. One of which all edges are held back with others was not learnt
        either, and so is new too.
    config : EmbedConfig
    session : Session
    """
    is_held = np.isin(pairs, held)
    is_held = ~np.isin(pairs, pairs[~is_held.any(axis=1)])
    # An edge of a new node is given with that node first; of two of them, both ways round.
    new = np.concatenate([pairs[is_held[:, 0]], pairs[is_held[:, 1]][:, ::-1]])
    known_path = write_pairs(folder / "known.parquet", pairs[~is_held.any(axis=1)])
    new_path = write_pairs(folder / "new.parquet", new)
    store = folder / "store"
    run_ingest(known_path, store, IngestConfig(), session)
    run_embed(store, config, session)
    run_fold_in(store, new_path, folder / "out.parquet", FoldInConfig(), session)
    learnt = open_store(store).embedding()
    folded = pq.read_table(folder / "out.parquet")
    flat = folded["vector"].combine_chunks().flatten().to_numpy()
    return HalfSeen(
        learnt.ids().to_numpy(),
        np.asarray(learnt.vectors),
        folded["id"].to_numpy(),
        flat.reshape(folded.num_rows, -1),
    )
