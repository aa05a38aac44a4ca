"""A store on which all jobs ran undisturbed."""

from __future__ import annotations

import pytest

from tests.faults.stories import (
    local_cluster,
)
from tests.faults.workload import JOBS, Workload


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    return Workload.write(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def alone(workload, tmp_path_factory):
    """A store on which all jobs ran undisturbed, with two workers; and the reports."""
    store = tmp_path_factory.mktemp("alone") / "store"
    with local_cluster(2) as client:
        reports = {job: workload.run(job, store, client) for job in JOBS}
    return store, reports
