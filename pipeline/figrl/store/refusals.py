"""What object stores and servers refuse, in figrl's words: never with a secret in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from figrl.errors import BadInputError, ConfigError, FigrlError, without_secrets
from figrl.store.access import Access

_SECRET_VARIABLE = re.compile(r"(AWS|AZURE|GOOGLE|FIGRL|DASK)_.*(KEY|SECRET|TOKEN|PASSWORD|SAS).*")

_CREDENTIALS = (
    "Give the right ones: in variables of the environment (AWS_ACCESS_KEY_ID and others), "
    "which the workers need too, or under storage in the cluster file, the nightly file or "
    "dask.config; for public data say anonymous: true there"
)

_KINDS: tuple[tuple[str, type[FigrlError], str, str], ...] = (
    (
        r"PreconditionError|412 Precondition Failed",
        BadInputError,
        "it was changed while it was read",
        "Run the same command again when nobody writes to it",
    ),
    (
        r"NoSuchBucket|ContainerNotFound|bucket does not exist|list request.*404 Not Found",
        BadInputError,
        "there is no such bucket",
        "Correct its name, or the endpoint or region under storage",
    ),
    (
        r"PermissionDeniedError|UnauthenticatedError|InvalidAccessKeyId|SignatureDoesNotMatch"
        r"|AccessDenied|(401|403) [A-Z]",
        ConfigError,
        "access is denied: the credentials are wrong, are missing, or may not read it",
        _CREDENTIALS,
    ),
    (
        r"169\.254\.169\.254|metadata\.google|[Ii]nstance metadata|[Cc]redential|config profile",
        ConfigError,
        "no credentials were found for it",
        _CREDENTIALS,
    ),
    (
        r"FileNotFoundError|NotFoundError|404 Not Found",
        BadInputError,
        "there is nothing here",
        "Correct the URL; if it was there a moment ago, somebody deleted it",
    ),
    (
        r"[Rr]eceived redirect|301 Moved|PermanentRedirect|AuthorizationHeaderMalformed",
        ConfigError,
        "its bucket is in another region",
        "Give region under storage, or AWS_REGION",
    ),
    (
        r"NotSupportedError|Range request not supported|RangeNotSupported",
        BadInputError,
        "the server does not give parts of files (HTTP ranges), and edges are read in parts",
        "Copy it to a folder that all workers share, and give that",
    ),
    (
        r"kind: (Connect|Timeout|Request)|error sending request|dns error|timed out|[Cc]onnection",
        ConfigError,
        "the server does not answer",
        "Check the URL, the network, and endpoint under storage; then run the same command again",
    ),
    (
        r"UnknownConfiguration|Invalid(Path|Uri| )|relative URL|builder error|[Uu]nable|must be",
        ConfigError,
        "it cannot be reached like that",
        "Correct the URL, or its entry under storage",
    ),
)
"""Of an error: a pattern in its type or text, figrl's error, the problem, and the remedy."""


@contextmanager
def refused(url: str, access: Access) -> Iterator[None]:
    """Raise what a store refuses as an error of figrl that names the URL.

    The original error is not kept: it holds addresses with signatures, and tracebacks show it.
    """
    try:
        yield
    except FigrlError:
        raise
    except BaseException as error:
        # A panic of the library is no Exception.
        known = isinstance(error, OSError | ValueError | TypeError)
        if not known and not type(error).__module__.startswith(("obstore", "pyo3", "boto")):
            raise
        told = _told(error, url, access)
    else:
        return
    raise told from None


def _told(error: BaseException, url: str, access: Access) -> FigrlError:
    text = str(error)
    whole = f"{type(error).__name__}: {text}"
    reason = _reason(text, access)
    for pattern, kind, problem, remedy in _KINDS:
        if re.search(pattern, whole, re.DOTALL):
            return kind(f"{url}: {problem} ({reason}). {remedy}.")
    return FigrlError(f"{url}: it cannot be read: {reason}. Run the same command again.")


def _reason(text: str, access: Access) -> str:
    """The short part of an error that says what the store said."""
    secrets = [*access.secrets(), *_secrets_of_environment()]
    text = without_secrets(text, secrets)
    if code := re.search(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*)</Message>)?", text):
        return f"{code[1]}: {code[2].rstrip('. ')}" if code[2] else code[1]
    line = text.partition("\n")[0].rstrip(" :.")
    if status := re.search(r"status code: (\d+ [A-Za-z ]+)", line):
        return status[1].strip()
    return line.rpartition(" - ")[2][:300]


def _secrets_of_environment() -> list[str]:
    return [value for name, value in os.environ.items() if _SECRET_VARIABLE.fullmatch(name)]
