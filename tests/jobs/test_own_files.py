"""figrl in a folder with a ``pipeline.py``, a ``jobs.py`` and a ``figrl.yaml`` of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
import yaml

from figrl_jobs.main import figrl as group
from tests.reference import write_edges

INSTALLED = [str(Path(sys.executable).with_name("figrl"))]
AS_MODULE = [sys.executable, "-m", "figrl_jobs"]
"""With ``-m`` Python puts the current folder in front of all others on ``sys.path``."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A project of the user, whose files end every process that imports or reads them."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("pipeline", "jobs"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name}.py was imported')\n")
    (folder / "figrl.yaml").write_text("{not: [for, figrl\n")
    return folder


@pytest.fixture(params=["cwd", "PYTHONPATH"])
def environment(request, folder) -> dict[str, str]:
    """The environment of a process in that folder, also with the folder on its path."""
    path = os.environ.get("PYTHONPATH", "")
    if request.param == "cwd":
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [path])])}


def run(folder, environment, *words: object) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_library_is_imported_and_shows_its_calls(folder, environment):
    code = "import figrl; print(figrl.__version__, *dir(figrl)); figrl.ingest, figrl.fold_in"
    shown = run(folder, environment, sys.executable, "-c", code).split()
    assert shown[0] == version("figrl")
    assert {"ingest", "embed", "fold_in", "export", "open_store"} < set(shown)
    assert not {"pipeline", "jobs", "import_module"} & set(shown)


@pytest.mark.parametrize("command", [INSTALLED, AS_MODULE], ids=["installed", "module"])
def test_the_version_is_printed(folder, environment, command):
    assert version("figrl") in run(folder, environment, *command, "--version")


def test_every_job_shows_its_help(folder, environment):
    """In one process: what a job imports is imported when it is called."""
    code = (
        "import sys; from figrl_jobs.main import main\n"
        "sys.exit(max(main([job, '--help']) for job in sys.argv[1:]))"
    )
    every = group.list_commands(click.Context(group))
    shown = run(folder, environment, sys.executable, "-c", code, *every)
    for job in every:
        assert f"Usage: figrl {job} " in shown


def test_from_edges_to_vectors(folder, environment, client, tmp_path):
    """The folder comes first on the path of the jobs, by PYTHONPATH or by ``-m``."""
    command = INSTALLED if str(folder) in environment.get("PYTHONPATH", "") else AS_MODULE
    ring = [(i, (i + step) % 40) for i in range(40) for step in (1, 7)]
    edges = write_edges(tmp_path / "edges.parquet", ring)
    cluster, store, out = tmp_path / "cluster.yaml", tmp_path / "store", tmp_path / "v.parquet"
    cluster.write_text(yaml.safe_dump({"scheduler": client.scheduler.address}))

    def job(*words: object) -> dict[str, object]:
        report: dict[str, object] = json.loads(run(folder, environment, *command, *words, "--json"))
        return report

    assert job("ingest", edges, "--store", store, "--cluster", cluster)["nodes"] == 40
    made = job("embed", "--store", store, "--dim", 3, "--sketch-size", 8, "--cluster", cluster)
    assert job("export", "--store", store, "--out", out, "--cluster", cluster)["rows"] == 40
    assert job("status", "--store", store)["current"] == made["run"]
