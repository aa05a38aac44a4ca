"""Re-indexing: ingest, embed, align, check, publish, retire. Safe to start at any time, twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed

from pipeline.api import Session, ingest_graph, inspect_files, learn_run
from pipeline.cluster import client_at_hand
from pipeline.errors import BadInputError, FigrlError
from pipeline.files import digest, read_json, write_json
from pipeline.graph import Graph, open_graph
from pipeline.ingest.sources import SourceFile
from pipeline.lock import Lock
from pipeline.logs import logging_to
from pipeline.nightly_config import ReindexConfig, source_files
from pipeline.serve.checks import check_run
from pipeline.serve.embedding import Embedding, StoreView
from pipeline.serve.gates import Verdict, judge, refusal
from pipeline.serve.index import build_index, check_installed
from pipeline.serve.metrics import write_metrics
from pipeline.serve.overlay_calls import carry_overlay
from pipeline.serve.publish import (
    history,
    note_published,
    publish_run,
    reached,
    record,
    retire,
    withdrawn_runs,
)
from pipeline.serve.report import write_report
from pipeline.store import StorePaths, read_manifest, store_paths


def run_reindex(
    config: ReindexConfig, session: Session, *, publish_anyway: bool = False
) -> dict[str, Any]:
    """Bring the published run up to date with its sources, and tell what happened.

    Raises
    ------
    GateError
        If a gate refused the run; the published one stays as it was.
    """
    paths = store_paths(config.store)
    if config.index == "approximate":
        check_installed()
    if session.memory_limit is None and config.memory_limit is not None:
        session = replace(session, memory_limit=config.memory_limit)
    with (
        client_at_hand(session.client, session.limit_bytes) as client,
        paths.locked("reindex") as lock,
        logging_to(paths, "reindex", session.monitor) as log,
    ):
        night = _Night(client, paths, config, replace(session, monitor=log.monitor), lock)
        try:
            report = night.run(source_files(config), publish_anyway=publish_anyway)
        except Exception as error:
            code = error.exit_code if isinstance(error, FigrlError) else FigrlError.exit_code
            with suppress(OSError, FigrlError):
                log.event("failed", error=f"{type(error).__name__}: {error}", exit_code=code)
                write_metrics(paths, config.metrics, failed=code)
            raise
        log.event("done", **{k: report[k] for k in ("run", "nothing_to_do") if k in report})
        log.keep_in(paths.run(report["run"]))
        return report


class _Night:
    """One run of the job, with all it needs."""

    def __init__(
        self,
        client: distributed.Client,
        paths: StorePaths,
        config: ReindexConfig,
        session: Session,
        lock: Lock,
    ) -> None:
        self.client, self.paths, self.config = client, paths, config
        self.session, self.lock = session, lock
        self.started = time.perf_counter()

    def run(self, files: Sequence[str], *, publish_anyway: bool) -> dict[str, Any]:
        """Do what there is to do."""
        paths, config = self.paths, self.config
        note_published(paths)
        current = StoreView(paths).embedding() if paths.current_run() is not None else None
        sources = inspect_files(self.client, files, config.ingest)
        _same_ids(sources, current)
        version, _ = ingest_graph(self.client, paths, sources, config.ingest, self.session)
        _same_kind(open_graph(paths, version), current)
        night = digest([version, config.embed.significant(), config.align])
        if current is not None and self._is_done(current, night, publish_anyway=publish_anyway):
            return self._nothing_to_do(current)
        if paths.latest_graph() is None:
            # So that a first run can be looked at, also if it is refused.
            paths.set_latest_graph(version)
        run = self._learn(version, night, current)
        embedding = StoreView(paths).embedding(run)
        try:
            return self._publish(embedding, current, publish_anyway=publish_anyway)
        finally:
            # An error goes on with all it refers to, and a lease would keep the run.
            embedding.lease.release()

    def _publish(
        self, embedding: Embedding, current: Embedding | None, *, publish_anyway: bool
    ) -> dict[str, Any]:
        """Check a run, and publish it if nothing is wrong with it."""
        paths, config, run = self.paths, self.config, embedding.run
        measures = self._measure(embedding)
        verdicts = judge(config.gates, measures, _measures_of(current))
        write_json(embedding.path / "gates.json", [verdict.describe() for verdict in verdicts])
        carried = 0
        if current is not None:
            carried = carry_overlay(self.client, paths, current, embedding, self.session)
        self._build_index(embedding)
        write_report(self.client, embedding, measures, verdicts, self.session.monitor)
        passed = all(verdict.passed for verdict in verdicts)
        if not passed and not publish_anyway:
            self._refuse(run, verdicts)
        reached("complete")
        paths.set_latest_graph(embedding.graph.version)
        reached("latest")
        publish_run(paths, run, self.lock)
        if current is not None:
            # This job is a reader of the last run too, and would keep it from being deleted.
            current.lease.release()
        return self._finish(embedding, measures, verdicts, carried)

    def _is_done(self, current: Embedding, night: str, *, publish_anyway: bool) -> bool:
        """Whether the published run is of this input, or somebody went back from such a one."""
        if current.manifest.get("night") == night:
            return True
        for run in withdrawn_runs(self.paths) & set(self.paths.finished_runs()):
            if read_manifest(self.paths.run(run)).get("night") == night and not publish_anyway:
                self.session.monitor.note(
                    f"The sources are those of run {run}, from which somebody went back. It is not "
                    "published again; --publish-anyway would."
                )
                return True
        return False

    def _learn(self, version: str, night: str, current: Embedding | None) -> str:
        config = self.config
        reference = current if config.align else None
        if reference is not None and reference.dim != config.embed.dim:
            self.session.monitor.note(
                f"The published vectors have {reference.dim} dimensions, the new ones "
                f"{config.embed.dim}: they are not aligned."
            )
            reference = None
        run, _ = learn_run(
            self.client,
            self.paths,
            open_graph(self.paths, version),
            config.embed,
            self.session,
            reference=reference,
            facts={"night": night},
        )
        return run

    def _measure(self, embedding: Embedding) -> dict[str, Any]:
        """What gates and the report need to know; measured once for a run."""
        path = embedding.path / "checks.json"
        if not path.exists():
            facts = read_manifest(self.paths.graph(embedding.graph.version))["graph"]
            manifest = embedding.manifest
            measured = {
                "nodes": embedding.graph.nodes,
                "edges": embedding.graph.edges,
                "rows_read": facts["rows_read"],
                "rows_rejected": facts["rows_rejected"],
                "cost_bound": (manifest["certificate"] or {}).get("cost_bound"),
                "mean_cosine": manifest.get("alignment", {}).get("mean_cosine"),
                "compared_nodes": manifest.get("alignment", {}).get("compared_nodes"),
                **check_run(
                    self.client,
                    embedding,
                    self.paths.work / f"checks-{embedding.run}",
                    self.session.monitor,
                ),
            }
            write_json(path, measured)
        measures: dict[str, Any] = read_json(path)
        return measures

    def _build_index(self, embedding: Embedding) -> None:
        if self.config.index == "approximate":
            work = self.paths.work / f"index-{embedding.run}"
            build_index(self.client, embedding, work, self.session)

    def _refuse(self, run: str, verdicts: tuple[Verdict, ...]) -> None:
        last = history(self.paths)[-1:]
        if not last or (last[0]["action"], last[0]["run"]) != ("refused", run):
            gates = [verdict.gate for verdict in verdicts if not verdict.passed]
            record(self.paths, "refused", run, gates=gates)
        self._retire()
        raise refusal(run, verdicts)

    def _finish(
        self,
        embedding: Embedding,
        measures: dict[str, Any],
        verdicts: tuple[Verdict, ...],
        carried: int,
    ) -> dict[str, Any]:
        retired = self._retire()
        write_metrics(self.paths, self.config.metrics)
        manifest = embedding.manifest
        return {
            "store": str(self.paths.root),
            "nothing_to_do": False,
            "run": embedding.run,
            "graph": embedding.graph.version,
            "nodes": embedding.graph.nodes,
            "edges": embedding.graph.edges,
            "alignment": manifest.get("alignment"),
            "certificate": manifest["certificate"],
            "measures": measures,
            "gates": [verdict.describe() for verdict in verdicts],
            "carried_nodes": carried,
            "retired": retired,
            "report": str(embedding.path / "report.html"),
            "seconds": round(time.perf_counter() - self.started, 3),
            **{key: manifest[key] for key in ("stages", "workers", "peak_worker_bytes")},
        }

    def _nothing_to_do(self, current: Embedding) -> dict[str, Any]:
        """End what a killed job may have left: it published, but did not clean up."""
        self._build_index(current)
        retired = self._retire()
        write_metrics(self.paths, self.config.metrics)
        return {
            "store": str(self.paths.root),
            "nothing_to_do": True,
            "run": current.run,
            "graph": current.graph.version,
            "nodes": current.graph.nodes,
            "edges": current.graph.edges,
            "retired": retired,
            "seconds": round(time.perf_counter() - self.started, 3),
        }

    def _retire(self) -> dict[str, Any]:
        return retire(self.paths, self.config.keep, self.lock)


def _same_ids(sources: Sequence[SourceFile], current: Embedding | None) -> None:
    """A column of ids that changed its type is another graph, not a new night."""
    for source in sources:
        if current is None or source.empty or source.id_kind == current.graph.id_kind:
            continue
        if source.kind == "parquet" or source.id_kind == "string":
            raise BadInputError(
                f"{source.path}: its ids are {source.id_kind}, but those of the published run "
                f"{current.run} are {current.graph.id_kind}. Cast the id columns back, or begin a "
                "new store for the new ids."
            )


def _same_kind(graph: Graph, current: Embedding | None) -> None:
    """Text tells only when all of it is read whether its ids are numbers."""
    if current is not None and graph.id_kind != current.graph.id_kind:
        raise BadInputError(
            f"The ids of the sources are {graph.id_kind}, but those of the published run "
            f"{current.run} are {current.graph.id_kind}. Set ingest.ids in the configuration, or "
            "begin a new store for the new ids."
        )


def _measures_of(current: Embedding | None) -> dict[str, Any] | None:
    """What was measured of the published run; one that `embed` made has only its sizes."""
    if current is None:
        return None
    sizes = {"nodes": current.graph.nodes, "edges": current.graph.edges}
    path: Path = current.path / "checks.json"
    return {**sizes, **(read_json(path) if path.exists() else {})}
