"""The study: the paper's experiments, part by part, to one page and the tables behind it."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from pipeline.api import PathLike, Session
from pipeline.cluster import client_at_hand
from pipeline.errors import BadInputError, ConfigError
from pipeline.files import write_text
from pipeline.measure import human_bytes
from pipeline.study.page import render, write_csv
from pipeline.study.workbench import GRAPHS, Workbench

PARTS = ("clustering", "holes", "unseen", "projection", "karate", "timing")
"""Experiments, in the order of the paper but for the pictures."""


def run_study(
    parts: Sequence[str],
    data: PathLike,
    out: PathLike,
    session: Session,
    *,
    quick: bool = False,
    repeats: int = 10,
) -> dict[str, Any]:
    """Run parts of the study, or go on with them, and write the page.

    Parameters
    ----------
    parts : sequence of str
        Names of `PARTS`, or ``"all"``.
    data, out : path
        Folder of the graphs, such as ``karate.txt.gz``; and the folder of the page, of ``csv/``
        and of the results, which are not measured again. A quick study keeps them apart.
    session : Session
    quick : bool
        The three smallest graphs and few repeats: to see that everything works.
    repeats : int
        Draws of everything that is random; the paper has 10.

    Returns
    -------
    dict
        The page, the tables, and how many items were measured now.
    """
    chosen = _chosen(parts)
    if repeats < 1:
        raise ConfigError(f"--repeats is {repeats}. At least 1 is needed.")
    root = Path(out).absolute()
    started = time.perf_counter()
    tables: list[str] = []
    sections = []
    with client_at_hand(session.client, session.limit_bytes) as client:
        inner = Session(client, session.memory_limit, session.monitor)
        bench = Workbench(
            Path(data), root / "quick" if quick else root, inner, quick=quick, repeats=repeats
        )
        if not bench.graphs:
            raise BadInputError(
                f"{data} has none of the graphs of the paper. Give a folder with files such as "
                f"{GRAPHS[0]}.txt.gz (names: {', '.join(GRAPHS)})."
            )
        for name in chosen:
            part = import_module(f"pipeline.study.parts.{name}")
            items = part.items(bench)
            if not items:
                session.monitor.note(f"{name}: none of its graphs is in {data}; left out.")
                continue
            section = part.section(bench, bench.run(name, items))
            sections.append(section)
            tables += [str(write_csv(bench.out / "csv", table)) for table in section.tables]
    page = bench.out / ("study.html" if len(chosen) == len(PARTS) else f"{'-'.join(chosen)}.html")
    write_text(page, render("figrl: the paper's experiments", _lead(bench), sections))
    return {
        "page": str(page),
        "tables": tables,
        "parts": list(chosen),
        "graphs": bench.graphs,
        "missing_graphs": [name for name in GRAPHS if name not in bench.graphs and not quick],
        "quick": quick,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _chosen(parts: Sequence[str]) -> tuple[str, ...]:
    unknown = [part for part in parts if part not in (*PARTS, "all")]
    if unknown:
        raise ConfigError(
            f"There is no part '{unknown[0]}' of the study; known: {', '.join((*PARTS, 'all'))}."
        )
    return tuple(part for part in PARTS if part in parts or "all" in parts)


def _lead(bench: Workbench) -> list[str]:
    """What a reader has to know first: when, where, and what is not there."""
    memory = human_bytes(psutil.virtual_memory().total)
    missing = [name for name in GRAPHS if name not in bench.graphs]
    lines = [
        "Everything that FI-GRL (ICDM 2018) measures, measured again with figrl, with the figures "
        "that the paper prints beside it.",
        f"{datetime.now(UTC):%Y-%m-%d}, figrl {version('figrl')}, {psutil.cpu_count()} cores "
        f"({platform.machine()}), {memory} of memory; {bench.repeats} draws of what is random.",
    ]
    if bench.quick:
        lines.append("A quick study: the smallest graphs, few repeats and few runs.")
    if missing:
        lines.append(f"Graphs that are not here: {', '.join(missing)}.")
    return lines
