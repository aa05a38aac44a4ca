"""Defaults of one's own: the section ``figrl`` of ``dask.config``.

What is given to a call or a command counts first, then ``dask.config``, then figrl's defaults.
``dask.config`` is read from YAML files, from variables such as ``DASK_FIGRL__EMBED__DIM=64``, and
from ``dask.config.set({"figrl.embed.dim": 64})``.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import dask
from pydantic import BaseModel, ValidationError

from figrl.config import Model, Options, describe_problems, make_options, section_model
from figrl.errors import ConfigError, FigrlError

Params = ParamSpec("Params")
Result = TypeVar("Result")

SECTIONS = ("ingest", "embed", "fold_in", "cluster", "storage")


def section(name: str, model: type[Options]) -> dict[str, Any]:
    """Keys and values of ``figrl.NAME`` in ``dask.config``; None counts as not there.

    Keys have ``_`` or ``-``, as in the rest of ``dask.config``.
    """
    values: dict[str, Any] = _with_underscores(_section(name), model)
    for key in model.null_is_unclear & {key for key, value in values.items() if value is None}:
        raise ConfigError(
            f"dask.config: figrl.{name}.{key} is null, which may mean its default or none. Leave "
            f"the key out, or write none in quotes; in a variable: '\"none\"'."
        )
    return {key: value for key, value in values.items() if value is not None}


def entries(name: str, model: type[Options]) -> dict[str, Any]:
    """Entries of ``figrl.NAME``, each with keys and values of a model, by names of the user."""
    return {key: _with_underscores(value, model) for key, value in _section(name).items()}


def _section(name: str) -> Mapping[str, Any]:
    whole = _keys(dask.config.get("figrl", None), "figrl")
    for key in whole:
        if (found := key.replace("-", "_")) not in SECTIONS:
            close = difflib.get_close_matches(found, SECTIONS, n=1, cutoff=0.5)
            meant = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(SECTIONS)}."
            raise ConfigError(f"dask.config: there is no section 'figrl.{key}'; {meant}")
    inner = {key.replace("-", "_"): value for key, value in whole.items()}.get(name)
    return _keys(inner, f"figrl.{name}")


def _keys(value: Any, place: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        # What stands in the place of credentials may be one.
        shown = "no section" if place == "figrl.storage" else repr(value)
        raise ConfigError(f"dask.config: {place} is {shown}. It has to hold keys and values.")
    return {str(key): inner for key, inner in value.items()}


def _with_underscores(value: Any, model: type[BaseModel] | None) -> Any:
    """The same with the names of a model's fields; what is no field stays as it is."""
    if model is None or not isinstance(value, Mapping):
        return value
    named = {}
    for key, inner in value.items():
        name = str(key).replace("-", "_")
        known = name in model.model_fields
        named[name if known else key] = _with_underscores(
            inner, section_model(model, name) if known else None
        )
    return named


def settings(model: type[Options], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options that ``dask.config`` sets and that were not given; None is not given.

    Each value is checked by itself, so that an error names its key. What is given replaces what
    depends on it too: a preset replaces all that presets decide.
    """
    values = section(model.section, model)
    try:
        model(**values)
    except ValidationError as error:
        # What has to go together is checked when it is together.
        if problems := describe_problems(error, model, f"figrl.{model.section}"):
            raise ConfigError(f"dask.config: {'; '.join(problems)}.") from error
    names = {name for name, value in given.items() if value is not None}
    replaced = names.union(*(model.replaces.get(name, frozenset()) for name in names))
    return {name: value for name, value in values.items() if name not in replaced}


def with_settings(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Options of a model: what is given, then ``dask.config``, then the defaults."""
    chosen = settings(model, given)
    try:
        return make_options(model, {**given, **chosen})
    except FigrlError as error:
        raise _with_origin(error, model, chosen) from error


def configured(
    model: type[Options],
) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Decorate a call whose keyword arguments are options: those not given are `settings`.

    An argument counts as given also where it has the value of its default. To tell these apart,
    the call gets None for what is neither given nor set.
    """

    def decorate(call: Callable[Params, Result]) -> Callable[Params, Result]:
        own = inspect.signature(call).parameters
        options = dict.fromkeys(name for name in model.model_fields if name in own)

        @functools.wraps(call)
        def filled(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            chosen = settings(model, {n: v for n, v in kwargs.items() if n in model.model_fields})
            filled_in: dict[str, Any] = {**options, **kwargs, **chosen}
            try:
                return call(*args, **filled_in)
            except FigrlError as error:
                told = _with_origin(error, model, chosen)
                raise told.with_traceback(error.__traceback__) from error.__cause__

        return filled

    return decorate


def _with_origin(error: FigrlError, model: type[Options], chosen: Mapping[str, Any]) -> FigrlError:
    """The same error; it also says which of the options in it ``dask.config`` has set."""
    options = {f"--{name.replace('_', '-')}": f"figrl.{model.section}.{name}" for name in chosen}
    named = [option for option in options if re.search(rf"{option}(?![\w-])", error.message)]
    if not named:
        return error
    origins = ", ".join(f"{option} ({options[option]})" for option in named)
    return error.reworded(f"{error.message} Set by dask.config: {origins}.")
