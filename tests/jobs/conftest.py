"""The command line, in this process, on the cluster that all tests share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from figrl_jobs.main import main
from tests.learn.test_embed import random_edges
from tests.reference import write_edges

WITHOUT_CLUSTER = ("status", "pin", "rollback", "cancel", "resume")


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(scope="module")
def cluster_file(client, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    path.write_text(yaml.safe_dump({"scheduler": client.scheduler.address}))
    return path


@pytest.fixture
def figrl(capsys, cluster_file):
    """Run a command line; jobs that compute use the shared cluster."""

    def run(*words: object, on_cluster: bool = True) -> Outcome:
        line = [str(word) for word in words]
        if on_cluster and "--cluster" not in line and line[0] not in WITHOUT_CLUSTER:
            line += ["--cluster", str(cluster_file)]
        code = main(line)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="module")
def store(client, tmp_path_factory) -> Path:
    """A store with a graph of some 300 nodes."""
    from figrl import ingest

    folder = tmp_path_factory.mktemp("command")
    path = write_edges(folder / "edges.parquet", random_edges(5, 300, weighted=False))
    ingest(path, store=folder / "store", client=client, block_rows=64)
    return folder / "store"
