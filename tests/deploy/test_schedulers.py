"""Examples for schedulers: a night that cannot end better is not started again."""

from __future__ import annotations

import configparser
import os
import runpy
import shutil
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.documents import ROOT

DEPLOY = ROOT / "docs" / "deploy"
# How often a night that ends with an exit code is started, with two more tries.
STARTS = {0: 1, 1: 3, 2: 1, 3: 1, 4: 1, 5: 3, 6: 3}


class FailError(Exception):
    """Stands for AirflowFailException: the task fails, whatever retries it has."""


def starting(function, retries, worth=lambda *_: True):
    """A task that is started again as a scheduler does it."""

    def start():
        for tries_left in range(retries, -1, -1):
            try:
                return function()
            except FailError:
                raise
            except Exception as error:
                state = SimpleNamespace(result=lambda error=error: (_ for _ in ()).throw(error))
                if not tries_left or not worth(None, None, state):
                    raise
        return None

    return start


def airflow():
    """The few names of Airflow."""

    def dag(*, schedule, start_date, catchup, max_active_runs):
        assert (schedule, catchup, max_active_runs) == ("0 3 * * *", False, 1)
        return lambda function: function

    def task(*, retries, retry_delay):
        return lambda function: starting(function, retries)

    modules = {name: ModuleType(name) for name in ("airflow", "airflow.sdk", "airflow.exceptions")}
    modules["airflow.exceptions"].AirflowFailException = FailError
    modules["airflow.sdk"].dag, modules["airflow.sdk"].task = dag, task
    return modules


def prefect():
    """The few names of Prefect."""
    module = ModuleType("prefect")
    module.flow = lambda name: lambda function: function
    module.task = lambda retries, retry_delay_seconds, retry_condition_fn: (
        lambda function: starting(function, retries, retry_condition_fn)
    )
    return {"prefect": module}


@pytest.fixture
def night(tmp_path, monkeypatch):
    """A command `figrl` that ends with a given code, and counts its starts."""

    def prepare(code):
        script = tmp_path / "figrl"
        script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/starts\nexit {code}\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return lambda: (tmp_path / "starts").read_text().splitlines()

    return prepare


@pytest.mark.parametrize("code", STARTS)
@pytest.mark.parametrize("example", ["airflow_dag", "prefect_flow"])
def test_a_night_that_cannot_end_better_is_not_started_again(night, monkeypatch, example, code):
    for name, module in (airflow if example == "airflow_dag" else prefect)().items():
        monkeypatch.setitem(sys.modules, name, module)
    starts = night(code)

    def run():
        # A DAG runs its tasks where the file is read, with these stand-ins.
        names = runpy.run_path(str(DEPLOY / f"{example}.py"))
        if example == "prefect_flow":
            names["figrl_nightly"]()

    if code:
        with pytest.raises((FailError, RuntimeError, subprocess.CalledProcessError)):
            run()
    else:
        run()
    assert len(starts()) == STARTS[code]
    assert set(starts()) == {"reindex /srv/figrl/nightly.yaml --cluster /srv/figrl/cluster.yaml"}


def test_systemd_does_not_start_again_what_cannot_end_better():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "systemd" / "figrl-nightly.service")
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert final == {code for code, starts in STARTS.items() if code and starts == 1}
    assert int(unit["Unit"]["StartLimitBurst"]) == 3


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    for unit in (DEPLOY / "systemd").iterdir():
        # It checks that the command is there.
        text = unit.read_text().replace("/srv/figrl/.venv/bin/figrl", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    assert len(units) == 2
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    when = ["systemd-analyze", "calendar", "*-*-* 03:00"]
    assert subprocess.run(when, capture_output=True).returncode == 0
