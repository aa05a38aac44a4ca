"""The configuration of a nightly re-indexing: one YAML file, checked as a whole."""

from __future__ import annotations

import difflib
import fnmatch
import re
import textwrap
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.config import EmbedConfig, IngestConfig
from pipeline.errors import BadInputError, ConfigError
from pipeline.ingest.sources import find_files


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Section):
    """Files of edges."""

    path: str = Field(description="A file, a folder, or a glob pattern.")
    include: tuple[str, ...] = Field(
        ("*",), description="Patterns of names or paths, one of which a file has to match."
    )
    exclude: tuple[str, ...] = Field((), description="Patterns that leave a file out.")


class Window(_Section):
    """The last days of a folder that is partitioned by date, as in .../date=2026-11-16/..."""

    days: int = Field(ge=1, description="Days, counted back from the newest one there is.")
    partition: str = Field("date", description="Name of the partition.")


class Gates(_Section):
    """Limits beyond which a run is not published; null turns a gate off."""

    nodes_change: float | None = Field(
        0.2, ge=0, description="Most that the number of nodes may change by, as a share."
    )
    edges_change: float | None = Field(
        0.2, ge=0, description="Most that the number of edges may change by, as a share."
    )
    rejected_rows: float | None = Field(
        0.001, ge=0, le=1, description="Largest share of rows set aside as bad."
    )
    cost_bound: float | None = Field(
        None,
        ge=0,
        description="Largest bound that the certificate may give for the relative projection cost.",
    )
    mean_cosine: float | None = Field(
        0.5,
        ge=-1,
        le=1,
        description="Least mean cosine between a node's vectors of last time and of now.",
    )
    non_finite_vectors: float | None = Field(
        0.0, ge=0, le=1, description="Largest share of vectors with a value that is no number."
    )
    zero_vectors: float | None = Field(
        0.01, ge=0, le=1, description="Largest share of vectors that are all zero."
    )
    neighbour_recall_loss: float | None = Field(
        0.2,
        ge=0,
        le=1,
        description=(
            "Largest share lost, against last time, of a node's neighbours in the graph that are "
            "among its nearest vectors."
        ),
    )


class KeepRuns(_Section):
    """What stays on disk."""

    runs: int = Field(7, ge=1, description="Published runs, with the current one.")
    refused: int = Field(2, ge=0, description="Runs that a gate refused.")
    unfinished_days: float = Field(
        3.0, ge=0, description="Days after which work that nobody took up again is deleted."
    )


class ReindexConfig(_Section):
    """What is done every night."""

    store: str = Field(description="Folder of the store, on a file system that all workers share.")
    sources: tuple[Source, ...] = Field(min_length=1, description="Where the edges are.")
    window: Window | None = Field(None, description="Only the last days of the edges.")
    ingest: IngestConfig = Field(
        default_factory=IngestConfig,
        description="How edges are read: the options of figrl ingest.",
    )
    embed: EmbedConfig = Field(
        default_factory=EmbedConfig,
        description="What is learnt: the options of figrl embed.",
    )
    align: bool = Field(True, description="Rotate new vectors onto the published ones.")
    gates: Gates = Field(default_factory=Gates, description="What may be published.")
    keep: KeepRuns = Field(
        default_factory=KeepRuns,
        description="What stays on disk.",
    )
    index: Literal["none", "approximate"] = Field(
        "none", description="Whether an index for approximate search is built (needs figrl[ann])."
    )
    metrics: str | None = Field(
        None, description="File of metrics for Prometheus; default: metrics.prom in the store."
    )
    memory_limit: str | None = Field(
        None, description="Memory that each worker process may use, such as 2GB."
    )

    @field_validator("sources", mode="before")
    @classmethod
    def _paths_alone(cls, value: Any) -> Any:
        """A path alone is a source too."""
        items = value if isinstance(value, list | tuple) else [value]
        return [{"path": item} if isinstance(item, str) else item for item in items]


def read_reindex_config(path: str | Path) -> ReindexConfig:
    """Read and check a configuration; every mistake in it is named at once."""
    file = Path(path)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration {file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"{file}: it has to hold keys and values. figrl reindex --example prints one to start "
            "from."
        )
    try:
        return _beside(file.absolute().parent, ReindexConfig.model_validate(content))
    except ValidationError as error:
        problems = "; ".join(_problem(problem) for problem in error.errors())
        raise ConfigError(f"{file}: {problems}.") from error


def _beside(folder: Path, config: ReindexConfig) -> ReindexConfig:
    """Take paths that are not absolute from the folder of the file, wherever the job runs."""
    sources = tuple(
        source.model_copy(update={"path": str(folder / source.path)}) for source in config.sources
    )
    paths: dict[str, Any] = {"store": str(folder / config.store), "sources": sources}
    if config.metrics is not None:
        paths["metrics"] = str(folder / config.metrics)
    return config.model_copy(update=paths)


def _problem(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _keys_at(problem["loc"][:-1])
        close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0.4)
        meant = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
        return f"there is no key '{place}'; {meant}"
    if problem["type"] == "missing":
        return f"the key '{place}' is missing"
    return f"{place} is {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}"


def _keys_at(place: Sequence[Any]) -> list[str]:
    """Keys that are known at a place of the configuration."""
    model: type[BaseModel] = ReindexConfig
    for part in place:
        if isinstance(part, int):
            continue
        model = _SECTIONS.get(str(part), model)
    return sorted(model.model_fields)


_SECTIONS: dict[str, type[BaseModel]] = {
    "sources": Source,
    "window": Window,
    "ingest": IngestConfig,
    "embed": EmbedConfig,
    "gates": Gates,
    "keep": KeepRuns,
}


_EXAMPLE_VALUES = {
    "store": "/data/figrl/store",
    "sources": [{"path": "/data/edges", "include": ["*.parquet"], "exclude": ["*_tmp*"]}],
    "window": {"days": 90, "partition": "date"},
}


def example_config() -> str:
    """A configuration with every key, its meaning and its default."""
    lines = ["# figrl reindex: what is done every night.", ""]
    for name, field in ReindexConfig.model_fields.items():
        section = _SECTIONS.get(name)
        lines += _comment(field.description)
        if name in ("store", "sources"):
            lines += yaml.safe_dump({name: _EXAMPLE_VALUES[name]}, sort_keys=False).splitlines()
        elif section is None:
            lines.append(yaml.safe_dump({name: field.default}).strip())
        else:
            # Left out by default; the others hold what is their default anyway.
            off = "# " if name == "window" else ""
            lines.append(f"{off}{name}:")
            for key, inner in section.model_fields.items():
                lines += [f"  {line}" for line in _comment(inner.description)]
                values = _EXAMPLE_VALUES.get(name, {})
                value = values.get(key, inner.default) if isinstance(values, dict) else None
                lines.append(f"{off}  {yaml.safe_dump({key: value}).strip()}")
        lines.append("")
    return "\n".join(lines)


def _comment(text: str | None) -> list[str]:
    return textwrap.wrap(text or "", 90, initial_indent="# ", subsequent_indent="# ")


def source_files(config: ReindexConfig) -> list[str]:
    """Files that a configuration asks for, in a fixed order."""
    found: set[str] = set()
    for source in config.sources:
        files = find_files([source.path], chosen=partial(_is_asked_for, source=source))
        if not files:
            raise BadInputError(
                f"{source.path}: none of its files matches include {list(source.include)} and "
                f"exclude {list(source.exclude)}."
            )
        found.update(files)
    files = sorted(found)
    return files if config.window is None else _within(files, config.window)


def _is_asked_for(file: str, source: Source) -> bool:
    def matches(patterns: Sequence[str]) -> bool:
        name = Path(file).name
        return any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(file, p) for p in patterns)

    return matches(source.include) and not matches(source.exclude)


def _within(files: Sequence[str], window: Window) -> list[str]:
    """Files of the last days; a file that is in no partition is an error, not left out silently."""
    pattern = re.compile(rf"(?:^|/){re.escape(window.partition)}=(\d{{4}}-\d{{2}}-\d{{2}})(?:/|$)")
    days: dict[str, date] = {}
    for file in files:
        hit = pattern.search(file)
        try:
            days[file] = date.fromisoformat(hit.group(1)) if hit else date.min
        except ValueError:
            days[file] = date.min
        if days[file] == date.min:
            raise BadInputError(
                f"{file}: it lies in no folder {window.partition}=YYYY-MM-DD, so the window of "
                f"{window.days} days cannot tell whether it counts. Move it, or exclude it."
            )
    first = max(days.values()) - timedelta(days=window.days - 1)
    return [file for file in files if days[file] >= first]
