"""Everything that can go wrong, and the exit code that a job ends with."""

from __future__ import annotations

from typing import Any


class FigrlError(Exception):
    """Base of all errors that figrl raises on purpose.

    The message says what was wrong, what was given, what is allowed and what to do next. Instances
    are sent between processes, so they hold nothing but that text.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)


class ConfigError(FigrlError):
    """An option, a configuration file or a call is wrong."""

    exit_code = 2


class BadInputError(FigrlError):
    """The data that was given cannot be used as it is."""

    exit_code = 3


class DamagedError(BadInputError):
    """A file of a store is missing, or is not what was written."""


class GateError(FigrlError):
    """A quality gate refused the result."""

    exit_code = 4


class ResourceError(FigrlError):
    """The work does not fit the memory or the disk."""

    exit_code = 5


class StoreInUseError(FigrlError):
    """Another job is writing to the store."""

    exit_code = 6


class IdTypeChangedError(FigrlError):
    """Ids that looked like integers turned out to be text; the scan starts again as text."""

    exit_code = 3


def bad_row(file: str, row: int, problem: str, remedy: str) -> BadInputError:
    """Build the error for one unusable row of the input."""
    return BadInputError(f"{file}, row {row}: {problem}. {remedy}")
