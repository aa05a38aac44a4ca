"""The command ``figrl``: its jobs, and how they end."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module

import click

from pipeline.errors import FigrlError

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
    "status",
    "study",
    "bench",
    "demo",
)


class _JobsOnDemand(click.Group):
    """Imports a job when it is called: the processes of a local cluster import this module too."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the jobs, in the order in which they are used."""
        return list(_JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a job."""
        if cmd_name not in _JOBS:
            return None
        command: click.Command = import_module(f"jobs.{cmd_name.replace('-', '_')}").command
        return command


@click.command(
    cls=_JobsOnDemand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
\b
A first run:
  figrl demo
\b
Your own graph, from edges to vectors, and vectors for nodes that came later:
  figrl ingest edges/*.parquet --store store
  figrl plan   --store store --sketch-size 1000 --dim 100
  figrl embed  --store store --sketch-size 1000 --dim 100
  figrl export --store store --out vectors.parquet
  figrl fold-in new-edges.parquet --store store --out new-vectors.parquet
\b
Every job can be stopped at any moment: run the same command again and it goes on where it was.
Exit codes: 0 done, 1 unexpected, 2 usage or configuration, 3 bad input data, 4 refused by a
quality gate, 5 not enough memory or disk, 6 the store is in use.
""",
)
@click.version_option(package_name="figrl")
def figrl() -> None:
    """Node embeddings for graphs larger than memory, on Dask."""


def run() -> None:
    """Run the command line and end the process with the exit code of section 'Exit codes'."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Run one command line; return its exit code."""
    try:
        figrl.main(arguments or ["--help"], prog_name="figrl", standalone_mode=False)
    except FigrlError as error:
        return _failed(error.message, error.exit_code, as_json="--json" in arguments)
    except click.ClickException as error:
        error.show()
        return _failed(None, 2, as_json="--json" in arguments, shown=error.format_message())
    except (click.Abort, KeyboardInterrupt):
        text = "Stopped. Finished blocks are kept: run the same command again to go on."
        return _failed(text, 1, as_json="--json" in arguments)
    except Exception as error:
        traceback.print_exc()
        text = f"Unexpected: {type(error).__name__}: {error}"
        return _failed(text, 1, as_json="--json" in arguments)
    return 0


def _failed(message: str | None, code: int, *, as_json: bool, shown: str = "") -> int:
    if message is not None:
        click.echo(f"error: {message}", err=True)
    if as_json:
        click.echo(json.dumps({"error": message or shown, "exit_code": code}))
    return code


if __name__ == "__main__":
    run()
