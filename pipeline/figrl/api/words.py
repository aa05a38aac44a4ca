"""Errors in the words of the caller: the library names options as the command does.

A text says ``--weight none`` or ``--weight 'score'``; called from Python that is ``weight='none'``
and ``weight='score'``; what it is in a configuration, `figrl.nightly.words` says. Whole
commands that have no call of their own stay as they are.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from typing import ParamSpec, TypeVar

from figrl.config import Options
from figrl.engine.session import check_client
from figrl.errors import FigrlError
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.words import option_pattern
from figrl.serve.fold_in import FoldInOptions

Params = ParamSpec("Params")
Result = TypeVar("Result")

STOPPED = "Stopped. Finished blocks are kept: make the same call again to resume."
STOPPED_WITHOUT_STORE = "Stopped. Nothing is kept without a store: give store= to resume next time."

_CALLS = (
    (re.compile(r"figrl ingest EDGES --store (\S+)"), r"figrl.ingest(edges, store='\1')"),
    (re.compile(r"figrl embed --store (\S+)"), r"figrl.embed('\1')"),
    (re.compile(r"run the same command again"), "make the same call again"),
)
_FLAGS = frozenset({"overwrite"})
_TRUTHS = {"publish": {"yes": "True", "no": "False"}}


def python_words(text: str) -> str:
    """A text with arguments in place of options.

    Examples
    --------
    >>> python_words("Give --weight 3 or --weight none, and see --on-bad-edges quarantine.")
    "Give weight=3 or weight='none', and see on_bad_edges='quarantine'."
    """
    for pattern, call in _CALLS:
        text = pattern.sub(call, text)
    return option_pattern().sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    if found["command"]:
        return found[0]
    name, value = found["name"].replace("-", "_"), found["value"]
    if value is None:
        return f"{name}=True" if name in _FLAGS else name
    value = _TRUTHS.get(name, {}).get(value, value)
    plain = value.startswith("'") or value in ("True", "False") or value.isdecimal()
    return f"{name}={value}" if plain else f"{name}={value!r}"


_OWNERS: dict[str, type[Options]] = {
    "ingest": IngestOptions,
    "embed": EmbedOptions,
    "fold_in": FoldInOptions,
}
"""Calls by the options that they have."""


def check_arguments(call: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse keyword arguments that a call does not have, and say what may be meant."""
    for name in given:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        owners = [owner for owner, model in _OWNERS.items() if name in model.model_fields]
        if call == "embed" and "ingest" in owners:
            meant = (
                f"It belongs to figrl.ingest, which makes the graph: graph = figrl.ingest(edges, "
                f"{name}=...), then figrl.embed(graph)."
            )
        elif owners:
            meant = f"It belongs to figrl.{owners[0]}."
        elif close:
            meant = f"Did you mean {close[0]!r}?"
        else:
            meant = f"It has: {', '.join(one for one in known if one != 'self')}."
        raise TypeError(f"{call}() has no argument {name!r}. {meant}")


def in_python(call: Callable[Params, Result]) -> Callable[Params, Result]:
    """Decorate a call of a notebook: its errors name arguments, and Ctrl-C says how to go on."""
    parameters = inspect.signature(call).parameters
    known = None if any(one.kind is one.VAR_KEYWORD for one in parameters.values()) else parameters

    @functools.wraps(call)
    def spoken(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        if known is not None:
            check_arguments(call.__name__, kwargs, known)
        check_client(kwargs.get("client"))
        try:
            return call(*args, **kwargs)
        except FigrlError as error:
            text = python_words(error.message)
            raise error.reworded(text).with_traceback(error.__traceback__) from error.__cause__
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(*(error.args or (STOPPED,))) from None

    return spoken
