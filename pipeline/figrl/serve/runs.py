"""A run, from the stored graph to its manifest: learn, align with the published run, commit."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import distributed

from figrl.engine.local_runner import run_in_one_worker
from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.engine.worker import release_buffers
from figrl.errors import ConfigError
from figrl.learn.embed import describe_run, embed_stages, run_name
from figrl.learn.plan import EmbedPlan, plan_embedding
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.serve.align import align_stages, replace_rotated
from figrl.serve.attempts import attempt
from figrl.serve.embedding import Embedding
from figrl.serve.publish import is_reindexed, publish_run
from figrl.store.files import delete, exists, free_bytes, size_bytes
from figrl.store.graph import Graph, open_graph
from figrl.store.layout import PathLike, StorePaths, existing_store, read_manifest, write_manifest


def run_embed(
    store: PathLike,
    config: EmbedOptions,
    session: Session,
    *,
    publish: bool | None = None,
    version: str | None = None,
) -> dict[str, Any]:
    """Learn a run, publish it without gates, and return a report; see `figrl.embed`.

    `publish`: by default, unless `reindex` publishes the runs of the store. There it takes gates,
    as in `figrl.nightly.embed`. `version`: the graph; by default the one that was ingested last.
    """
    paths = existing_store(store)
    graph = open_graph(paths, version)
    # Wrong options are refused before a cluster is started.
    make_spec(config, nodes=graph.nodes, mean_degree=graph.mean_degree)
    with session.open() as client, paths.locked("embed") as lock:
        gated = is_reindexed(paths)
        if publish and gated:
            raise ConfigError(
                f"The runs of {paths.root} are published by figrl reindex, through gates. Give "
                "--publish yes to figrl embed, or publish=True to figrl.embed."
            )
        wanted = not gated if publish is None else publish
        with attempt(paths, "embed") if wanted else nullcontext() as made:
            graph = open_graph(paths, version)
            name, done_before = learn_run(client, paths, graph, config, session)
            lock.note(run=name, result="done" if made is None else "published")
            if made is not None:
                made.note(run=name)
                publish_run(paths, name, lock, hand_over=True)
    return describe_embed(paths, name, done_before=done_before, gated=gated)


def describe_embed(
    paths: StorePaths, run: str, *, done_before: bool, gated: bool, **facts: Any
) -> dict[str, Any]:
    """The report of `embed`; `gated`: whether `reindex` publishes the runs of the store."""
    manifest = read_manifest(paths.run(run))
    return {
        "store": str(paths.root),
        "already_done": done_before,
        "published": paths.current_run() == run,
        "gated": gated,
        **{key: value for key, value in manifest.items() if key != "format"},
        **facts,
    }


def learn_run(
    client: distributed.Client,
    paths: StorePaths,
    graph: Graph,
    config: EmbedOptions,
    session: Session,
    *,
    reference: Embedding | None = None,
    facts: dict[str, Any] | None = None,
) -> tuple[str, bool]:
    """Learn a run in a locked store; return its name, and whether it was complete before.

    `reference`: run onto whose vectors the new ones are rotated. `facts`: added to the manifest.
    """
    plan = plan_embedding(graph, config, session.memory(client))
    name = run_name(plan.setup, None if reference is None else reference.run)
    folder = paths.run(name)
    done_before = exists(folder / "manifest.json")
    if not done_before:
        # The plan counts what an earlier attempt has written, but not the rotated arrays.
        rotated_bytes = 0 if reference is None else 8 * graph.nodes * plan.setup.spec.dim
        plan.check(free_bytes(paths.root) + size_bytes(folder) - rotated_bytes)
        for note in plan.notes:
            session.monitor.note(note)
        marks = folder / "work" / "marks"
        runner = ClusterRunner(client, marks, session.monitor, plan.memory)
        manifest = learn_stages(runner, plan.in_folder(folder))
        if reference is not None:
            chunk_rows = plan.setup.geometry.chunk_rows
            rotated = plan.setup.spec.directions
            manifest |= runner.run(align_stages(folder, graph, reference, chunk_rows, rotated))
            replace_rotated(folder)
        write_manifest(folder, {**manifest, **(facts or {}), **runner.describe()})
    elif config.keep_sketch and not exists(folder / "sketch"):
        session.monitor.note(
            f"Run {name} is complete, and its sketch was deleted when it was. To have it, delete "
            f"{folder} and run the same command again."
        )
    delete(folder / "work")
    return name, done_before


def learn_stages(runner: ClusterRunner, plan: EmbedPlan) -> dict[str, Any]:
    """Run the stages of a plan; return what the manifest says of it."""
    setup, started = plan.setup, time.time()
    # A job that failed may have left its buffers in the workers.
    runner.on_every_worker(release_buffers)
    runner.monitor.planned(plan.predicted_seconds())
    if setup.is_small:
        facts = run_in_one_worker(runner, "embed", embed_stages, setup)
    else:
        facts = runner.run(embed_stages(setup))
    runner.on_every_worker(release_buffers)
    if facts["rank"] < setup.spec.directions:
        runner.monitor.note(
            f"Only {facts['rank']} of {setup.spec.directions} eigenvectors carry information: the "
            "graph has no more directions above the level of rounding. The others are zero."
        )
    described = describe_run(setup, facts, started)
    return {**described, "config": plan.options.significant(), "plan": plan.describe()}
