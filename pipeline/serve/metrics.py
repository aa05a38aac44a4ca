"""Metrics of a store as text that Prometheus reads, replaced in one step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pipeline.files import free_bytes, read_json, write_text
from pipeline.serve.overlay import open_overlay
from pipeline.serve.publish import history
from pipeline.store import StorePaths, read_manifest


def write_metrics(paths: StorePaths, target: str | None, *, failed: int = 0) -> Path:
    """Write what a store serves, and how its last job ended.

    Parameters
    ----------
    paths : StorePaths
    target : str or None
        File to be written; by default ``metrics.prom`` in the store.
    failed : int
        Exit code of the job; 0 if it went well.
    """
    path = Path(target) if target else paths.root / "metrics.prom"
    lines: list[str] = []
    store = str(paths.root).replace("\\", "\\\\").replace('"', '\\"')

    def tell(name: str, value: float | None, meaning: str, **labels: str) -> None:
        if value is None:
            return
        shown = "".join(f',{key}="{text}"' for key, text in labels.items())
        if not any(line == f"# TYPE figrl_{name} gauge" for line in lines):
            lines.append(f"# HELP figrl_{name} {meaning}")
            lines.append(f"# TYPE figrl_{name} gauge")
        lines.append(f'figrl_{name}{{store="{store}"{shown}}} {value!r}')

    tell("last_job_time_seconds", round(time.time(), 3), "When the last job ended.")
    tell("last_job_exit_code", failed, "How the last job ended; 0: well.")
    tell("disk_free_bytes", free_bytes(paths.root), "Room left on the disk of the store.")
    current = paths.current_run()
    if current is not None:
        _tell_run(paths, current, tell)
    events = history(paths)
    for action in ("published", "rolled back", "refused", "deleted"):
        count = sum(event.get("action") == action for event in events)
        tell("runs_total", count, "Runs by what became of them.", action=action)
    write_text(path, "\n".join(lines) + "\n")
    return path


def _tell_run(paths: StorePaths, current: str, tell: Any) -> None:
    folder = paths.run(current)
    manifest = read_manifest(folder)
    published = [e for e in history(paths) if e["run"] == current and e["action"] != "deleted"]
    tell("run_info", 1, "The published run.", run=current, graph=manifest["graph"])
    tell("run_created_seconds", manifest["created"], "When the published run was begun.")
    if published:
        tell("run_published_seconds", published[-1]["time"], "When it was published.")
    tell("run_nodes", manifest["nodes"], "Nodes with a vector.")
    tell("run_edges", manifest["edges"], "Edges it was learnt from.")
    tell("run_seconds", manifest["seconds"], "Seconds that learning took.")
    tell("run_peak_worker_bytes", manifest["peak_worker_bytes"], "Peak memory of a worker.")
    for stage in manifest["stages"]:
        tell("stage_seconds", stage["seconds"], "Seconds of a stage.", stage=stage["name"])
    certificate = manifest["certificate"] or {}
    tell("run_cost_bound", certificate.get("cost_bound"), "Bound of the certificate.")
    alignment = manifest.get("alignment") or {}
    tell("run_mean_cosine", alignment.get("mean_cosine"), "Mean cosine with the run before.")
    overlay = open_overlay(folder)
    tell("overlay_nodes", len(overlay) if overlay else 0, "Nodes folded in since.")
    gates = folder / "gates.json"
    for verdict in read_json(gates) if gates.exists() else []:
        tell("gate_value", verdict["value"], "What a gate measured.", gate=verdict["gate"])
        tell(
            "gate_passed",
            int(verdict["passed"]),
            "Whether it let it through.",
            gate=verdict["gate"],
        )
