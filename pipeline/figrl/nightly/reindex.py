"""The nightly job: ingest, embed, align, check, publish, retire. Safe to start at any time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from figrl.engine.logs import logging_to
from figrl.engine.session import Session
from figrl.errors import ConfigError, FigrlError
from figrl.ingestion.ingest import ingest_graph
from figrl.ingestion.inputs import inspect_files
from figrl.nightly.config import ReindexConfig, source_files
from figrl.nightly.metrics import metrics_of_job, write_metrics
from figrl.nightly.publishing import Publisher, PublishOptions, keep_options, name_input
from figrl.serve import publish
from figrl.serve.attempts import attempt
from figrl.serve.embedding import Embedding, StoreView
from figrl.serve.index import import_usearch
from figrl.store.files import exists
from figrl.store.graph import Graph, open_graph
from figrl.store.ids import IdKind, check_id_kind
from figrl.store.jobs import exit_code_of, record_failure
from figrl.store.layout import StorePaths, read_manifest, store_paths
from figrl.store.sides import GraphKind


@contextmanager
def starting(config: ReindexConfig) -> Iterator[None]:
    """Tell of a night that ends before it begins, as when no cluster answers."""
    try:
        yield
    except Exception as error:
        tell_failure(config.store, config.metrics, error)
        raise


def tell_failure(store: str, metrics: str | None, error: BaseException) -> None:
    """Record a night that ended before it had the lock of its store; a new store is not made."""
    with suppress(OSError, FigrlError):
        paths = store_paths(store)
        if exists(paths.graphs):
            record_failure(paths.root, "reindex", error)
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
            with metrics_of_job(paths, config.metrics), attempt(paths, "reindex") as made:
                publisher = Publisher(
                    options, session, client, paths, lock, made, anyway=publish_anyway
                )
                report = _Night(config, publisher).run()
        except Exception as error:
            with suppress(OSError, FigrlError):
                told = f"{type(error).__name__}: {error}"
                log.event("failed", error=told, exit_code=exit_code_of(error))
            raise
        result = "nothing to do" if report["nothing_to_do"] else "published"
        lock.note(run=report["run"], result=result)
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
        if published is not None and self._is_done(published, night):
            # A job that was killed after publishing may have left the rest undone.
            self.publisher.build_index(published)
            self.publisher.attempt.note(run=published.run, unchanged=True)
            return self._finish(published.run, published.graph, nothing_to_do=True)
        if self.paths.latest_graph() is None:
            # Without it the store cannot be opened, so a refused first run could not be inspected.
            self.paths.set_latest_graph(graph.version)
        run, _ = self.publisher.learn(graph, self.config.embed, published)
        facts = self.publisher.publish(run, published)
        return self._finish(run, graph, nothing_to_do=False, **facts)

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

    def _is_done(self, published: Embedding, night: str) -> bool:
        """Whether the published run has this input, or a run with it was rolled back."""
        if published.manifest.get("night") == night:
            return True
        for run in publish.withdrawn_runs(self.paths) & set(self.paths.finished_runs()):
            same_input = read_manifest(self.paths.run(run)).get("night") == night
            if same_input and not self.publisher.anyway:
                self.publisher.session.monitor.note(
                    f"The sources are those of run {run}, which was rolled back. It is not "
                    "published again unless you give --publish-anyway."
                )
                return True
        return False

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
