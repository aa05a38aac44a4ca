"""The nightly job: ingest, embed, align, check, publish, retire. Safe to start at any time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from figrl.engine.logs import logging_to
from figrl.engine.session import Session
from figrl.errors import ConfigError, FigrlError, system_error
from figrl.ingestion.ingest import ingest_graph
from figrl.ingestion.inputs import inspect_files
from figrl.nightly.config import ReindexConfig, source_files
from figrl.nightly.metrics import metrics_of_job, write_metrics
from figrl.nightly.publishing import Publisher, PublishOptions, keep_options, name_input
from figrl.serve import publish
from figrl.serve.attempts import Attempt, attempt
from figrl.serve.embedding import Embedding, StoreView
from figrl.serve.index import import_usearch
from figrl.store.files import exists
from figrl.store.graph import Graph, open_graph
from figrl.store.ids import IdKind, check_id_kind
from figrl.store.jobs import current_owner, exit_code_of, record_failure, result_of
from figrl.store.layout import StorePaths, read_manifest, store_paths
from figrl.store.reserve import tell
from figrl.store.sides import GraphKind


@contextmanager
def in_keys() -> Iterator[None]:
    """Raise errors in the words of the configuration, in which they are recorded too."""
    try:
        yield
    except Exception as error:
        known = error if isinstance(error, FigrlError) else system_error(error)
        if known is None:
            raise
        # What the words are made of is loaded where it is needed.
        from figrl.nightly.words import yaml_words

        cause = error.__cause__ if known is error else error
        raise known.reworded(yaml_words(known.message)) from cause


@contextmanager
def starting(config: ReindexConfig) -> Iterator[None]:
    """Tell of a night that ends before it begins, as when no cluster answers."""
    try:
        with in_keys():
            yield
    except BaseException as error:
        tell_failure(config.store, config.metrics, error)
        raise


def tell_failure(store: str, metrics: str | None, error: BaseException) -> None:
    """Record a night that ended before it had the lock of its store; a new store is not made."""
    with suppress(OSError, FigrlError):
        paths = store_paths(store)
        if exists(paths.graphs):
            record_failure(paths.root, "reindex", error)
            owner = current_owner(paths.root)
            if owner is None or owner["state"] != "alive":
                # A job that is at work makes an attempt of its own.
                Attempt(paths, "reindex").end_badly(error)
            write_metrics(paths, metrics, exit_code=exit_code_of(error))


def run_reindex(
    config: ReindexConfig, session: Session, *, publish_anyway: bool = False
) -> dict[str, Any]:
    """Bring the published run up to date with its sources; return a report.

    Raises
    ------
    GateError
        If a gate refused the run; the published one stays as it was.
    """
    paths = store_paths(config.store)
    if session.memory_limit is None and config.memory_limit is not None:
        session = replace(session, memory_limit=config.memory_limit)
    with ExitStack() as stack:
        with starting(config):
            if config.index == "approximate":
                import_usearch()
            client = stack.enter_context(session.open())
        lock = stack.enter_context(paths.locked("reindex"))
        log = stack.enter_context(logging_to(paths, "reindex", session.monitor))
        session = replace(session, monitor=log)
        lock.note(log=str(log.path))
        options = PublishOptions(**config.model_dump(include=set(PublishOptions.model_fields)))
        try:
            with (
                metrics_of_job(paths, config.metrics),
                attempt(paths, "reindex") as made,
                in_keys(),
            ):
                publisher = Publisher(
                    options, session, client, paths, lock, made, anyway=publish_anyway
                )
                report = _Night(config, publisher).run()
        except BaseException as error:
            result = result_of(error).replace("refused", "failed")
            facts = {"error": f"{type(error).__name__}: {error}", "exit_code": exit_code_of(error)}
            with suppress(OSError, FigrlError):
                tell(paths.root, partial(log.event, result, **facts))
            raise
        lock.note(run=report["withdrawn"] or report["run"], result=made.result, reason=made.reason)
        log.event("done", run=report["run"], nothing_to_do=report["nothing_to_do"])
        log.copy_to(paths.run(report["run"]))
        return report


@dataclass(frozen=True)
class _Night:
    """One run of the job. Its methods stand in the order in which they are called."""

    config: ReindexConfig
    publisher: Publisher
    started: float = field(default_factory=time.perf_counter)

    @property
    def paths(self) -> StorePaths:
        """Paths of the store."""
        return self.publisher.paths

    def run(self) -> dict[str, Any]:
        """The steps of the night; an up-to-date run needs only the first of them."""
        publish.note_published(self.paths)
        keep_options(self.paths, self.publisher.options)
        published = StoreView(self.paths).embedding() if self.paths.current_run() else None
        graph = self._ingest(published)
        night = name_input(graph, self.config.embed, align=self.config.align)
        withdrawn = None if published is None else self._withdrawn(published, night)
        if published is not None and (withdrawn or published.manifest.get("night") == night):
            # A job that was killed after publishing may have left the rest undone.
            self.publisher.build_index(published)
            self._note_nothing_to_do(withdrawn, published.run)
            made = self.publisher.attempt
            facts = {"nothing_to_do": True, "withdrawn": withdrawn, "reason": made.reason}
            return self._finish(published.run, published.graph, **facts)
        if self.paths.latest_graph() is None:
            # Without it the store cannot be opened, so a refused first run could not be inspected.
            self.paths.set_latest_graph(graph.version)
        run, _ = self.publisher.learn(graph, self.config.embed, published)
        facts = self.publisher.publish(run, published)
        return self._finish(run, graph, nothing_to_do=False, withdrawn=None, **facts)

    def _ingest(self, published: Embedding | None) -> Graph:
        """Store the graph of the sources; its kind and its type of ids are those published."""
        options, publisher = self.config.ingest, self.publisher
        if published is not None:
            _check_kind(options.kind, published)
        files = source_files(self.config, publisher.session.storage)
        sources = inspect_files(publisher.client, files, options)
        for source in sources:
            # Whether ids in text are integers is only known when all of it is read.
            certain = source.typed or source.id_kind == "string"
            if certain and not source.empty:
                _check_id_kind(source.name, source.id_kind, published)
        given = publisher.client, self.paths, sources, options, publisher.session
        version, _ = ingest_graph(*given)
        graph = open_graph(self.paths, version)
        _check_id_kind("the sources", graph.id_kind, published)
        return graph

    def _withdrawn(self, published: Embedding, night: str) -> str | None:
        """A run of this input that was rolled back, and is not to be published again by itself."""
        if published.manifest.get("night") == night or self.publisher.anyway:
            return None
        withdrawn = publish.withdrawn_runs(self.paths)
        for run in reversed(self.paths.finished_runs()):
            if run in withdrawn and read_manifest(self.paths.run(run)).get("night") == night:
                return run
        return None

    def _note_nothing_to_do(self, withdrawn: str | None, published: str) -> None:
        made = self.publisher.attempt
        made.result = "nothing to do" if withdrawn is None else "withdrawn"
        if withdrawn is not None:
            made.reason = (
                f"The sources are those of run {withdrawn}, which was rolled back, so {published} "
                f"stays published. To publish it again: figrl rollback {withdrawn} --store "
                f"{self.paths.root}"
            )
        made.note(run=withdrawn or published)

    def _finish(self, run: str, graph: Graph, **facts: Any) -> dict[str, Any]:
        """Delete what is no longer kept, and return the report of the job."""
        return {
            "store": str(self.paths.root),
            "run": run,
            "graph": graph.version,
            "nodes": graph.nodes,
            "edges": graph.edges,
            "retired": self.publisher.retire(),
            "seconds": round(time.perf_counter() - self.started, 3),
            **facts,
        }


def _check_id_kind(where: str, kind: IdKind, published: Embedding | None) -> None:
    """Ids of another type are another graph, not a new night."""
    if published is not None:
        remedy = (
            "Cast the id columns back or set ingest.ids in the configuration; for new ids, start "
            "a new store."
        )
        owner = f"the published run {published.run}"
        check_id_kind(where, kind, published.graph.id_kind, owner=owner, remedy=remedy)


def _check_kind(kind: GraphKind, published: Embedding) -> None:
    """A graph of another kind has other nodes, not new ones."""
    if kind != published.graph.kind:
        raise ConfigError(
            f"ingest.kind is {kind}, but the graph of the published run {published.run} is "
            f"{published.graph.kind}. Set ingest.kind back, or start a new store."
        )
