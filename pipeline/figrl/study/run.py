"""The study: runs the paper's experiments and writes one page, and the tables behind it."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from figrl.engine.session import Session
from figrl.errors import BadInputError, ConfigError
from figrl.store.files import write_text
from figrl.store.layout import PathLike
from figrl.store.places import local_path
from figrl.study.experiment import Experiment, Study
from figrl.study.graphs import GRAPHS
from figrl.study.page import render, write_csv
from figrl.study.parts.clustering import Clustering
from figrl.study.parts.holes import Holes
from figrl.study.parts.karate import Karate
from figrl.study.parts.projection import Projection
from figrl.study.parts.timing import Timing
from figrl.study.parts.unseen import Unseen
from figrl.units import human_bytes

_EXPERIMENTS: tuple[type[Experiment], ...] = (Clustering, Holes, Unseen, Projection, Karate, Timing)
PARTS = tuple(experiment.name for experiment in _EXPERIMENTS)
"""Experiments in the order of the page: that of the paper, except for the karate figures."""


def run_study(
    parts: Sequence[str],
    data: PathLike,
    out: PathLike,
    session: Session,
    *,
    quick: bool = False,
    repeats: int = 10,
) -> dict[str, Any]:
    """Run or resume parts of the study (`PARTS` or ``"all"``), and write the page.

    `data` has graphs such as ``karate.txt.gz``. `out` gets the page, ``csv/``, and the results,
    which are not measured again. A quick study, of the three smallest graphs and few repeats, is
    there to see that everything works, and has a folder of its own. `repeats` are draws of
    everything that is random; the paper has 10.
    """
    unknown = [part for part in parts if part not in (*PARTS, "all")]
    if unknown:
        raise ConfigError(
            f"There is no part '{unknown[0]}' of the study; known: {', '.join((*PARTS, 'all'))}."
        )
    chosen = [one for one in _EXPERIMENTS if one.name in parts or "all" in parts]
    if repeats < 1:
        raise ConfigError(f"--repeats is {repeats}. At least 1 is needed.")
    root = local_path(out).absolute() / ("quick" if quick else "")
    started = time.perf_counter()
    tables: list[str] = []
    sections = []
    with session.open() as client:
        running = replace(session, client=client)
        study = Study(Path(data), root, running, quick=quick, repeats=repeats)
        if not study.graphs:
            raise BadInputError(
                f"{data} has none of the graphs of the paper. Give a folder with files such as "
                f"{GRAPHS[0]}.txt.gz (names: {', '.join(GRAPHS)})."
            )
        for experiment in chosen:
            section = experiment(study).run()
            if section is None:
                session.monitor.note(f"{experiment.name}: skipped, {data} has none of its graphs.")
                continue
            sections.append(section)
            tables += [str(write_csv(root / "csv", table)) for table in section.tables]
    names = [experiment.name for experiment in chosen]
    page = root / ("study.html" if len(names) == len(PARTS) else f"{'-'.join(names)}.html")
    write_text(page, render("figrl: the paper's experiments", _lead(study), sections))
    return {
        "page": str(page),
        "tables": tables,
        "parts": names,
        "graphs": study.graphs,
        "missing_graphs": [name for name in GRAPHS if name not in study.graphs and not quick],
        "quick": quick,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _lead(study: Study) -> list[str]:
    """First paragraphs: what, when and where, and what is missing."""
    memory = human_bytes(psutil.virtual_memory().total)
    missing = [name for name in GRAPHS if name not in study.graphs]
    lines = [
        "Everything that FI-GRL (ICDM 2018) measures, measured again with figrl, with the figures "
        "that the paper prints beside it.",
        f"{datetime.now(UTC):%Y-%m-%d}, figrl {version('figrl')}, {psutil.cpu_count()} cores "
        f"({platform.machine()}), {memory} of memory; {study.repeats} draws of what is random.",
    ]
    if study.quick:
        lines.append("A quick study: the smallest graphs, few repeats and few simulations.")
    if missing:
        lines.append(f"Missing graphs: {', '.join(missing)}.")
    return lines
