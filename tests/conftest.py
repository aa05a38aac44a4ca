"""A real cluster of worker processes, shared by all tests, and the real graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import distributed
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "figrl",
    deadline=None,
    max_examples=15,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("figrl")


@pytest.fixture(scope="session", autouse=True)
def _a_cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Rates that were measured on this machine would change the plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@contextmanager
def running(workers: int, threads: int) -> Iterator[distributed.Client]:
    """Worker processes on loopback."""
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        memory_limit="4GB",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def client() -> Iterator[distributed.Client]:
    """Two worker processes with one thread each, on loopback."""
    with running(2, 1) as client:
        yield client


@pytest.fixture(scope="session")
def single() -> Iterator[distributed.Client]:
    """One worker process with two threads, on loopback."""
    with running(1, 2) as client:
        yield client


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of real graphs; tests that need it are skipped where it is not set."""
    folder = os.environ.get("FIGRL_DATA")
    if not folder:
        pytest.skip("FIGRL_DATA does not name a folder of real graphs")
    return Path(folder)
