"""Where things lie: paths of a file system, and addresses that figrl cannot read or write."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from figrl.errors import ConfigError

PathLike = str | os.PathLike[str]

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?:/|.*://)")
"""``s3://bucket``, also as a Path, which folds its slashes, and ``simplecache::s3://bucket``."""


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
    raise ConfigError(
        f"{text} is not on a file system: figrl reads and writes local paths and file:/// URLs, "
        f"and no {found['scheme']}: addresses. Mount it where all workers see it, or copy it to a "
        "folder that they share, and give that path. Nothing was done."
    )
