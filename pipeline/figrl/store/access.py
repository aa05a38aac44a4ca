"""How object stores and servers are reached: the sections ``storage`` of the user's files.

An entry is for a scheme or for all URLs that begin in one way:

    storage:
      s3: {region: eu-central-1}
      s3://crawl: {endpoint: https://minio.example.org, access_key_id: ..., secret_access_key: ...}
      https://data.example.org/: {token: ...}

What no entry says is taken from the environment of each process, as the libraries of the clouds do.
Secrets are never shown: they have a type that prints stars, and errors are cleaned of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, SecretStr, TypeAdapter, ValidationError, field_validator

from figrl.config import Options, describe_problems
from figrl.errors import ConfigError
from figrl.settings import entries
from figrl.store.places import SCHEMES, remote_url


class Access(Options):
    """How the objects below a URL are reached: one entry of ``storage``."""

    endpoint: str | None = Field(None, description="Address of a service that is not the usual.")
    anonymous: bool = Field(False, description="Whether requests are not signed: public data.")
    region: str | None = Field(None, description="Region of the bucket.")
    virtual_hosted: bool = Field(
        False, description="Whether the name of the bucket is part of the endpoint."
    )
    profile: str | None = Field(None, description="Profile of ~/.aws/credentials; needs boto3.")
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    service_account: str | None = Field(None, description="Path of a file with a key, on workers.")
    account_name: str | None = None
    account_key: SecretStr | None = None
    sas_token: SecretStr | None = None
    token: SecretStr | None = Field(None, description="A bearer token.")
    user: SecretStr | None = None
    password: SecretStr | None = None
    timeout_seconds: float = Field(60.0, gt=0, description="How long a request may take.")

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("an endpoint begins with https:// or http://")
        return value

    def given(self) -> dict[str, Any]:
        """What was said, with secrets as plain text."""
        values = {name: getattr(self, name) for name in sorted(self.model_fields_set)}
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in values.items()
            if value is not None
        }

    def secrets(self) -> list[str]:
        """Texts that no one may see."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


_EVERYWHERE = {"timeout_seconds"}
_KEYS = {
    "s3": {
        *("endpoint", "anonymous", "region", "virtual_hosted", "profile"),
        *("access_key_id", "secret_access_key", "session_token"),
    },
    "gs": {"endpoint", "anonymous", "service_account", "token"},
    "az": {"endpoint", "anonymous", "account_name", "account_key", "sas_token", "token"},
    "https": {"token", "user", "password"},
    "http": {"token", "user", "password"},
}
"""Keys that a scheme knows."""

Entries = dict[str, Access]
"""A section ``storage``: a scheme or the beginning of URLs, and how they are reached."""


@dataclass(frozen=True)
class Storage:
    """Entries of one or several sections ``storage``; they travel with the work, and print stars.

    Examples
    --------
    >>> storage = Storage.of({"s3": Access(region="eu-west-1"), "s3://b/c": Access(anonymous=True)})
    >>> storage.access("s3://b/c/edges.csv").region, storage.access("s3://b/x").anonymous
    ('eu-west-1', False)
    """

    entries: tuple[tuple[str, Access], ...] = ()

    @classmethod
    def of(cls, section: Mapping[str, Access]) -> Storage:
        """The entries of a section; each has to be for a scheme, or for URLs of one."""
        found = []
        for place, access in section.items():
            prefix = place if place in SCHEMES else remote_url(place)
            scheme = "" if prefix is None else prefix.partition(":")[0]
            if prefix is None or "@" in prefix:
                raise ConfigError(
                    f"storage: '{place}' is no scheme ({', '.join(SCHEMES)}) and no beginning of "
                    "URLs, such as s3://bucket/folder. Correct the key."
                )
            for key in sorted(access.model_fields_set - _KEYS[scheme] - _EVERYWHERE):
                close = difflib.get_close_matches(key, _KEYS[scheme], n=1)
                known = f"did you mean '{close[0]}'?" if close else ""
                raise ConfigError(
                    f"storage: '{key}' says nothing about {scheme}:// (key '{place}'); "
                    + (known or f"known: {', '.join(sorted(_KEYS[scheme] | _EVERYWHERE))}.")
                )
            found.append((prefix.rstrip("/"), access))
        return cls(tuple(sorted(found, key=lambda entry: (len(entry[0]), entry[0]))))

    def over(self, other: Storage) -> Storage:
        """These entries, and those of another for places that have none here."""
        merged = {**dict(other.entries), **dict(self.entries)}
        return Storage(tuple(sorted(merged.items(), key=lambda entry: (len(entry[0]), entry[0]))))

    def access(self, url: str) -> Access:
        """How a URL is reached: the scheme's entry, and over it the longer, the more it counts."""
        scheme = url.partition(":")[0]
        merged: dict[str, Any] = {}
        for prefix, access in self.entries:
            if prefix == scheme or url == prefix or url.startswith(f"{prefix}/"):
                merged |= {name: getattr(access, name) for name in access.model_fields_set}
        return Access(**merged)


def checked(section: Entries) -> Entries:
    """A section of a file; mistakes in it are errors of the file."""
    try:
        Storage.of(section)
    except ConfigError as error:
        raise ValueError(error.message.removeprefix("storage: ").rstrip(".")) from None
    return section


def configured_storage() -> Storage:
    """The section ``figrl.storage`` of ``dask.config``."""
    found = entries("storage", Access)
    try:
        section = TypeAdapter(Entries).validate_python(found)
    except ValidationError as error:
        problems = describe_problems(error, Access, "figrl.storage")
        raise ConfigError(f"dask.config: {'; '.join(problems)}.") from None
    try:
        return Storage.of(section)
    except ConfigError as error:
        raise error.reworded(f"dask.config: figrl.{error.message}") from None
