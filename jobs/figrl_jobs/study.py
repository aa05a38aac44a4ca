"""``figrl study``: the experiments of the paper.

For example:
  figrl study all --data graphs/ --out study/
  figrl study karate clustering --data graphs/ --out study/
  figrl study all --data graphs/ --out study/ --quick

Parts: clustering (modularity and permanence), holes (structural holes and their influence), unseen
(nodes held out and folded in), projection (the error of a sketch), karate (pictures), timing.
Clustering and timing also measure the paper's rivals, and timing other libraries; some need the
extra [peers]. Results are kept in OUT/results: a study that was stopped resumes there; delete what
should be measured again. All parts take an hour or two.
The page is OUT/study.html, or OUT/PART.html of single parts; the tables are in OUT/csv.
"""

from __future__ import annotations

from typing import Any

import click

from figrl.study.run import PARTS, run_study
from figrl_jobs.console import Cell, Report, print_facts
from figrl_jobs.options import Connection, job, running_options


@job("study", __doc__)
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*PARTS, "all"]))
@click.option(
    "--data",
    envvar="FIGRL_DATA",
    required=True,
    type=click.Path(file_okay=False, exists=True),
    help="Folder of the graphs, such as karate.txt.gz; default: $FIGRL_DATA.",
)
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of results.")
@click.option("--quick", is_flag=True, help="Small graphs and few repeats, in OUT/quick.")
@click.option(
    "--repeats", type=int, default=10, show_default=True, help="Repeats of every random experiment."
)
@running_options
def command(
    parts: tuple[str, ...], data: str, out: str, connection: Connection, **options: Any
) -> Report:
    """Run the paper's experiments and print its figures beside ours."""
    with connection as session:
        return run_study(parts, data, out, session, **options)


@command.render
def _render(report: Report) -> None:
    facts: dict[str, Cell] = {
        "page": "{page}",
        "tables": f"{len(report['tables'])} CSV files",
        "parts": "{parts:list}",
        "graphs": "{graphs:list}",
        **({"graphs not found": "{missing_graphs:list}"} if report["missing_graphs"] else {}),
    }
    print_facts(report, facts)
