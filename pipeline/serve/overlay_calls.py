"""Folding new nodes into the published run, again and again through the day."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed

from pipeline.api import PathLike, Session
from pipeline.cluster import client_at_hand
from pipeline.config import FoldInConfig
from pipeline.errors import ConfigError
from pipeline.files import digest, read_json, remove, write_json, written_aside
from pipeline.ingest.sources import find_files
from pipeline.run import ClusterJob, cluster_memory, map_once
from pipeline.serve.embedding import Embedding, open_store
from pipeline.serve.fold_calls import (
    check_fold_memory,
    fold_parts,
    inspect_new_edges,
    keep_quarantine,
)
from pipeline.serve.overlay import kept_edges, open_overlay, overlay_folder, write_overlay
from pipeline.store import StorePaths, existing_store

_COPIED_BYTES = 1 << 22


def run_fold_publish(
    store: PathLike,
    edges: PathLike | Sequence[PathLike],
    config: FoldInConfig,
    session: Session,
) -> dict[str, Any]:
    """Fold in new nodes and serve them with the published run; tell what happened."""
    started = time.perf_counter()
    paths = existing_store(store)
    files = find_files([edges] if isinstance(edges, str | os.PathLike) else edges)
    if config.known == "recompute":
        raise ConfigError(
            "--publish adds nodes that are new; vectors of known ones are learnt again by the next "
            "re-indexing. Leave --known recompute out."
        )
    with client_at_hand(session.client, session.limit_bytes) as client, paths.locked("fold-in"):
        embedding = open_store(paths.root).embedding()
        inspect_new_edges(client, files, embedding, config)
        _same_options(embedding, config)
        done = refresh_overlay(client, paths, embedding, config, session, files)
    return {
        "store": str(paths.root),
        "run": embedding.run,
        **done,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _same_options(embedding: Embedding, config: FoldInConfig) -> None:
    """All edges of a day are read in one way, because late ones belong to nodes of early ones."""
    path = overlay_folder(embedding.path) / "options.json"
    wanted = config.significant()
    if path.exists() and kept_edges(embedding.path) and read_json(path) != wanted:
        raise ConfigError(
            f"Edges were folded into run {embedding.run} with other options before: "
            f"{read_json(path)}. Give the same ones until the next run is published."
        )
    write_json(path, wanted)


def _take_in(
    client: distributed.Client, paths: StorePaths, files: Sequence[str | Path], embedding: Embedding
) -> list[Path]:
    """Copy files of edges into a folder where they wait until they have proved to be good.

    One that is kept with the run already is left out.
    """
    folder = paths.work / f"incoming-{embedding.run}"
    remove(folder)
    folder.mkdir(parents=True)
    map_once(client, take_file, [(str(file), folder) for file in files])
    kept = {path.name.partition("-")[0] for path in kept_edges(embedding.path)}
    return [path for path in sorted(folder.iterdir()) if path.name.partition("-")[0] not in kept]


def take_file(path: str, folder: Path) -> str:
    """Copy a file under a name made of its content, so that the same edges never count twice."""
    content = hashlib.blake2b(digest_size=8)
    with Path(path).open("rb") as file:
        while part := file.read(_COPIED_BYTES):
            content.update(part)
    known = content.hexdigest()
    name = Path(path).name
    # Kept with another run before, it has the name of its content already.
    target = folder / (name if name.startswith(f"{known}-") else f"{known}-{name}")
    with written_aside(target) as aside:
        shutil.copyfile(path, aside)
    return known


def refresh_overlay(
    client: distributed.Client,
    paths: StorePaths,
    embedding: Embedding,
    config: FoldInConfig,
    session: Session,
    files: Sequence[str | Path],
) -> dict[str, Any]:
    """Fold in all edges that are kept with a run, and those of more files, unless that was done.

    Files are kept when they have been folded in: bad ones would else be in the way for ever.
    """
    incoming = _take_in(client, paths, files, embedding)
    paths_of_all = sorted([*kept_edges(embedding.path), *incoming], key=lambda path: path.name)
    names = [path.name for path in paths_of_all]
    version = digest([embedding.run, names, config.significant()])
    there = open_overlay(embedding.path)
    if there is not None and there.path.name == version:
        remove(paths.work / f"incoming-{embedding.run}")
        nothing: dict[str, Any] = {"stages": [], "workers": [], "quarantine": None}
        return {"already_done": True, "counts": there.facts["counts"], **nothing}
    memory = cluster_memory(client, session.limit_bytes)
    check_fold_memory(embedding, memory)
    sources = inspect_new_edges(client, [str(path) for path in paths_of_all], embedding, config)
    folder = paths.work / f"overlay-{version}"
    job = ClusterJob(client, folder / "marks", session.monitor)
    parts = folder / "parts"
    counts, blocks = fold_parts(job, client, sources, embedding, config, memory, folder, parts)
    facts = {"counts": counts, "files": names, "dim": embedding.dim, "created": time.time()}
    quarantine = keep_quarantine(
        folder / "graph" / "quarantine", paths.root / "quarantine" / f"fold-in-{version}"
    )
    for path in incoming:
        target = overlay_folder(embedding.path) / "edges" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    write_overlay(job, parts, blocks, embedding.path, version, facts)
    remove(folder)
    remove(paths.work / f"incoming-{embedding.run}")
    return {"already_done": False, "counts": counts, "quarantine": quarantine, **job.describe()}


def carry_overlay(
    client: distributed.Client,
    paths: StorePaths,
    old: Embedding,
    new: Embedding,
    session: Session,
) -> int:
    """Fold what arrived since the old run into a new one; the nodes that it did not learn itself.

    Nothing that was served yesterday is missing today, and nothing is counted twice: a node that
    the new graph has is left out.
    """
    files = kept_edges(old.path)
    if not files:
        return 0
    config = FoldInConfig(**read_json(overlay_folder(old.path) / "options.json"))
    write_json(overlay_folder(new.path) / "options.json", config.significant())
    done = refresh_overlay(client, paths, new, config, session, files)
    carried = int(done["counts"]["nodes_folded_in"])
    if not carried:
        remove(overlay_folder(new.path))
    return carried
