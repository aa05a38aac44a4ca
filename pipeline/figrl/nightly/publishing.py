"""Publishing through gates: learn, align, check, publish or refuse, retire.

The jobs `reindex` and `embed --publish yes` publish alike. What `reindex` was told about it is kept
in the store, in ``nightly.json``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import distributed
from pydantic import Field, ValidationError

from figrl.config import Options
from figrl.engine.session import Session
from figrl.errors import BadInputError
from figrl.learn.spec import EmbedOptions
from figrl.nightly.checks import measure_run, stored_measures
from figrl.nightly.gates import Gates, Verdict, judge, refusal
from figrl.nightly.report import Night, Watched
from figrl.serve import publish
from figrl.serve.attempts import Attempt
from figrl.serve.embedding import Embedding, StoreView
from figrl.serve.index import build_index
from figrl.serve.overlay_update import carry_overlay
from figrl.serve.publish import KeepRuns
from figrl.serve.runs import learn_run
from figrl.store.files import digest, exists, read_record, write_record
from figrl.store.graph import Graph
from figrl.store.layout import StorePaths
from figrl.store.lock import Lock


class PublishOptions(Options):
    """How the runs of a store are published: the keys of a re-indexing that are about it."""

    align: bool = True
    gates: Gates = Field(default_factory=Gates)
    keep: KeepRuns = Field(default_factory=KeepRuns)
    index: Literal["none", "approximate"] = "none"
    metrics: str | None = None


def keep_options(paths: StorePaths, options: PublishOptions) -> None:
    """Keep the options of a re-indexing in its store."""
    write_record(paths.root / "nightly.json", options.model_dump(mode="json"))


def kept_options(paths: StorePaths) -> PublishOptions:
    """Options of the last re-indexing; the defaults where an older version made it."""
    path = paths.root / "nightly.json"
    if not exists(path):
        return PublishOptions()
    try:
        return PublishOptions(**read_record(path))
    except ValidationError as error:
        raise BadInputError(
            f"{path} has other options: {error}. Run figrl reindex again."
        ) from error


def name_input(graph: Graph, embed: EmbedOptions, *, align: bool) -> str:
    """Digest of all that a run is learnt from, but for the run it is aligned with."""
    return digest([graph.version, embed.significant(), align])


@dataclass(frozen=True)
class Publisher:
    """Publishes runs of a locked store through gates. `anyway`: whatever the gates say."""

    options: PublishOptions
    session: Session
    client: distributed.Client
    paths: StorePaths
    lock: Lock
    attempt: Attempt
    anyway: bool = False

    def learn(
        self, graph: Graph, embed: EmbedOptions, published: Embedding | None
    ) -> tuple[str, bool]:
        """Learn a run, aligned with the published one; its name, and whether it was complete."""
        reference = published if self.options.align else None
        if reference is not None and reference.dim != embed.dim:
            self.session.monitor.note(
                f"The published vectors have {reference.dim} dimensions, the new ones {embed.dim}: "
                "they are not aligned."
            )
            reference = None
        facts = {"night": name_input(graph, embed, align=self.options.align)}
        run, done_before = learn_run(
            self.client, self.paths, graph, embed, self.session, reference=reference, facts=facts
        )
        self.attempt.note(run=run)
        self.lock.note(run=run)
        return run, done_before

    def publish(self, run: str, published: Embedding | None) -> dict[str, Any]:
        """Publish a run unless a gate refuses it; its report is written in any case."""
        new = StoreView(self.paths).embedding(run)
        try:
            return self._check_and_publish(new, published)
        finally:
            # A traceback keeps `new` alive, and its lease would keep the run from being deleted.
            new.lease.release()

    def _check_and_publish(self, new: Embedding, published: Embedding | None) -> dict[str, Any]:
        work, watched = self.paths.work / f"checks-{new.run}", Watched(self.session.monitor)
        session = replace(self.session, monitor=watched)
        measures = measure_run(self.client, new, work, watched)
        before = None if published is None else stored_measures(published)
        verdicts = judge(self.options.gates, measures, before)
        gates = [asdict(verdict) for verdict in verdicts]
        write_record(new.path / "gates.json", {"gates": gates})
        self.attempt.note(gates=gates)
        carried = 0
        if published is not None:
            carried = carry_overlay(self.client, self.paths, published, new, session)
        self.build_index(new, session)
        night = Night(new, published, measures, before, verdicts, watched.stages, self.anyway)
        page = night.write_report()
        self.lock.note(report=str(page))
        self.session.monitor.note(f"Report: {page}")
        if not self.anyway and not all(verdict.passed for verdict in verdicts):
            self._refuse(new.run, verdicts)
        publish.failpoint("complete")
        self.paths.set_latest_graph(new.graph.version)
        publish.failpoint("latest")
        publish.publish_run(self.paths, new.run, self.lock, by=self.attempt.job)
        if published is not None:
            # This job reads the last run too, and would keep it from being deleted.
            published.lease.release()
        manifest = new.manifest
        return {
            "alignment": manifest.get("alignment"),
            "measures": measures,
            "gates": gates,
            "carried_nodes": carried,
            "report": str(page),
            **{k: manifest[k] for k in ("certificate", "stages", "workers", "peak_worker_bytes")},
        }

    def build_index(self, embedding: Embedding, session: Session | None = None) -> None:
        """Build the index of a run, if one is asked for."""
        if self.options.index == "approximate":
            work = self.paths.work / f"index-{embedding.run}"
            build_index(self.client, embedding, work, session or self.session)

    def _refuse(self, run: str, verdicts: tuple[Verdict, ...]) -> None:
        """Record a refusal, once for all attempts, and raise GateError."""
        error = refusal(run, verdicts, remedy=self._remedy(run))
        last = publish.history(self.paths)[-1:]
        if not last or (last[0]["action"], last[0]["run"]) != ("refused", run):
            gates = [verdict.gate for verdict in verdicts if not verdict.passed]
            facts = {"job": self.attempt.job, "reason": error.message}
            publish.record(self.paths, "refused", run, gates=gates, **facts)
        self.retire()
        raise error

    def _remedy(self, run: str) -> str:
        if self.attempt.job == "reindex":
            return (
                "Publish it with --publish-anyway, or change the limit under 'gates' and run the "
                "same command again."
            )
        return (
            "The gates are those of the last figrl reindex. To publish it all the same: "
            f"figrl rollback {run} --store {self.paths.root}"
        )

    def retire(self) -> dict[str, Any]:
        """Delete what is no longer kept."""
        return publish.retire(self.paths, self.options.keep, self.lock)
