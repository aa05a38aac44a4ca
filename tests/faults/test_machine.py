"""A few examples of the machine; `python -m tests.faults.machine` runs as many as are wanted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.model import Model, Run, check_between


def test_a_store_does_what_a_dictionary_says() -> None:
    # In a process of its own: it watches all calls of the operating system.
    root = Path(__file__).parents[2]
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.faults.machine",
            "--examples",
            "3",
            "--steps",
            "20",
            "--fixed",
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    counts = {name: int(number) for name, number in re.findall(r"([a-z ]+): (\d+)", found.stdout)}
    assert counts[" mismatches"] == 0
    assert counts[" jobs"] >= 20
    assert counts[" killed"] > 0
    assert counts[" the disk is gone"] > 0


@pytest.mark.parametrize(
    "found",
    [
        Model(0, "c", ["a"], {"a": Run(0, 0), "b": Run(0, 1)}),
        Model(0, "a", ["b"], {"a": Run(0, 0), "b": Run(0, 1)}),
        Model(0, "a", ["a"], {"b": Run(0, 1)}),
        Model(1, "a", ["a"], {"a": Run(0, 0)}),
        Model(0, "b", ["a"], {"a": Run(0, 0), "b": Run(0, 1, frozenset([2]))}),
        Model(0, "b", ["a"], {"a": Run(0, 0, pinned=True), "b": Run(0, 1)}),
    ],
)
def test_what_is_neither_before_nor_after_is_a_mismatch(found: Model) -> None:
    before = Model(0, "a", ["a"], {"a": Run(0, 0)})
    after = Model(0, "b", ["a", "b"], {"a": Run(0, 0), "b": Run(0, 1)})
    check_between(before, Model(0, "b", ["a"], dict(after.runs)), after)
    with pytest.raises(AssertionError):
        check_between(before, found, after)
