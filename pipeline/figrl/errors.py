"""Everything that can go wrong, and the exit code that a job ends with."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

_USER_IN_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^/\s'\"@]*(?:@[^/\s'\"@]*)*@")
_QUERY_IN_URL = re.compile(r"\b(https?://[^\s'\"?]+)\?[^\s'\"]*[^\s'\".,;:)]")
_SECRET_BY_NAME = re.compile(
    r"\b((?:aws_)?(?:secret_access_key|session_token)|account_key|sas_token|sas_key|authorization)"
    r"(['\"]?\s*[=:]\s*['\"]?)(?:bearer\s+|basic\s+)?[^\s'\",;]+",
    re.IGNORECASE,
)


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """A text without passwords and signatures of URLs, and without secrets that are known.

    Examples
    --------
    >>> without_secrets("https://ann:abc@host/e.csv?sig=xyz: no")
    'https://host/e.csv?...: no'
    """
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) > 3:
            text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
    text = _USER_IN_URL.sub(r"\1", text)
    text = _QUERY_IN_URL.sub(r"\1?...", text)
    return _SECRET_BY_NAME.sub(r"\1\2***", text)


class FigrlError(Exception):
    """Base of all errors that figrl raises on purpose.

    The message says what was wrong, what was given, what is allowed and what to do next. Instances
    are sent between processes, so they hold nothing but that text. Passwords and signatures in URLs
    are taken out of it.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        message = without_secrets(message)
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)

    def reworded(self, message: str) -> FigrlError:
        """The same error in other words."""
        return type(self)(message)


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


class CancelledError(FigrlError):
    """Somebody ended the job from elsewhere."""

    exit_code = 130


class IdTypeChangedError(FigrlError):
    """Ids that looked like integers turned out to be text; the scan starts again as text."""

    exit_code = 3


def bad_row(file: str, row: int, problem: str, remedy: str) -> BadInputError:
    """Build the error for one unusable row of the input."""
    return BadInputError(f"{file}, row {row}: {problem}. {remedy}")


_AGAIN = "then run the same command again: finished blocks are kept"
_FULL = (ResourceError, "there is no space left", f"Free some, or use another disk; {_AGAIN}")
_DENIED = (ConfigError, "this user may not do that", "Change its rights, or give another path")
_NOT_A_PLACE = (ConfigError, "nothing can be there", "Give another path")

_SYSTEM_ERRORS: dict[int, tuple[type[FigrlError], str, str]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: (ResourceError, "your quota is used up", f"Free some space; {_AGAIN}"),
    errno.EFBIG: (ResourceError, "files may not be that large", f"Raise `ulimit -f`; {_AGAIN}"),
    errno.ENOMEM: (ResourceError, "there is not enough memory", f"Lower --memory-limit; {_AGAIN}"),
    errno.EMFILE: (ResourceError, "too many files are open", f"Raise `ulimit -n`; {_AGAIN}"),
    errno.ENFILE: (ResourceError, "too many files are open", f"Close some programs; {_AGAIN}"),
    errno.EROFS: (ConfigError, "the file system is read-only", "Give a path that can be written"),
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENOTDIR: _NOT_A_PLACE,
    errno.EISDIR: _NOT_A_PLACE,
    errno.ENAMETOOLONG: _NOT_A_PLACE,
    errno.ELOOP: _NOT_A_PLACE,
    errno.EIO: (
        BadInputError,
        "the disk does not read or write it",
        f"Check the disk, or use another one; {_AGAIN}",
    ),
}
"""What the operating system may refuse: the error, the problem, and what to do next."""

_ERRNO_IN_TEXT = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")


def system_error(error: BaseException, path: str | Path | None = None) -> FigrlError | None:
    """What the operating system refused, in figrl's words; None if it is another error.

    `path`: what is named where the error names no file. Libraries that wrap the error of the
    operating system are looked through.
    """
    number = _errno_of(error)
    if number not in _SYSTEM_ERRORS:
        cause = error.__cause__
        wraps = cause is not None and not isinstance(error, FigrlError)
        return system_error(cause, path) if cause is not None and wraps else None
    kind, problem, remedy = _SYSTEM_ERRORS[number]
    place = getattr(error, "filename", None) or path
    named = f"{os.fsdecode(place)}: " if isinstance(place, str | bytes | Path) else ""
    return kind(f"{named}{problem} ({os.strerror(number)}). {remedy}.")


def _errno_of(error: BaseException) -> int:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno:
        return error.errno
    # Arrow and NumPy have only a text.
    if isinstance(error, OSError) or type(error).__module__.startswith(("pyarrow", "zarr")):
        text = " ".join(map(str, error.args))
        if found := _ERRNO_IN_TEXT.search(text):
            return int(found[1])
        return errno.ENOSPC if _SHORT_WRITE.search(text) else 0
    return 0


@contextmanager
def system_errors_named(path: Path | None = None) -> Iterator[None]:
    """Raise what the operating system refuses as errors of figrl; see `system_error`."""
    try:
        yield
    except Exception as error:
        known = system_error(error, path)
        if known is None:
            raise
        raise known from error
