"""Where a job runs, in a sentence for a person."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

import distributed

from figrl.engine.cluster_file import ClusterConfig
from figrl.units import human_bytes


def describe_place(client: distributed.Client, config: ClusterConfig) -> str:
    """Workers, address and dashboard of a cluster.

    A local cluster serves a dashboard only where its file gives it an address.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    size = f"{len(workers)} worker{'s' if len(workers) != 1 else ''}"
    if config.kind == "local":
        threads = sum(worker["nthreads"] for worker in workers)
        memory = sum(worker["memory_limit"] for worker in workers)
        plural = "s" if threads != 1 else ""
        place = f"a local cluster: {size}, {threads} thread{plural}, {human_bytes(memory)}"
        shown = config.local is not None and config.local.dashboard_address is not None
    else:
        place, shown = f"{size} at {client.scheduler_info()['address']}", True
    return f"Running on {place}{_dashboard(client, config) if shown else ''}."


def _dashboard(client: distributed.Client, config: ClusterConfig) -> str:
    link = client.dashboard_link
    if not link:
        return ""
    has_bokeh = _has_bokeh()
    if config.kind == "scheduler":
        with suppress(Exception):
            has_bokeh = client.run_on_scheduler(_has_bokeh)
    if has_bokeh:
        return f", dashboard {link}"
    where = "" if config.kind == "local" else " where the scheduler runs"
    return f" (for its dashboard: pip install 'figrl[dashboard]'{where})"


def _has_bokeh() -> bool:
    return find_spec("bokeh") is not None
