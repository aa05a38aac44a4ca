"""The configuration of a nightly re-indexing: one YAML file, and the source files it selects."""

from __future__ import annotations

import fnmatch
import glob
import re
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator
from pydantic.fields import FieldInfo

from figrl.config import Model, Options, read_yaml, section_model
from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.listing import find_files, in_order
from figrl.ingestion.opening import AnyFile
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.gates import Gates
from figrl.serve.publish import KeepRuns
from figrl.settings import with_settings
from figrl.store.access import Entries, Storage, checked
from figrl.store.places import local_path, remote_url


class Source(Options):
    """Files of edges."""

    path: str = Field(description="A file, a folder, a glob pattern, or a URL of one.")
    include: tuple[str, ...] = Field(
        ("*",), description="Patterns of names or paths; a file has to match one of them."
    )
    exclude: tuple[str, ...] = Field((), description="Patterns of files that are left out.")


class Window(Options):
    """The last days of a folder that is partitioned by date, as in .../date=2026-11-16/..."""

    days: int = Field(
        ge=1, examples=[90], description="Days, counted back from the newest partition."
    )
    partition: str = Field("date", description="Name of the partition.")


class ReindexConfig(Options):
    """Configuration of ``figrl reindex``."""

    store: str = Field(
        examples=["/data/figrl/store"],
        description="Folder of the store, on a file system that all workers share.",
    )
    sources: tuple[Source, ...] = Field(
        min_length=1,
        examples=[[{"path": "/data/edges", "include": ["*.parquet"], "exclude": ["*_tmp*"]}]],
        description="Where the edges are.",
    )
    window: Window | None = Field(None, description="Only the last days of the edges.")
    ingest: IngestOptions = Field(
        default_factory=IngestOptions,
        description="How edges are read: the options of figrl ingest.",
    )
    embed: EmbedOptions = Field(
        default_factory=EmbedOptions, description="What is learnt: the options of figrl embed."
    )
    align: bool = Field(True, description="Rotate new vectors onto the published ones.")
    gates: Gates = Field(default_factory=Gates, description="Limits that a run has to keep.")
    keep: KeepRuns = Field(default_factory=KeepRuns, description="What stays on disk.")
    index: Literal["none", "approximate"] = Field(
        "none", description="Whether an index for approximate search is built (needs figrl[ann])."
    )
    metrics: str | None = Field(
        None, description="File of metrics for Prometheus; default: metrics.prom in the store."
    )
    memory_limit: str | None = Field(
        None, description="Memory that each worker process may use, such as 2GB."
    )

    storage: Entries = Field(
        default_factory=dict,
        examples=[{}],
        description="How URLs of sources are reached: by scheme (s3) or beginning (s3://bucket), "
        "keys such as endpoint, region and anonymous.",
    )

    @field_validator("storage")
    @classmethod
    def _for_places(cls, value: Entries) -> Entries:
        return checked(value)

    @field_validator("sources", mode="before")
    @classmethod
    def _accept_paths(cls, value: Any) -> Any:
        """Accept a path, or a list of paths, for a list of sources."""
        items = value if isinstance(value, list | tuple) else [value]
        return [{"path": item} if isinstance(item, str) else item for item in items]


def read_reindex_config(path: str | Path) -> ReindexConfig:
    """Read and check a configuration; relative paths in it start at the folder of the file."""
    file = local_path(path)
    hint = "figrl reindex --example prints one to start from."
    config = read_yaml(file, ReindexConfig, what="The configuration", hint=hint)
    if file.read_text(encoding="utf-8").strip() == example_config().strip():
        raise ConfigError(
            f"{file} is the example as it was printed. Write your own folders into it, at least "
            "'store' and 'sources', and try again. Nothing was done."
        )
    options = {name: _completed(getattr(config, name)) for name in ("ingest", "embed")}
    folder = file.absolute().parent
    sources = (s.model_copy(update={"path": _source(folder, s.path)}) for s in config.sources)
    paths: dict[str, Any] = {
        "store": str(folder / local_path(config.store)),
        "sources": tuple(sources),
    }
    if config.metrics is not None:
        paths["metrics"] = str(folder / local_path(config.metrics))
    return config.model_copy(update=paths | options)


def _source(folder: Path, given: str) -> str:
    return remote_url(given) or str(folder / local_path(given))


def _completed(options: Model) -> Model:
    """The same options; ``dask.config`` counts where the file says nothing."""
    return with_settings(type(options), options.model_dump(include=options.model_fields_set))


def named_places(path: str | Path) -> tuple[str, str | None] | None:
    """Store and metrics that a configuration names, though something else in it may be wrong."""
    with suppress(OSError, yaml.YAMLError, ValueError, TypeError, RecursionError):
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        store, metrics = (content.get(key) for key in ("store", "metrics"))
        folder = Path(path).absolute().parent
        if isinstance(store, str):
            return str(folder / store), str(folder / metrics) if metrics else None
    return None


def example_config() -> str:
    """A configuration with every key, its meaning and its default."""
    lines = ["# figrl reindex: the nightly job.", ""]
    for name, field in ReindexConfig.model_fields.items():
        section = section_model(ReindexConfig, name)
        lines += _comment(field)
        if section is None or field.examples:
            lines += _entry(name, field)
        else:
            # The window is off by default; the other sections hold their defaults.
            off = "# " if field.default is None else ""
            lines.append(f"{off}{name}:")
            for key, inner in section.model_fields.items():
                lines += [f"  {line}" for line in _comment(inner)]
                lines += [f"{off}  {line}" for line in _entry(key, inner)]
        lines.append("")
    return "\n".join(lines)


def _comment(field: FieldInfo) -> list[str]:
    text = field.description or ""
    return textwrap.wrap(text, 90, initial_indent="# ", subsequent_indent="# ")


def _entry(name: str, field: FieldInfo) -> list[str]:
    value = field.examples[0] if field.examples else field.default
    return yaml.safe_dump({name: value}, sort_keys=False).splitlines()


def source_files(config: ReindexConfig, storage: Storage | None = None) -> list[AnyFile]:
    """Files that a configuration selects, in a fixed order.

    `storage`: how URLs are reached where the configuration does not say it.
    """
    reached = Storage.of(config.storage).over(storage or Storage())
    found: list[AnyFile] = []
    for source in config.sources:
        is_local = remote_url(source.path) is None
        if is_local and not glob.has_magic(source.path) and not Path(source.path).exists():
            raise BadInputError(
                f"{source.path}: it does not exist (is its disk mounted?). Correct sources.path, "
                "or make it."
            )
        files = find_files(source.path, reached, chosen=partial(_is_selected, source=source))
        if not files:
            raise BadInputError(
                f"{source.path}: none of its files matches include {list(source.include)} and "
                f"exclude {list(source.exclude)}."
            )
        found += files
    files = in_order(found)
    return files if config.window is None else _within(files, config.window)


def _is_selected(file: str, source: Source) -> bool:
    def matches(patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatch(n, p) for p in patterns for n in (Path(file).name, file))

    return matches(source.include) and not matches(source.exclude)


def _within(files: Sequence[AnyFile], window: Window) -> list[AnyFile]:
    """Files of the last days; a file outside of all partitions is an error, not left out."""
    pattern = re.compile(rf"(?:^|/){re.escape(window.partition)}=(\d{{4}}-\d{{2}}-\d{{2}})(?:/|$)")
    days: dict[AnyFile, date] = {}
    for file in files:
        hit = pattern.search(str(file))
        try:
            days[file] = date.fromisoformat(hit.group(1) if hit else "")
        except ValueError as error:
            raise BadInputError(
                f"{file}: it lies in no folder {window.partition}=YYYY-MM-DD, so the window of "
                f"{window.days} days cannot be applied to it. Move it, or exclude it."
            ) from error
    first = max(days.values()) - timedelta(days=window.days - 1)
    return [file for file in files if days[file] >= first]
