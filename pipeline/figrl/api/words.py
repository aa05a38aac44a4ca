"""Errors in the words of the caller: the library names options as the command does.

A text says ``--weight none`` or ``--weight 'score'``; called from Python that is ``weight='none'``
and ``weight='score'``; what it is in a configuration, `figrl.nightly.words` says. Whole
commands that have no call of their own stay as they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from figrl.errors import FigrlError
from figrl.nightly.words import option_pattern

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


def in_python(call: Callable[Params, Result]) -> Callable[Params, Result]:
    """Decorate a call of a notebook: its errors name arguments, and Ctrl-C says how to go on."""

    @functools.wraps(call)
    def spoken(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return call(*args, **kwargs)
        except FigrlError as error:
            text = python_words(error.message)
            raise error.reworded(text).with_traceback(error.__traceback__) from error.__cause__
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(*(error.args or (STOPPED,))) from None

    return spoken
