"""A few calls of a night fail; `python -m tests.faults.every_call FOLDER` has all of them fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.every_call import FAULTS

pytestmark = pytest.mark.timeout(900)


def test_a_few_calls_of_a_night_fail(tmp_path):
    # A process of its own, without threads, because it forks.
    command = [sys.executable, "-m", "tests.faults.every_call", str(tmp_path), "--every", "380"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=600
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["calls"].keys() == {"read", "write", "rename", "delete", "list", "sync"}
    calls = sum(report["calls"].values())
    assert report["cases"] == len(FAULTS) * len(range(1, calls + 1, 380)) >= 9
    assert set(report["ends"]["is killed"]) <= {"killed", "0"}
    assert set(report["ends"]["fails once"]) <= {"0", "2", "3"}
