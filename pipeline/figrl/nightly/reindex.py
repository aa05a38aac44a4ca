"""The nightly job: ingest, embed, align, check, publish, retire. Safe to start at any time."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import distributed

from figrl.engine.logs import logging_to
from figrl.engine.session import Session
from figrl.errors import ConfigError, FigrlError
from figrl.ingestion.ingest import ingest_graph, inspect_files
from figrl.nightly.checks import measure_run, stored_measures
from figrl.nightly.config import ReindexConfig, source_files
from figrl.nightly.gates import Verdict, judge, refusal
from figrl.nightly.metrics import write_metrics
from figrl.nightly.report import write_report
from figrl.serve import publish
from figrl.serve.embedding import Embedding, StoreView
from figrl.serve.index import build_index, import_usearch
from figrl.serve.overlay_update import carry_overlay
from figrl.serve.runs import learn_run
from figrl.store.files import digest, write_json
from figrl.store.graph import Graph, open_graph
from figrl.store.ids import IdKind, check_id_kind
from figrl.store.layout import StorePaths, read_manifest, store_paths
from figrl.store.lock import Lock
from figrl.store.sides import GraphKind


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
    if config.index == "approximate":
        import_usearch()
    if session.memory_limit is None and config.memory_limit is not None:
        session = replace(session, memory_limit=config.memory_limit)
    with (
        session.open() as client,
        paths.locked("reindex") as lock,
        logging_to(paths, "reindex", session.monitor) as log,
    ):
        session = replace(session, monitor=log)
        night = _Night(config, session, client, paths, lock, publish_anyway)
        try:
            report = night.run()
        except Exception as error:
            code = error.exit_code if isinstance(error, FigrlError) else FigrlError.exit_code
            with suppress(OSError, FigrlError):
                log.event("failed", error=f"{type(error).__name__}: {error}", exit_code=code)
                write_metrics(paths, config.metrics, exit_code=code)
            raise
        log.event("done", run=report["run"], nothing_to_do=report["nothing_to_do"])
        log.copy_to(paths.run(report["run"]))
        return report


@dataclass(frozen=True)
class _Night:
    """One run of the job. Its methods stand in the order in which they are called."""

    config: ReindexConfig
    session: Session
    client: distributed.Client
    paths: StorePaths
    lock: Lock
    publish_anyway: bool
    started: float = field(default_factory=time.perf_counter)

    def run(self) -> dict[str, Any]:
        """The steps of the night; an up-to-date run needs only the first of them."""
        publish.note_published(self.paths)
        published = StoreView(self.paths).embedding() if self.paths.current_run() else None
        graph = self._ingest(published)
        night = digest([graph.version, self.config.embed.significant(), self.config.align])
        if published is not None and self._is_done(published, night):
            # A job that was killed after publishing may have left the rest undone.
            self._build_index(published)
            return self._finish(published, nothing_to_do=True)
        new = StoreView(self.paths).embedding(self._learn(graph, night, published))
        try:
            return self._check_and_publish(new, published)
        finally:
            # A traceback keeps `new` alive, and its lease would keep the run from being deleted.
            new.lease.release()

    def _ingest(self, published: Embedding | None) -> Graph:
        """Store the graph of the sources; its kind and its type of ids are those published."""
        options = self.config.ingest
        if published is not None:
            _check_kind(options.kind, published)
        sources = inspect_files(self.client, source_files(self.config), options)
        for source in sources:
            # Whether ids in text are integers is only known when all of it is read.
            certain = source.typed or source.id_kind == "string"
            if certain and not source.empty:
                _check_id_kind(source.path, source.id_kind, published)
        version, _ = ingest_graph(self.client, self.paths, sources, options, self.session)
        graph = open_graph(self.paths, version)
        _check_id_kind("the sources", graph.id_kind, published)
        return graph

    def _is_done(self, published: Embedding, night: str) -> bool:
        """Whether the published run has this input, or a run with it was rolled back."""
        if published.manifest.get("night") == night:
            return True
        for run in publish.withdrawn_runs(self.paths) & set(self.paths.finished_runs()):
            same_input = read_manifest(self.paths.run(run)).get("night") == night
            if same_input and not self.publish_anyway:
                self.session.monitor.note(
                    f"The sources are those of run {run}, which was rolled back. It is not "
                    "published again unless you give --publish-anyway."
                )
                return True
        return False

    def _learn(self, graph: Graph, night: str, published: Embedding | None) -> str:
        """Learn a run, aligned with the published one; return its name."""
        if self.paths.latest_graph() is None:
            # Without it the store cannot be opened, so a refused first run could not be inspected.
            self.paths.set_latest_graph(graph.version)
        reference = published if self.config.align else None
        dim = self.config.embed.dim
        if reference is not None and reference.dim != dim:
            self.session.monitor.note(
                f"The published vectors have {reference.dim} dimensions, the new ones {dim}: they "
                "are not aligned."
            )
            reference = None
        embed, facts = self.config.embed, {"night": night}
        run, _ = learn_run(
            self.client, self.paths, graph, embed, self.session, reference=reference, facts=facts
        )
        return run

    def _check_and_publish(self, new: Embedding, published: Embedding | None) -> dict[str, Any]:
        """Publish a run unless a gate refuses it; its report is written in any case."""
        work = self.paths.work / f"checks-{new.run}"
        measures = measure_run(self.client, new, work, self.session.monitor)
        before = None if published is None else stored_measures(published)
        verdicts = judge(self.config.gates, measures, before)
        gates = [asdict(verdict) for verdict in verdicts]
        write_json(new.path / "gates.json", gates)
        carried = 0
        if published is not None:
            carried = carry_overlay(self.client, self.paths, published, new, self.session)
        self._build_index(new)
        page = write_report(new, measures, verdicts)
        self.session.monitor.note(f"Report: {page}")
        if not self.publish_anyway and not all(verdict.passed for verdict in verdicts):
            self._refuse(new.run, verdicts)
        publish.failpoint("complete")
        self.paths.set_latest_graph(new.graph.version)
        publish.failpoint("latest")
        publish.publish_run(self.paths, new.run, self.lock)
        if published is not None:
            # This job reads the last run too, and would keep it from being deleted.
            published.lease.release()
        manifest = new.manifest
        return self._finish(
            new,
            nothing_to_do=False,
            alignment=manifest.get("alignment"),
            measures=measures,
            gates=gates,
            carried_nodes=carried,
            report=str(page),
            **{k: manifest[k] for k in ("certificate", "stages", "workers", "peak_worker_bytes")},
        )

    def _build_index(self, embedding: Embedding) -> None:
        if self.config.index == "approximate":
            work = self.paths.work / f"index-{embedding.run}"
            build_index(self.client, embedding, work, self.session)

    def _refuse(self, run: str, verdicts: tuple[Verdict, ...]) -> None:
        """Record a refusal, once for all attempts, and raise GateError."""
        last = publish.history(self.paths)[-1:]
        if not last or (last[0]["action"], last[0]["run"]) != ("refused", run):
            gates = [verdict.gate for verdict in verdicts if not verdict.passed]
            publish.record(self.paths, "refused", run, gates=gates)
        publish.retire(self.paths, self.config.keep, self.lock)
        raise refusal(run, verdicts)

    def _finish(self, embedding: Embedding, **facts: Any) -> dict[str, Any]:
        """Delete what is no longer kept, write metrics, and return the report of the job."""
        retired = publish.retire(self.paths, self.config.keep, self.lock)
        write_metrics(self.paths, self.config.metrics)
        return {
            "store": str(self.paths.root),
            "run": embedding.run,
            "graph": embedding.graph.version,
            "nodes": embedding.graph.nodes,
            "edges": embedding.graph.edges,
            "retired": retired,
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
