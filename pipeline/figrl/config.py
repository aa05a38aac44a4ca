"""Everything that can be asked for: one base model, one reader of YAML, one formatter of errors."""

from __future__ import annotations

import difflib
import reprlib
import stat
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from figrl.errors import ConfigError


class Options(BaseModel):
    """Base of all options: immutable, and unknown names are errors."""

    # Tracebacks show the errors of pydantic too, and what was given may be a secret.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    added_later: ClassVar[frozenset[str]] = frozenset()
    """Options that count only where they differ from their default: names of results that were
    made before these options existed stay the same."""

    section: ClassVar[str] = ""
    """Section of dask.config that sets these options: ``figrl.SECTION``; see `figrl.settings`."""

    replaces: ClassVar[dict[str, frozenset[str]]] = {}
    """What dask.config says of these does not count where an option that decides them is given."""

    null_is_unclear: ClassVar[frozenset[str]] = frozenset()
    """Options with the word none, which is not null, for a value."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse the true that YAML makes of yes and on, and that would count as 1."""
        wanted = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and wanted is not bool:
            raise ValueError("yes and no, on and off are no value here; put a text in quotes")
        return value

    def significant(self) -> dict[str, Any]:
        """Options that change the result, as JSON can hold them."""
        fields = type(self).model_fields
        unused = {name for name in self.added_later if getattr(self, name) == fields[name].default}
        return self.model_dump(mode="json", exclude=unused)


Model = TypeVar("Model", bound=Options)


def make_options(model: type[Model], given: dict[str, Any]) -> Model:
    """Build options of a command or a call; None means that an option was not given."""
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        return model(**chosen)
    except ValidationError as error:
        problems = "; ".join(_problem(p, model, option=True) for p in error.errors())
        raise ConfigError(
            f"{problems.removesuffix('?')}{'?' if problems[-1] == '?' else '.'}"
        ) from error


def read_yaml(path: Path, model: type[Model], *, what: str, hint: str) -> Model:
    """Read and check a YAML file; all mistakes in it are named at once.

    Errors call the file `what`, such as "The cluster file"; that of one without keys adds `hint`.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{what} {path} cannot be read: it is no file. Name one.")
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{what} {path} cannot be read: {_without_lines(error)}.") from None
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} {path} cannot be read: {error}.") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: it has to hold keys and values. {hint}")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(p, model) for p in error.errors())
        raise ConfigError(f"{path}: {problems}.") from error


def _without_lines(error: yaml.MarkedYAMLError) -> str:
    """What is wrong and where, without the lines themselves, in which a secret may stand."""
    for mark in (error.context_mark, error.problem_mark):
        if mark is not None:
            mark.buffer = None
    return str(error)


class _UniqueKeys(yaml.SafeLoader):
    """A loader to which a key that is there twice is an error, not the last of them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a dictionary."""
        keys = [key.value for key, _ in node.value if key.tag == "tag:yaml.org,2002:str"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(
                    None, None, f"the key '{key}' is there twice", node.start_mark
                )
        return super().construct_mapping(node, deep=deep)


def describe_problems(error: ValidationError, model: type[BaseModel], within: str) -> list[str]:
    """What is wrong with single values of a section; nothing if only their combination is."""
    problems = (problem for problem in error.errors() if problem["loc"])
    return [_problem(problem, model, within=f"{within}.") for problem in problems]


def _problem(
    problem: Any, model: type[BaseModel], *, option: bool = False, within: str = ""
) -> str:
    """Format what is wrong with a value, in the words of the command or of the file."""
    place = within + ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _keys_at(model, problem["loc"][:-1])
        close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0.5)
        meant = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
        return f"there is no {'option' if option else 'key'} '{place}'; {meant}"
    if problem["type"] == "missing":
        return f"the key '{place}' is missing"
    reason = problem["msg"].removeprefix("Value error, ")
    if not place:
        return str(reason)
    name = "--" + place.replace("_", "-") if option else place
    if "storage" in place.split("."):
        # What stands there may be a secret.
        return f"{name}: {reason}"
    return f"{name} is {_shown(problem['input'])}: {reason}"


def _shown(value: Any) -> str:
    """A value as text; short, whatever it holds."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 200
    return short.repr(value)


def _keys_at(model: type[BaseModel], place: Sequence[Any]) -> list[str]:
    """Keys that are known at a place of a model."""
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = section_model(model, part) or model
    return sorted(field.alias or name for name, field in model.model_fields.items())


def section_model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Model of a section of a configuration; None where the field is a plain value."""

    def models(annotation: Any) -> list[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return [annotation]
        return [found for part in typing.get_args(annotation) for found in models(part)]

    return next(iter(models(model.model_fields[name].annotation)), None)
