"""How a job is declared: shared options, options made from a model, and what its report is for."""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from figrl.config import Options
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import read_cluster_config
from figrl.engine.progress import Progress
from figrl.engine.screens import Bar, text_screen
from figrl.engine.session import Session
from figrl.engine.where import describe_place
from figrl.settings import configured
from figrl.store.access import Storage, configured_storage
from figrl.units import parse_memory
from figrl_jobs.console import Report

Command = TypeVar("Command", bound=Callable[..., Any])

Connection = AbstractContextManager[Session]
"""Connects to the cluster when it is entered: after the other options were checked."""

store_option = click.option(
    "--store",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder of the store, on a file system that all workers share.",
)
cluster_option = click.option(
    "--cluster",
    type=click.Path(dir_okay=False),
    help="Cluster file, such as cluster.yaml; default: a local cluster on loopback.",
)
memory_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Memory that each worker process may use, such as 2GB; default: all it has.",
)

verbose_option = click.option(
    "--verbose", is_flag=True, help="Show every stage: its time, bytes and memory."
)


class Job(click.Command):
    """A command whose function returns a report; ``--json`` prints it as one JSON object."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        help_text = "Print one JSON object, alone, on standard output."
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help=help_text))
        self._render: Callable[[Report], None] = print
        self._exit_code: Callable[[Report], int] = lambda _: 0

    def render(self, function: Callable[[Report], None]) -> Callable[[Report], None]:
        """Decorate the function that prints the report for people."""
        self._render = function
        return function

    def ends_with(self, function: Callable[[Report], int]) -> Callable[[Report], int]:
        """Decorate the exit code of a report that is shown, but may tell of something bad."""
        self._exit_code = function
        return function

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of a section after the others."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                section = getattr(param, "section", None) or "Options"
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)

    def call(self, params: dict[str, Any]) -> Report | None:
        """Run the job with its parsed options."""
        assert self.callback is not None
        report: Report | None = self.callback(
            **{name: value for name, value in params.items() if name != "as_json"}
        )
        return report

    def invoke(self, ctx: click.Context) -> None:
        """Run the job and print its report, if it has one."""
        report = self.call(ctx.params)
        if report is not None and ctx.params["as_json"]:
            click.echo(json.dumps(finite(report), indent=1, allow_nan=False))
        elif report is not None:
            self._render(report)
        if report is not None and (code := self._exit_code(report)):
            ctx.exit(code)


def finite(value: Any) -> Any:
    """The same with null in place of infinity and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def job(name: str, doc: str | None, **settings: Any) -> Callable[[Command], Job]:
    """Declare a job; the docstring of its module, but for the first line, ends its help."""
    paragraphs = (doc or "").strip().split("\n\n")[1:]
    epilog = "\n\n".join(f"\b\n{paragraph}" for paragraph in paragraphs)
    return click.command(name, cls=Job, epilog=epilog, context_settings=settings)


def running_options(command: Command) -> Command:
    """Add the options of a job that runs on a cluster, and pass it a `connection`."""

    @memory_option
    @cluster_option
    @verbose_option
    @functools.wraps(command)
    def connected(
        cluster: str | None, memory_limit: str | None, verbose: bool = False, **params: Any
    ) -> Any:
        connection = _connect(cluster, memory_limit, _outline(params), verbose=verbose)
        return command(connection=connection, **params)

    return typing.cast("Command", connected)


class _Option(click.Option):
    """An option that the help may show in a section of its own."""

    section: str | None = None


def config_options(
    model: type[BaseModel], *, section: str | None = None, fills: bool = True
) -> Callable[[Command], Command]:
    """Make an option of each field of a model that has a description, its help text.

    Options that are not given may be set in ``dask.config``, if the model has a section there and
    the command does not see to it by itself, without `fills`.
    """
    kind = type("_Option", (_Option,), {"section": section})

    def decorate(command: Command) -> Command:
        if fills and issubclass(model, Options) and model.section:
            command = typing.cast("Command", configured(model)(command))
        for name, field in reversed(model.model_fields.items()):
            if not field.description:
                continue
            help_text = field.description
            if field.annotation is bool:
                word = name.replace("_", "-")
                command = click.option(
                    f"--{word}/--no-{word}", cls=kind, default=None, help=help_text
                )(command)
                continue
            if field.default is not None:
                help_text += f"  [default: {field.default}]"
            option = click.option(
                "--" + name.replace("_", "-"),
                cls=kind,
                type=_click_type(field.annotation),
                help=help_text,
            )
            command = option(command)
        return command

    return decorate


def _click_type(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    if typing.get_origin(annotation) is typing.Literal:
        return click.Choice(typing.get_args(annotation))
    return annotation


def _outline(params: dict[str, Any]) -> str:
    """Name of the job, for its progress."""
    context = click.get_current_context(silent=True)
    name = "" if context is None else str(context.command.name)
    return "edges to vectors" if name == "embed" and params.get("edges") else name


@contextmanager
def _connect(
    cluster: str | None, memory_limit: str | None, outline: str, *, verbose: bool
) -> Iterator[Session]:
    """Connect to the cluster of the options, with progress on standard error.

    A submitted job runs on the cluster that it was submitted to: its context has the session.
    """
    limit = parse_memory(memory_limit) if memory_limit is not None else None
    context = click.get_current_context(silent=True)
    submitted = context.find_object(Session) if context is not None else None
    if submitted is not None:
        yield replace(submitted, memory_limit=limit)
        return
    config = read_cluster_config(cluster)
    with connect(config, limit) as client:
        click.echo(describe_place(client, config), err=True)
        bar = Bar(Progress(outline), text_screen(), verbose=verbose)
        state = "stopped"
        try:
            if cluster is None and Path("cluster.yaml").exists():
                bar.note(
                    "The cluster.yaml in this folder is not used, because it was not named: "
                    "give --cluster cluster.yaml."
                )
            storage = Storage.of(config.storage).over(configured_storage())
            yield Session(client, limit, bar, storage)
            state = "done"
        finally:
            bar.end(state)
