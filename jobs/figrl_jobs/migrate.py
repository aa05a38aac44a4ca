"""``figrl migrate``: bring a store of an older layout to the present one.

For example:
  figrl migrate --store store

Ids, vectors, the published run and its history stay as they are. The store is rewritten one graph
or run after the other, which takes the disk of the largest of them for a while. Stopped at
any moment, the same command goes on from there. What cannot be migrated is named before anything is
changed (exit code 3), with the commands that make it again.
"""

from __future__ import annotations

from figrl.engine.progress import Progress
from figrl.engine.screens import Bar, text_screen
from figrl.serve.migrate import migrate
from figrl_jobs.console import Cell, Report, print_facts
from figrl_jobs.options import job, store_option


@job("migrate", __doc__)
@store_option
def command(store: str) -> Report:
    """Bring a store of an older layout to the present one."""
    bar = Bar(Progress("migrate"), text_screen())
    state = "stopped"
    try:
        report = migrate(store, bar)
        state = "done"
    finally:
        bar.end(state)
    return report


@command.render
def _render(report: Report) -> None:
    facts: dict[str, Cell] = {"store": "{store}"}
    if report["already_done"]:
        facts["nothing to do"] = "it has layout {format}, the present one"
    else:
        facts["layout"] = "{format}, before {from_format}"
        facts["graphs"] = lambda report: ", ".join(report["graphs"]) or "none"
        facts["runs"] = lambda report: ", ".join(report["runs"]) or "none"
        facts["written"] = "{written_bytes:bytes} in {seconds:duration}"
        facts["next"] = "figrl verify --store {store}"
    print_facts(report, facts)
