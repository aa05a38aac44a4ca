"""The command ``figrl``: its jobs and exit codes."""

from __future__ import annotations

import difflib
import json
import sys
import time
import traceback
from importlib import import_module

import click

from figrl.errors import FigrlError, system_error

STARTED = "figrl.started"
"""Key of the context by which a job knows when the command began."""

_JOBS = (
    "ingest",
    "plan",
    "embed",
    "fold-in",
    "export",
    "neighbors",
    "cluster",
    "holes",
    "reindex",
    "rollback",
    "pin",
    "submit",
    "cancel",
    "resume",
    "status",
    "verify",
    "migrate",
    "study",
    "bench",
    "demo",
)


class _JobsOnDemand(click.Group):
    """Imports a job when it is called: the processes of a local cluster import this module too."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the jobs in the order in which they are used."""
        return list(_JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a job and return its command."""
        if cmd_name not in _JOBS:
            return None
        command: click.Command = import_module(f"figrl_jobs.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the job that was named; an unknown name that is close to a known one says so."""
        ctx.meta[STARTED] = time.perf_counter()
        name = args[0]
        if name not in _JOBS and not name.startswith("-"):
            close = difflib.get_close_matches(name, _JOBS, n=1, cutoff=0.5)
            meant = f" Did you mean '{close[0]}'?" if close else " 'figrl --help' lists all."
            ctx.fail(f"There is no command '{name}'.{meant}")
        return super().resolve_command(ctx, args)


@click.command(
    cls=_JobsOnDemand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
\b
A first run:
  figrl demo
\b
Your own graph, from edges to vectors in one command:
  figrl embed edges.csv --out vectors.parquet
\b
Step by step, with a store that is kept, and vectors of new nodes:
  figrl ingest edges/*.parquet --store store
  figrl plan   --store store --sketch-size 1000 --dim 100
  figrl embed  --store store --sketch-size 1000 --dim 100
  figrl export --store store --out vectors.parquet
  figrl fold-in new-edges.parquet --store store --out new-vectors.parquet
\b
Defaults of your own, in files of dask.config or in variables (docs/settings.md):
  DASK_FIGRL__EMBED__DIM=64 figrl embed --store store

Every job can be stopped at any moment: run the same command again and it resumes.
Exit codes: 0 done, 1 unexpected, 2 usage or configuration, 3 bad input data or a damaged store,
4 refused by a quality gate, 5 not enough memory, disk or workers,
6 the store is in use, 130 interrupted.
""",
)
@click.version_option(package_name="figrl")
def figrl() -> None:
    """Node embeddings for graphs larger than memory, on Dask."""


def run() -> None:
    """Run the command line and exit with its code."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Run one command line; return its exit code."""
    shown = False
    try:
        code = figrl.main(arguments or ["--help"], prog_name="figrl", standalone_mode=False)
        return int(code or 0)
    except click.ClickException as error:
        # click prints the usage too.
        error.show()
        message, code, shown = error.format_message(), 2, True
    except FigrlError as error:
        message, code = error.message, error.exit_code
    except (click.Abort, KeyboardInterrupt):
        message = "Stopped. Finished blocks are kept: run the same command again to resume."
        code = 130
    except Exception as error:
        known = system_error(error)
        if known is None:
            traceback.print_exc()
            known = FigrlError(f"Unexpected: {type(error).__name__}: {error}")
        message, code = known.message, known.exit_code
    if not shown:
        click.echo(f"error: {message}", err=True)
    if "--json" in arguments:
        click.echo(json.dumps({"error": message, "exit_code": code}))
    return code


if __name__ == "__main__":
    run()
