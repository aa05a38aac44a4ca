"""`embed` on a store of any kind: where `reindex` publishes, only asked to, and through gates."""

from __future__ import annotations

from typing import Any

from figrl.engine.session import Session
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.nightly.metrics import metrics_of_job
from figrl.nightly.publishing import Publisher, kept_options, name_input
from figrl.serve.attempts import attempt
from figrl.serve.embedding import StoreView
from figrl.serve.publish import is_reindexed, note_published
from figrl.serve.runs import describe_embed, run_embed
from figrl.store.graph import Graph, open_graph
from figrl.store.layout import PathLike, existing_store


def embed_store(
    store: PathLike,
    config: EmbedOptions,
    session: Session,
    *,
    publish: bool | None = None,
    version: str | None = None,
) -> dict[str, Any]:
    """Learn a run, publish it and return a report; see `figrl.embed`.

    `version`: the graph; by default the one that was ingested last.

    Raises
    ------
    GateError
        If the store is published by `reindex` and a gate of its refused the run.
    """
    paths = existing_store(store)
    if not publish or not is_reindexed(paths):
        return run_embed(store, config, session, publish=publish, version=version)
    graph = open_graph(paths, version)
    make_spec(config, nodes=graph.nodes, mean_degree=graph.mean_degree)
    options = kept_options(paths)
    with session.open() as client, paths.locked("embed") as lock:
        note_published(paths)
        with metrics_of_job(paths, options.metrics), attempt(paths, "embed") as made:
            publisher = Publisher(options, session, client, paths, lock, made)
            report = _publish(publisher, config, open_graph(paths, version))
        unchanged = report["already_done"] and "gates" not in report
        lock.note(run=report["run"], result="nothing to do" if unchanged else "published")
    return report


def _publish(publisher: Publisher, config: EmbedOptions, graph: Graph) -> dict[str, Any]:
    """Learn and publish, unless that was done."""
    paths = publisher.paths
    published = StoreView(paths).embedding() if paths.current_run() else None
    night = name_input(graph, config, align=publisher.options.align)
    if published is not None and published.manifest.get("night") == night:
        publisher.attempt.result = "nothing to do"
        publisher.attempt.note(run=published.run)
        return describe_embed(paths, published.run, done_before=True, gated=True)
    run, done_before = publisher.learn(graph, config, published)
    found = publisher.publish(run, published)
    publisher.retire()
    facts = {"gates": found["gates"], "report": found["report"]}
    return describe_embed(paths, run, done_before=done_before, gated=True, **facts)
