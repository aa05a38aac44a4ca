"""The Dockerfile: what it copies is there, its wheel holds all of figrl, its command runs."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import zipfile

import pytest

from figrl_jobs.main import main
from tests.deploy.dockerfile import read_dockerfile
from tests.documents import ROOT

WHEEL, IMAGE = read_dockerfile(ROOT / "Dockerfile")


def test_the_image_runs_as_a_user_without_rights_and_has_a_healthy_command(capsys):
    user, _, group = IMAGE.last("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    made = [step for step in IMAGE.all("RUN") if f"--uid {user} figrl" in step]
    assert len(made) == 1
    names = [name for name, _ in IMAGE.steps]
    assert "RUN" not in names[names.index("USER") :]
    # Workers and scheduler are other commands: an entry point would stand before them.
    program, *arguments = json.loads(IMAGE.last("CMD"))
    assert program == "figrl"
    assert main(arguments) == 0
    assert "Node embeddings" in capsys.readouterr().out


def test_both_stages_have_one_base_and_the_wheel_goes_from_one_to_the_other():
    assert (WHEEL.name, WHEEL.base, IMAGE.base) == ("wheel", "${PYTHON}", "${PYTHON}")
    assert IMAGE.all("COPY") == ["--from=wheel /wheels /wheels"]
    install = IMAGE.all("RUN")[0]
    assert install.startswith("pip install")
    assert '"$(echo /wheels/figrl-*.whl)[ann,cloud]"' in install


def test_the_wheel_has_every_file_of_the_packages(tmp_path):
    """The steps of the first stage, in a folder with just what it copies."""
    source, wheels = tmp_path / "src", tmp_path / "wheels"
    source.mkdir()
    ignored = (ROOT / ".dockerignore").read_text().split()
    for step in WHEEL.all("COPY"):
        *given, target = step.split()
        for name in given:
            assert f"!{name}" in ignored, f".dockerignore keeps {name} out"
            place = source / (name if target.startswith("./") else target)
            if (ROOT / name).is_dir():
                skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(ROOT / name, place, ignore=skipped)
            else:
                shutil.copy(ROOT / name, place)
    [step] = WHEEL.all("RUN")
    program, *arguments = shlex.split(step.replace("/wheels", str(wheels)))
    assert program == "pip"
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], cwd=source, capture_output=True, text=True
    )
    if "No matching distribution found for setuptools" in done.stdout + done.stderr:
        pytest.skip("setuptools can be had from nowhere")
    assert done.returncode == 0, done.stderr
    [wheel] = wheels.glob("figrl-*.whl")
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
        [points] = [
            file.read(name).decode() for name in inside if name.endswith("entry_points.txt")
        ]
    expected = set()
    for root in ("pipeline", "jobs"):
        for path in (source / root).rglob("*"):
            name = path.relative_to(source / root)
            if path.is_file() and not {"__pycache__", "build"} & set(name.parts):
                expected.add(name.as_posix())
    expected = {name for name in expected if ".egg-info" not in name}
    assert {"figrl/py.typed", "figrl/serve/templates/report.html"} <= expected
    assert expected - inside == set()
    assert "figrl = figrl_jobs.main:run" in points
