"""``figrl reindex``: the nightly job.

For example:
  figrl reindex --example > nightly.yaml
  figrl reindex nightly.yaml
  figrl reindex nightly.yaml --publish-anyway

The job ingests the sources, learns vectors, aligns them with the published ones, checks them,
publishes them in one step and deletes old runs. Without new input it does nothing. Killed at any
moment, it resumes when it is started again. A run that a gate refuses is kept but not published
(exit code 4).
"""

from __future__ import annotations

from contextlib import ExitStack

import click

from figrl.errors import ConfigError
from figrl.nightly.config import (
    ReindexConfig,
    example_config,
    named_places,
    read_reindex_config,
    source_files,
)
from figrl.nightly.reindex import run_reindex, starting, tell_failure
from figrl.store.places import remote_url
from figrl_jobs.console import Cell, Report, finish, print_facts, print_stages
from figrl_jobs.options import Connection, job, running_options


@job("reindex", __doc__)
@click.argument("config", required=False, type=click.Path(dir_okay=False))
@click.option("--example", is_flag=True, help="Print an example of a configuration.")
@click.option("--publish-anyway", is_flag=True, help="Publish even if a gate refuses.")
@running_options
def command(
    config: str | None, example: bool, publish_anyway: bool, connection: Connection
) -> Report | None:
    """Bring published vectors up to date with the sources in CONFIG."""
    if example:
        click.echo(example_config(), nl=False)
        return None
    if config is None:
        raise click.UsageError("Give a CONFIG file; --example prints one to start from.")
    wanted = _read(config)
    local = all(remote_url(source.path) is None for source in wanted.sources)
    with ExitStack() as stack:
        with starting(wanted):
            # Before a store is made for sources that are not there.
            if local:
                source_files(wanted)
            session = stack.enter_context(connection)
            if not local:
                # The cluster file may say how URLs are reached.
                source_files(wanted, session.storage)
        return run_reindex(wanted, session, publish_anyway=publish_anyway)


def _read(config: str) -> ReindexConfig:
    """The configuration; that it is wrong is told where it says that nights are told of."""
    try:
        return read_reindex_config(config)
    except ConfigError as error:
        places = named_places(config)
        if places is not None:
            tell_failure(*places, error)
        raise


@command.render
def _render(report: Report) -> None:
    if report["withdrawn"]:
        click.echo(f"Nothing is published: {report['reason'][0].lower()}{report['reason'][1:]}")
        return
    if report["nothing_to_do"]:
        text = f"run {report['run']} is published, and its sources have not changed."
        click.echo(f"Nothing to do: {text}")
        return
    facts: dict[str, Cell] = {
        "published": "{run}",
        "nodes": "{nodes:,}",
        "edges": "{edges:,}",
    }
    if report["alignment"] and report["alignment"]["mean_cosine"] is not None:
        facts["cosine with last run"] = (
            "{alignment[mean_cosine]:.3f} on average, over {alignment[compared_nodes]:,} nodes "
            "({alignment[mean_cosine_unaligned]:.3f} before alignment)"
        )
    if report["certificate"]:
        facts["certificate"] = "{certificate[meaning]}"
    if report["carried_nodes"]:
        facts["folded in again"] = "{carried_nodes:,} nodes that are not in the sources"
    if report["retired"]["deleted"]:
        facts["deleted"] = "{retired[deleted]:list} ({retired[freed_bytes]:bytes})"
    if report["retired"]["in_use"]:
        facts["kept, in use by readers"] = "{retired[in_use]:list}"
    print_facts(report, facts)
    print_stages(report)
    refused = [gate["gate"] for gate in report["gates"] if not gate["passed"]]
    if refused:
        click.echo(f"Published although these gates refused: {', '.join(refused)}")
    click.echo(f"Report: {report['report']}")
    finish()
