"""Where things lie: paths of a file system, URLs of edges, and addresses that are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from figrl.errors import ConfigError

PathLike = str | os.PathLike[str]

SCHEMES = ("s3", "gs", "az", "https", "http")
"""Schemes of URLs that edges are read from."""

_ALIASES = {"s3a": "s3"}

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?:/|.*://)")
"""``s3://bucket``, also as a Path, which folds its slashes, and ``simplecache::s3://bucket``."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9]*):/{1,2}")


def remote_url(given: PathLike) -> str | None:
    """The URL of a server or an object store that edges are read from; None for anything else.

    Examples
    --------
    >>> remote_url("S3A://bucket/edges/*.parquet")
    's3://bucket/edges/*.parquet'
    >>> remote_url("edges.csv") is None
    True
    """
    text = os.fspath(given)
    found = _URL.match(text)
    scheme = found["scheme"].lower() if found else ""
    scheme = _ALIASES.get(scheme, scheme)
    if found is None or scheme not in SCHEMES:
        return None
    return f"{scheme}://{text[found.end() :]}"


def local_path(given: PathLike) -> Path:
    """The path that is meant by a path or a ``file://`` URL; any other URL is refused.

    Examples
    --------
    >>> local_path("file:///data/edges%20of%20may")
    PosixPath('/data/edges of may')
    """
    text = os.fspath(given)
    found = _ADDRESS.match(text)
    if found is None:
        return Path(text)
    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in ("", "localhost") and url.path:
        return Path(unquote(url.path))
    edges = " Only edges are read from there." if remote_url(given) else ""
    raise ConfigError(
        f"{text} is not on a file system: figrl reads and writes local paths and file:/// URLs, "
        f"and no {found['scheme']}: addresses.{edges} Mount it where all workers see it, or copy "
        "it to a folder that they share, and give that path. Nothing was done."
    )
