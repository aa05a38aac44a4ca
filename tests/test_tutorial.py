"""The tutorial runs as a reader runs it: in a kernel, on a scheduler and workers of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.documents import ROOT
from tests.faults.test_separate_processes import start_scheduler, start_worker, stop
from tests.waiting import LONG

TUTORIAL = ROOT / "docs" / "tutorial.ipynb"

FOUND = """
import json
json.dumps({name: float(globals()[name]) for name in
            ("agreement", "accuracy", "new_accuracy", "right_taste", "same_bits")}
           | {"workers": len(workers)})
"""


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """Variables by which `Client()` finds two workers, each a process of its own."""
    scheduler, address = start_scheduler(tmp_path)
    workers = [start_worker(address) for _ in range(2)]
    yield {**os.environ, "DASK_SCHEDULER_ADDRESS": address, "MPLBACKEND": "agg"}
    stop([*workers, scheduler])


@pytest.mark.timeout(600)
def test_the_tutorial_runs_on_processes_of_their_own(environment, tmp_path):
    notebook = nbformat.read(TUTORIAL, as_version=4)
    *cells, closing = notebook.cells
    assert closing.source == "client.close()"
    seen = nbformat.v4.new_code_cell(
        'client.wait_for_workers(2)\nworkers = client.scheduler_info(n_workers=-1)["workers"]'
    )
    notebook.cells = [*cells, seen, nbformat.v4.new_code_cell(FOUND), closing]
    path = tmp_path / "tutorial.ipynb"
    nbformat.write(notebook, path)
    execute = [Path(sys.executable).with_name("jupyter-execute"), "--inplace", path]
    done = subprocess.run(
        execute,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = nbformat.read(path, as_version=4).cells[-2].outputs[0]["data"]["text/plain"]
    found = json.loads(found.strip("'"))
    assert found["workers"] == 2
    assert found["same_bits"] == 1
    assert min(found[name] for name in ("agreement", "accuracy", "new_accuracy")) > 0.8
    assert found["right_taste"] == 1


def test_the_tutorial_is_stored_without_outputs():
    cells = json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
