"""The calls of a notebook, and of the jobs, that make things: ingest and embed.

Each takes the Dask client it is given, or the one at hand, or starts a local cluster. Each can be
stopped at any moment and called again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed

from pipeline.cluster import client_at_hand, parse_memory
from pipeline.config import EmbedConfig, IngestConfig, make_config
from pipeline.errors import ConfigError
from pipeline.files import digest, free_bytes, remove, size_bytes
from pipeline.graph import Graph, open_graph
from pipeline.ingest.build import build_graph
from pipeline.ingest.sources import SourceFile, agree, find_files, inspect_file
from pipeline.job import Monitor, Silent
from pipeline.learn.embed import run_name, run_stages
from pipeline.near import run_near
from pipeline.plan import plan_embedding
from pipeline.recipe import make_recipe
from pipeline.run import ClusterJob, cluster_memory, map_once
from pipeline.serve.align import align_run
from pipeline.serve.embedding import Embedding, open_store
from pipeline.serve.publish import publish_run
from pipeline.store import (
    FORMAT,
    StorePaths,
    existing_store,
    read_manifest,
    store_paths,
    write_manifest,
)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Session:
    """Where a call runs and who watches it."""

    client: distributed.Client | None = None
    memory_limit: str | int | None = None
    monitor: Monitor = field(default_factory=Silent)

    def connected(self) -> distributed.Client:
        """The client, which has to be there."""
        if self.client is None:
            raise ConfigError("There is no Dask client.")
        return self.client

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit per worker process, in bytes."""
        if isinstance(self.memory_limit, str):
            return parse_memory(self.memory_limit)
        return self.memory_limit


def ingest(
    edges: PathLike | Sequence[PathLike],
    *,
    store: PathLike,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    **options: Any,
) -> Graph:
    """Turn edge lists into a stored graph.

    Parameters
    ----------
    edges : path or sequence of paths
        Files, folders or glob patterns of Parquet, CSV or text.
    store : path
        Folder of the store, on a file system that all workers share.
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use, such as ``"2GB"``; by default the worker's own.
    **options
        Fields of `pipeline.config.IngestConfig`: ``source``, ``target``, ``weight``, ``ids``,
        ``on_bad_edges``, ``block_rows``.

    Returns
    -------
    Graph
    """
    session = Session(client, memory_limit)
    report = run_ingest(edges, store, make_config(IngestConfig, options), session)
    return open_graph(existing_store(store), report["graph_version"])


def run_ingest(
    edges: PathLike | Sequence[PathLike], store: PathLike, config: IngestConfig, session: Session
) -> dict[str, Any]:
    """Ingest and tell what happened; see `ingest`."""
    paths = store_paths(store)
    files = find_files([edges] if isinstance(edges, str | os.PathLike) else edges)
    with client_at_hand(session.client, session.limit_bytes) as client, paths.locked("ingest"):
        sources = inspect_files(client, files, config)
        version, done_before = ingest_graph(client, paths, sources, config, session)
        paths.set_latest_graph(version)
    manifest = read_manifest(paths.graph(version))
    return {
        "store": str(paths.root),
        "graph_version": version,
        "already_done": done_before,
        **manifest["graph"],
        **{key: value for key, value in manifest.items() if key not in ("graph", "format")},
    }


def ingest_graph(
    client: distributed.Client,
    paths: StorePaths,
    sources: Sequence[SourceFile],
    config: IngestConfig,
    session: Session,
) -> tuple[str, bool]:
    """Store a graph in a store that is locked; its name, and whether it was there before."""
    started = time.perf_counter()
    agree(sources, config)
    version = digest(ingest_identity(sources, config))
    folder = paths.graph(version)
    done_before = (folder / "manifest.json").exists()
    if not done_before:
        memory = cluster_memory(client, session.limit_bytes)
        job = ClusterJob(client, folder / "work" / "marks", session.monitor)
        facts = build_graph(job, sources, config, memory, folder)
        manifest = {
            "graph": facts,
            "config": config.significant(),
            "files": len(sources),
            "input_bytes": sum(source.size_bytes for source in sources),
            "created": round(time.time(), 3),
            "seconds": round(time.perf_counter() - started, 3),
            **job.describe(),
        }
        write_manifest(folder, manifest)
    remove(folder / "work")
    return version, done_before


def ingest_identity(sources: Sequence[SourceFile], config: IngestConfig) -> Any:
    """All that makes a stored graph what it is: the input, and how it is read."""
    return [FORMAT, config.significant(), [source.fingerprint for source in sources]]


def inspect_files(
    client: distributed.Client, files: Sequence[str], config: IngestConfig
) -> list[SourceFile]:
    """Look at the head of each file, on the workers."""
    return map_once(client, inspect_file, [(path, config) for path in files])


def embed(
    store: PathLike,
    *,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    **options: Any,
) -> Embedding:
    """Learn one vector per node of the graph that was ingested last, and publish them.

    Parameters
    ----------
    store : path
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use, such as ``"2GB"``; by default the worker's own.
    **options
        Fields of `pipeline.config.EmbedConfig`: ``preset``, ``dim``, ``sketch_size``, ``epsilon``,
        ``power_iterations``, ``regularization``, ``representation``, ``exponent``,
        ``smoothing``, ``projection``, ``certificate``, ``seed``.

    Returns
    -------
    Embedding
    """
    session = Session(client, memory_limit)
    report = run_embed(store, make_config(EmbedConfig, options), session)
    return open_store(Path(store)).embedding(report["run"])


def run_embed(store: PathLike, config: EmbedConfig, session: Session) -> dict[str, Any]:
    """Embed and tell what happened; see `embed`."""
    paths = existing_store(store)
    early = open_graph(paths)
    make_recipe(config, nodes=early.nodes, mean_degree=early.mean_degree)
    with (
        client_at_hand(session.client, session.limit_bytes) as client,
        paths.locked("embed") as lock,
    ):
        name, done_before = learn_run(client, paths, open_graph(paths), config, session)
        publish_run(paths, name, lock, hand_over=True)
    manifest = read_manifest(paths.run(name))
    return {
        "store": str(paths.root),
        "already_done": done_before,
        **{key: value for key, value in manifest.items() if key != "format"},
    }


def learn_run(
    client: distributed.Client,
    paths: StorePaths,
    graph: Graph,
    config: EmbedConfig,
    session: Session,
    *,
    reference: Embedding | None = None,
    facts: dict[str, Any] | None = None,
) -> tuple[str, bool]:
    """Learn a run in a store that is locked; its name, and whether it was there before.

    Parameters
    ----------
    client, paths, graph, config, session
    reference : Embedding, optional
        Run onto whose vectors the new ones are rotated.
    facts : dict, optional
        What the manifest is to say too.
    """
    plan = plan_embedding(graph, config, cluster_memory(client, session.limit_bytes))
    name = run_name(plan, None if reference is None else reference.run)
    folder = paths.run(name)
    done_before = (folder / "manifest.json").exists()
    if not done_before:
        # What an attempt before this one wrote is there already; turned arrays come on top.
        turned = 0 if reference is None else 8 * graph.nodes * plan.recipe.dim
        plan.check(free_bytes(paths.root) + size_bytes(folder) - turned)
        for note in plan.notes:
            session.monitor.note(note)
        job = ClusterJob(client, folder / "work" / "marks", session.monitor)
        if plan.is_small:
            manifest = run_near(job, "embedding", run_stages, plan, folder)
        else:
            manifest = run_stages(job, plan, folder)
        if reference is not None:
            manifest |= align_run(job, folder, graph, reference)
        for litter in folder.glob(".*.tmp"):
            remove(litter)
        write_manifest(folder, {**manifest, **(facts or {})})
    remove(folder / "work")
    return name, done_before
