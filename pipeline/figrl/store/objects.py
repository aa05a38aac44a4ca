"""Objects in S3, Google Cloud Storage and Azure, and on servers of HTTP: found, listed, read.

The one module that knows obstore, which is loaded when a URL is met.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from figrl.errors import BadInputError, ConfigError
from figrl.store.access import Access, Storage
from figrl.store.refusals import refused

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_CONNECT_SECONDS = 5
_RETRIES = 6
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.1, 5.0

_NAMES = {
    "s3": {"anonymous": "skip_signature", "virtual_hosted": "virtual_hosted_style_request"},
    "gs": {"anonymous": "skip_signature", "endpoint": "base_url", "token": "bearer_token"},
    "az": {"anonymous": "skip_signature", "sas_token": "sas_key"},
}
"""Names that obstore has for keys of `Access`, where they differ."""


@dataclass(frozen=True)
class Bucket:
    """Where objects lie: a bucket, a container, or one file of a server.

    `root`: its URL; that of a file of a server has its query, which may be a signature.
    """

    root: str = field(repr=False)
    access: Access = field(repr=False)

    @property
    def scheme(self) -> str:
        """How it is spoken to."""
        return self.root.partition(":")[0]

    @property
    def is_listed(self) -> bool:
        """Whether it says which objects it has, as object stores do and servers do not."""
        return self.scheme in _NAMES


@dataclass(frozen=True)
class Location:
    """What a URL means: a bucket, and in it the name of an object, a prefix or a pattern.

    `url`: how it is shown, without passwords and signatures.
    """

    url: str
    bucket: Bucket = field(repr=False)
    key: str

    def url_of(self, key: str) -> str:
        """URL of an object of the same bucket, as it is shown."""
        return f"{self.bucket.root}/{key}" if self.bucket.is_listed else self.url


@dataclass(frozen=True)
class RemoteFile:
    """An object as it was when it was found; as text, its URL without passwords and signatures.

    `etag`, `changed`: what tells it from a later version; one of them may be missing.
    """

    url: str
    bucket: Bucket = field(repr=False)
    key: str = field(repr=False)
    size_bytes: int
    etag: str | None = None
    changed: str | None = None

    def __str__(self) -> str:
        return self.url

    @property
    def version(self) -> str | None:
        """What tells it from a later version; None if the server says nothing."""
        return self.etag or self.changed


def locate(url: str, storage: Storage) -> Location:
    """Split a URL of `remote_url` into its parts; user and password go to how it is reached."""
    scheme, _, rest = url.partition("://")
    if scheme in ("http", "https"):
        return _locate_on_server(url, storage)
    bucket, _, key = rest.partition("/")
    if not bucket or "@" in bucket:
        problem = "there is no name of a bucket in it" if not bucket else "a password is in it"
        raise ConfigError(
            f"{url}: {problem}. Write {scheme}://bucket/name, and credentials under storage in the "
            "cluster file, the nightly file or dask.config, or in the environment."
        )
    root = f"{scheme}://{bucket}"
    return Location(url, Bucket(root, storage.access(url)), key)


def _locate_on_server(url: str, storage: Storage) -> Location:
    parts = urlsplit(url)
    if not parts.hostname:
        raise ConfigError(f"{url}: there is no name of a server in it. Correct it.")
    host = parts.netloc.rpartition("@")[2]
    plain = urlunsplit((parts.scheme, host, parts.path, "", ""))
    access = storage.access(plain)
    if parts.username is not None:
        login = {"user": unquote(parts.username), "password": unquote(parts.password or "")}
        access = Access(**{**access.given(), **login})
    root = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    return Location(plain, Bucket(root, access), "")


class Objects:
    """The objects of a bucket; may be used by several threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        with refused(bucket.root, bucket.access):
            self._store = _open(bucket)

    def head(self, place: Location) -> RemoteFile | None:
        """The object of that very name; None if there is none."""
        import obstore

        with refused(place.url, self._bucket.access):
            try:
                meta = obstore.head(self._store, place.key)
            except FileNotFoundError:
                return None
        return self._file(place, place.key, meta)

    def below(self, place: Location, prefix: str) -> Iterator[RemoteFile]:
        """All objects below a prefix, which is a folder or empty; none that marks a folder."""
        with refused(place.url, self._bucket.access):
            for batch in self._store.list(prefix or None):
                for meta in batch:
                    if meta["path"].strip("/") != prefix.strip("/"):
                        yield self._file(place, meta["path"], meta)

    def read(self, file: RemoteFile, start: int, stop: int) -> memoryview:
        """Bytes from `start` up to `stop`; an error if the object is not the one that was found."""
        import obstore

        options: dict[str, Any] = {"range": (start, stop)}
        if file.etag is not None and not file.etag.startswith("W/"):
            options["if_match"] = file.etag
        with refused(file.url, self._bucket.access):
            found = obstore.get(self._store, file.key, options=options)  # type: ignore[arg-type]
            self._check_unchanged(file, found.meta)
            content = memoryview(found.bytes())
        if len(content) != stop - start:
            raise _changed(file)
        return content

    def _check_unchanged(self, file: RemoteFile, meta: ObjectMeta) -> None:
        # Servers may not know conditions.
        now = self._file(Location(file.url, self._bucket, file.key), file.key, meta)
        known = (now.etag, file.etag) if file.etag else (now.changed, file.changed)
        if now.size_bytes != file.size_bytes or known[0] != known[1]:
            raise _changed(file)

    def _file(self, place: Location, key: str, meta: ObjectMeta) -> RemoteFile:
        changed = meta["last_modified"]
        # Where a server says nothing of it, it is the beginning of time.
        told = changed.isoformat() if changed > datetime.fromtimestamp(0, UTC) else None
        return RemoteFile(
            url=place.url_of(key),
            bucket=self._bucket,
            key=key,
            size_bytes=meta["size"],
            etag=meta["e_tag"],
            # Lists and answers of object stores do not agree in the fraction of the second.
            changed=None if meta["e_tag"] else told,
        )


def _changed(file: RemoteFile) -> BadInputError:
    return BadInputError(
        f"{file}: it was changed since it was found. Run the same command again when nobody writes "
        "to it."
    )


def _open(bucket: Bucket) -> ObjectStore:
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise ConfigError(
            f"{bucket.root}: edges are read from URLs with obstore, which is not installed here. "
            "Install figrl[cloud], on the workers too, or give a local path."
        ) from error
    # Its types know the keys of each scheme apart.
    opener: Any = from_url
    access = bucket.access
    client: dict[str, Any] = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, access.timeout_seconds)),
        "timeout": timedelta(seconds=access.timeout_seconds),
    }
    if headers := _headers(bucket):
        client["default_headers"] = headers
    retries: Any = {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=2 * access.timeout_seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=_FIRST_PAUSE_SECONDS),
            "max_backoff": timedelta(seconds=_LAST_PAUSE_SECONDS),
            "base": 2,
        },
    }
    config = _config(bucket)
    if provider := _profile(bucket):
        config["credential_provider"] = provider
    root = bucket.root if bucket.is_listed else _encoded(bucket.root)
    opened: ObjectStore = opener(root, client_options=client, retry_config=retries, **config)
    return opened


def _encoded(url: str) -> str:
    return url.replace(" ", "%20")


def _config(bucket: Bucket) -> dict[str, Any]:
    """Keys of an entry as obstore calls them."""
    if not bucket.is_listed:
        return {}
    names = _NAMES[bucket.scheme]
    given = bucket.access.given()
    ignored = ("timeout_seconds", "profile")
    return {names.get(key, key): value for key, value in given.items() if key not in ignored}


def _headers(bucket: Bucket) -> dict[str, str]:
    """Headers by which a server knows who asks."""
    given = bucket.access.given()
    if bucket.is_listed:
        return {}
    if "token" in given:
        return {"authorization": f"Bearer {given['token']}"}
    if "user" in given or "password" in given:
        pair = f"{given.get('user', '')}:{given.get('password', '')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _profile(bucket: Bucket) -> Any:
    """Credentials of a profile, which boto3 reads; None where no profile is meant."""
    access = bucket.access
    chosen = access.anonymous or access.access_key_id or os.environ.get("AWS_ACCESS_KEY_ID")
    name = access.profile or (None if chosen else os.environ.get("AWS_PROFILE"))
    if bucket.scheme != "s3" or name is None:
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise ConfigError(
            f"{bucket.root}: profiles ({name}) are read with boto3, which is not installed. "
            "Install it, on the workers too, or give the credentials in the environment or under "
            "storage."
        ) from error
    return Boto3CredentialProvider(boto3.Session(profile_name=name))
