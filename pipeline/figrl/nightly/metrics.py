"""Metrics of a store, as a text file for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from figrl.engine.stage import group_by_name
from figrl.errors import FigrlError
from figrl.serve.attempts import last_attempt
from figrl.serve.overlay import open_overlay
from figrl.serve.publish import PUBLICATIONS, history
from figrl.store.files import exists, free_bytes, put, read_record
from figrl.store.heartbeat import heartbeat
from figrl.store.jobs import KEPT_RECORDS, exit_code_of, last_jobs
from figrl.store.layout import StorePaths, read_manifest
from figrl.store.reserve import tell

BEAT_SECONDS = 60.0
"""How often the metrics of a running job are renewed; the alert of a killed one needs that."""


@contextmanager
def metrics_of_job(paths: StorePaths, target: str | None) -> Iterator[None]:
    """Keep the metrics of a store up to date while a job runs, and write how it ended."""
    write_metrics(paths, target, exit_code=None)
    try:
        with heartbeat(lambda: write_metrics(paths, target, exit_code=None), BEAT_SECONDS):
            yield
    except BaseException as error:
        # The error itself is what the user has to see, also on a full disk.
        with suppress(OSError, FigrlError):
            write_metrics(paths, target, exit_code=exit_code_of(error))
        raise
    write_metrics(paths, target, exit_code=0)


def write_metrics(paths: StorePaths, target: str | None, *, exit_code: int | None) -> None:
    """Replace a file (default: ``metrics.prom`` in the store) by metrics of a job and its store.

    `exit_code`: that of the job, or None while it runs.
    """
    now, running = round(time.time(), 3), exit_code is None
    gauges = _Gauges(str(paths.root))
    gauges.set("job_running", int(running), "Whether a job that publishes runs; 0: it ended.")
    gauges.set("job_heartbeat_seconds", now, "When these metrics were written.")
    gauges.set("last_job_time_seconds", None if running else now, "When the last job ended.")
    gauges.set("last_job_exit_code", exit_code, "Exit code of the last job; 0: success.")
    success = now if exit_code == 0 else _last_success(paths)
    gauges.set("last_success_time_seconds", success, "When a job last ended with exit code 0.")
    gauges.set("disk_free_bytes", free_bytes(paths.root), "Free space on the disk of the store.")
    current = paths.current_run()
    if current is not None:
        _add_run(gauges, paths, current)
    made = last_attempt(paths)
    if made is not None:
        _add_attempt(gauges, made)
    actions = [event.get("action") for event in history(paths)]
    for action in ("published", "rolled back", "refused", "failed", "deleted"):
        gauges.set("runs_total", actions.count(action), "Runs by action.", action=action)
    content = generate_latest(gauges.registry)
    if target:
        put(Path(target), content)
    else:
        tell(paths.root, lambda: put(paths.root / "metrics.prom", content))


def _last_success(paths: StorePaths) -> float | None:
    """When the published vectors were last known to be up to date."""
    good = ("published", "nothing to do")
    ended = [
        job["ended"]
        for job in last_jobs(paths.root, KEPT_RECORDS)
        if job["job"] in ("reindex", "embed") and job["result"] in good
    ]
    return max([*ended, *(event["time"] for event in history(paths, "published"))], default=None)


def _add_attempt(gauges: _Gauges, made: dict[str, Any]) -> None:
    """What came of the last attempt to publish, beside the run that is published."""
    named = {name: str(made.get(name) or "") for name in ("job", "run", "result")}
    gauges.set("last_attempt_info", 1, "The last attempt to publish.", **named)
    gauges.set("last_attempt_started_seconds", made.get("started"), "When it was started.")
    served = int(made.get("result") in ("published", "nothing to do"))
    gauges.set("last_attempt_served", served, "Whether its run is the published one; 0: it is not.")
    gauges.set("last_attempt_time_seconds", made.get("ended"), "When the last attempt ended.")
    for verdict in made.get("gates") or ():
        gate, passed = verdict["gate"], int(verdict["passed"])
        gauges.set("last_attempt_gate_value", verdict["value"], "What a gate measured.", gate=gate)
        meaning = "Whether the run of the last attempt passed a gate."
        gauges.set("last_attempt_gate_passed", passed, meaning, gate=gate)


class _Gauges:
    """Gauges named ``figrl_...``, all with the label ``store``."""

    def __init__(self, store: str) -> None:
        self.registry = CollectorRegistry()
        self._store = store
        self._gauges: dict[str, Gauge] = {}

    def set(self, name: str, value: float | None, meaning: str, **labels: str) -> None:
        """Set a gauge; a value that is unknown is left out."""
        if value is None:
            return
        if name not in self._gauges:
            names = ("store", *labels)
            self._gauges[name] = Gauge(f"figrl_{name}", meaning, names, registry=self.registry)
        self._gauges[name].labels(self._store, *labels.values()).set(value)


def _add_run(gauges: _Gauges, paths: StorePaths, run: str) -> None:
    folder = paths.run(run)
    manifest = read_manifest(folder)
    published = [e["time"] for e in history(paths, *PUBLICATIONS) if e["run"] == run]
    certificate, alignment = manifest["certificate"] or {}, manifest.get("alignment") or {}
    overlay = open_overlay(folder)
    gauges.set("run_info", 1, "The published run.", run=run, graph=manifest["graph"])
    gauges.set("run_created_seconds", manifest["created"], "When the run was started.")
    gauges.set("run_published_seconds", max(published, default=None), "When it was published.")
    gauges.set("run_nodes", manifest["nodes"], "Nodes with a vector.")
    gauges.set("run_edges", manifest["edges"], "Edges it was learnt from.")
    gauges.set("run_seconds", manifest["seconds"], "Seconds that learning took.")
    took = manifest.get("plan", {}).get("disk_bytes")
    gauges.set("run_disk_bytes", took, "Disk that learning it needed.")
    gauges.set("run_peak_worker_bytes", manifest["peak_worker_bytes"], "Peak memory of a worker.")
    for name, stage in group_by_name(manifest["stages"]).items():
        gauges.set("stage_seconds", stage["seconds"], "Seconds of a stage.", stage=name)
    gauges.set(
        "run_largest_residual",
        certificate.get("largest_residual"),
        "Most by which an eigenvalue may be wrong.",
    )
    gauges.set("run_mean_cosine", alignment.get("mean_cosine"), "Mean cosine with the run before.")
    gauges.set("overlay_nodes", len(overlay) if overlay else 0, "Nodes folded in since.")
    gates = folder / "gates.json"
    for verdict in read_record(gates)["gates"] if exists(gates) else []:
        gate, passed = verdict["gate"], int(verdict["passed"])
        gauges.set("gate_value", verdict["value"], "What a gate measured.", gate=gate)
        gauges.set("gate_passed", passed, "Whether the run passed a gate.", gate=gate)
