"""Options that jobs share, and options made from the fields of a configuration."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from jobs.console import ConsoleMonitor
from jobs.hosted import host
from pipeline.api import Session
from pipeline.cluster import connect, parse_memory, read_cluster_config

Command = TypeVar("Command", bound=Callable[..., Any])

store_option = click.option(
    "--store",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder of the store, on a file system that all workers share.",
)
cluster_option = click.option(
    "--cluster",
    type=click.Path(dir_okay=False),
    help="Cluster file; default: cluster.yaml of this folder, or a local cluster on loopback.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, alone, on standard output."
)
memory_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Memory that each worker process may use, such as 2GB; default: all it has.",
)


def running_options(command: Command) -> Command:
    """Add the options of every job that runs on a cluster."""
    return memory_option(cluster_option(json_option(command)))


def config_options(model: type[BaseModel], *names: str) -> Callable[[Command], Command]:
    """Make an option of each named field of a configuration; its description is the help."""

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            field = model.model_fields[name]
            help_text = field.description or ""
            if field.default is not None:
                help_text += f"  [default: {field.default}]"
            option = click.option(
                "--" + name.replace("_", "-"), type=_click_type(field.annotation), help=help_text
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


@contextmanager
def session(cluster: str | None, memory_limit: str | None) -> Iterator[Session]:
    """Connect to the cluster that was asked for, with progress on standard error.

    A job that was submitted has its cluster already.
    """
    limit = parse_memory(memory_limit) if memory_limit is not None else None
    hosted = host.get()
    if hosted is not None:
        yield Session(hosted.client, limit, hosted.monitor)
        return
    config = read_cluster_config(cluster)
    with connect(config, limit) as client, ConsoleMonitor().showing() as monitor:
        yield Session(client, limit, monitor)
