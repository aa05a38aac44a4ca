"""``figrl study``: the experiments of the paper."""

from __future__ import annotations

from typing import Any

import click

from jobs.console import emit, facts
from jobs.options import running_options, session
from pipeline.measure import human_seconds
from pipeline.study.calls import PARTS, run_study


@click.command(
    "study",
    epilog="""
\b
Examples:
  figrl study all --data graphs/ --out study/
  figrl study karate clustering --data graphs/ --out study/
  figrl study all --data graphs/ --out study/ --quick
\b
Parts: clustering (modularity and permanence), holes (structural holes and their influence), unseen
(nodes held back and folded in), projection (what a sketch loses), karate (pictures), timing (and
other libraries, with the extra [peers]). Findings are kept in OUT/results: a study that was stopped
goes on where it was; delete what should be measured again. All of it takes an hour or two.
The page is OUT/study.html, or OUT/PART.html for parts alone; the tables are in OUT/csv.
""",
)
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*PARTS, "all"]))
@click.option(
    "--data",
    envvar="FIGRL_DATA",
    required=True,
    type=click.Path(file_okay=False, exists=True),
    help="Folder of the graphs, such as karate.txt.gz; default: the one FIGRL_DATA names.",
)
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of results.")
@click.option("--quick", is_flag=True, help="Small graphs and few repeats, in OUT/quick.")
@click.option(
    "--repeats", type=int, default=10, show_default=True, help="Draws of everything random."
)
@running_options
def command(
    parts: tuple[str, ...],
    data: str,
    out: str,
    quick: bool,
    repeats: int,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
) -> None:
    """Run the paper's experiments and put its figures beside ours."""
    with session(cluster, memory_limit) as running:
        report = run_study(parts, data, out, running, quick=quick, repeats=repeats)
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    missing = ", ".join(report["missing_graphs"])
    facts(
        {
            "page": report["page"],
            "tables": f"{len(report['tables'])} CSV files",
            "parts": ", ".join(report["parts"]),
            "graphs": ", ".join(report["graphs"]),
            **({"graphs not there": missing} if missing else {}),
            "took": human_seconds(report["seconds"]),
        }
    )
