"""Folding new nodes into the published run, again and again through the day."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.runner import ClusterRunner, map_on_workers
from figrl.engine.session import Session
from figrl.engine.stage import Memory, Stage, Stages, Stats, numbered
from figrl.errors import ConfigError
from figrl.ingestion.listing import find_files
from figrl.ingestion.opening import save_as
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.fold_blocks import BLOCK_ROWS
from figrl.serve.fold_in import FoldIn, FoldInOptions, keep_quarantine
from figrl.serve.output import part_path
from figrl.serve.overlay import check_edges, kept_edges, open_overlay, vectors_path
from figrl.store import files
from figrl.store.ids import range_path, write_ids
from figrl.store.layout import PathLike, StorePaths, existing_store, write_manifest
from figrl.store.lease import not_in_use
from figrl.store.objects import RemoteFile


def run_fold_publish(
    store: PathLike, edges: PathLike | Sequence[PathLike], config: FoldInOptions, session: Session
) -> dict[str, Any]:
    """Fold in new nodes, serve them with the published run, and return a report."""
    started = time.perf_counter()
    paths = existing_store(store)
    incoming = find_files(edges, session.storage)
    if config.known == "recompute":
        raise ConfigError(
            "--publish adds nodes that are new; vectors of known ones are learnt again by the next "
            "re-indexing. Leave --known recompute out."
        )
    with session.open() as client, paths.locked("fold-in") as lock:
        embedding = open_store(paths.root).embedding()
        job = FoldIn(embedding, config).with_side()
        job.inspect(client, incoming)
        config = job.config
        _keep_options(embedding, config)
        done = refresh_overlay(client, paths, embedding, config, session, incoming)
        result = "nothing to do" if done["already_done"] else "published"
        lock.note(run=embedding.run, result=result)
    return {
        "store": str(paths.root),
        "run": embedding.run,
        **done,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _keep_options(embedding: Embedding, config: FoldInOptions) -> None:
    """Refuse other options than before: all edges of a run are folded in together."""
    path = embedding.path / "overlay" / "options.json"
    wanted = config.significant()
    if files.exists(path) and kept_edges(embedding.path) and files.read_record(path) != wanted:
        raise ConfigError(
            f"Edges were folded into run {embedding.run} with other options before: "
            f"{files.read_record(path)}. Give the same ones until the next run is published."
        )
    files.write_record(path, wanted)


def refresh_overlay(
    client: distributed.Client,
    paths: StorePaths,
    embedding: Embedding,
    config: FoldInOptions,
    session: Session,
    more: Sequence[str | Path | RemoteFile],
) -> dict[str, Any]:
    """Fold in all edges that are kept with a run, and those of more files, unless that was done.

    Files are kept only after they were folded in: a bad one would make every later fold-in fail.
    """
    arrivals = paths.work / f"incoming-{embedding.run}"
    incoming = _copy_new_files(client, more, embedding, arrivals)
    there = open_overlay(embedding.path)
    check_edges(embedding.path, there)
    every = sorted([*kept_edges(embedding.path), *incoming], key=lambda path: path.name)
    names = [path.name for path in every]
    version = files.digest([embedding.run, names, config.significant()])
    if there is not None and there.path.name == version:
        files.delete(arrivals)
        nothing: dict[str, Any] = {"stages": [], "workers": [], "quarantine": None}
        return {"already_done": True, "counts": there.facts["counts"], **nothing}
    memory = session.memory(client)
    job = FoldIn(embedding, config)
    job.check_memory(memory)
    sources = job.inspect(client, [str(path) for path in every])
    folder, overlay = paths.work / f"overlay-{version}", embedding.path / "overlay"
    runner = ClusterRunner(client, folder / "marks", session.monitor, memory)
    counts = job.run(runner, sources, memory, folder / "parts")
    rejected = paths.root / "quarantine" / f"fold-in-{version}.quarantine"
    quarantine = keep_quarantine(folder, rejected)
    for path in incoming:
        files.move(path, overlay / "edges" / path.name)
    starts = runner.run(overlay_stages(folder / "parts", overlay / version, embedding.dim))
    facts = {"counts": counts, "files": names, "dim": embedding.dim, "created": time.time()}
    made = {"starts": starts, "side": config.side, "config": config.significant()}
    _commit_version(overlay / version, {**facts, **made})
    files.delete(folder)
    files.delete(arrivals)
    return {"already_done": False, "counts": counts, "quarantine": quarantine, **runner.describe()}


def _copy_new_files(
    client: distributed.Client,
    given: Sequence[str | Path | RemoteFile],
    embedding: Embedding,
    folder: Path,
) -> list[Path]:
    """Copy files of edges to a folder, but those that are kept with the run already."""
    files.delete(folder)
    map_on_workers(client, copy_file, [(_as_path(file), folder) for file in given])
    kept = {path.name.partition("-")[0] for path in kept_edges(embedding.path)}
    return [path for path in files.list_prefix(folder) if path.name.partition("-")[0] not in kept]


def _as_path(file: str | Path | RemoteFile) -> Path | RemoteFile:
    return file if isinstance(file, RemoteFile) else Path(file)


def copy_file(path: Path | RemoteFile, folder: Path) -> None:
    """Copy a file; its new name begins with a digest, so that the same edges never count twice."""
    if isinstance(path, RemoteFile):
        _, _, name = str(path).rpartition("/")
        copy = folder / f"copy-{files.digest(str(path))}"
        save_as(path, copy)
        files.move(copy, folder / f"{files.file_digest(copy)[:16]}-{name}")
        return
    content = files.file_digest(path)[:16]
    # A file that was kept with another run has its digest in its name already.
    files.copy(path, folder / f"{content}-{path.name.removeprefix(f'{content}-')}")


def overlay_stages(parts: Path, version: Path, dim: int) -> Stages[list[int]]:
    """Convert folded-in parts; return the first row of each, and the number of rows at the end."""
    converted = yield Stage(
        "overlay",
        convert_part,
        numbered(parts, len(files.list_prefix(parts, "part-*.parquet")), version),
        # Vectors as read from Parquet, flattened, and written.
        memory=Memory(task_bytes=3 * 4 * dim * BLOCK_ROWS),
        reads=(parts,),
    )
    sizes = [converted.stats[key]["rows"] for key in sorted(converted.stats)]
    return [0, *np.cumsum(sizes).tolist()]


def convert_part(parts: Path, number: int, version: Path) -> Stats:
    """Write a part of folded-in vectors as sorted ids and a NumPy array."""
    table = pq.read_table(part_path(parts, number))
    ids, vectors = (table[name].combine_chunks() for name in ("id", "vector"))
    flat = vectors.flatten().to_numpy().reshape(len(table), vectors.type.list_size)
    if not pa.types.is_integer(ids.type):
        ids = ids.cast(pa.large_string())
    written = write_ids(range_path(version / "ids", number), {"id": ids})
    files.save_array(vectors_path(version, number), np.ascontiguousarray(flat))
    return {"rows": len(table), "written_bytes": written + flat.nbytes}


def _commit_version(version: Path, manifest: dict[str, Any]) -> None:
    """Make a version the one in use; delete older ones that nobody reads."""
    write_manifest(version, manifest)
    files.write_text(version.with_name("current"), version.name + "\n", durable=True)
    kept = {"current", "edges", "options.json", version.name}
    for other in files.list_prefix(version.parent):
        if other.name not in kept:
            with not_in_use(other) as free:
                if free:
                    files.delete(other)


def carry_overlay(
    client: distributed.Client, paths: StorePaths, old: Embedding, new: Embedding, session: Session
) -> int:
    """Fold the kept edges of the old run into a new one; return the number of nodes.

    No node that was served before goes missing, and none is counted twice: nodes of the new graph
    are skipped.
    """
    kept = kept_edges(old.path)
    if not kept:
        return 0
    config = FoldInOptions(**files.read_record(old.path / "overlay" / "options.json"))
    files.write_record(new.path / "overlay" / "options.json", config.significant())
    done = refresh_overlay(client, paths, new, config, session, kept)
    carried = int(done["counts"]["nodes_folded_in"])
    if not carried:
        files.delete(new.path / "overlay")
    return carried
