"""Who may use a cluster: certificates, a private folder for its workers, and no open pages.

Whoever reaches a scheduler or a worker of Dask can run code as the user who started it. Loopback
keeps other machines out, but not other users of this one.
"""

from __future__ import annotations

import os
import ssl
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
from distributed.security import Security

from figrl.config import Options
from figrl.errors import ConfigError

_KEY_IS_ENCRYPTED = ("BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED")


class TlsFiles(Options):
    """Files in PEM format with which figrl shows a ``tls://`` scheduler who it is."""

    ca_file: str
    cert: str
    key: str | None = None

    def relative_to(self, folder: Path) -> TlsFiles:
        """The same files; relative paths start at a folder."""
        given = self.model_dump(exclude_none=True)
        return TlsFiles(**{name: str(folder / path) for name, path in given.items()})

    def load(self) -> Security:
        """Check the files, and return them in the form that Dask wants."""
        for name, path in self.model_dump(exclude_none=True).items():
            self._check_readable(name, Path(path))
        security = Security(
            require_encryption=True,
            tls_ca_file=self.ca_file,
            tls_client_cert=self.cert,
            tls_client_key=self.key,
        )
        try:
            security.get_connection_args("client")
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"security: the certificates cannot be used ({error}). {self.cert} has to hold a "
                f"certificate, {self.key or self.cert} its private key, and {self.ca_file} the "
                "certificate of who signed those of the cluster, all in PEM format."
            ) from error
        return security

    @staticmethod
    def _check_readable(name: str, path: Path) -> None:
        try:
            content = path.read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise ConfigError(
                f"security.{name}: {path} cannot be read: {error.strerror}."
            ) from error
        # OpenSSL would ask for the password at the terminal, and a nightly job wait for ever.
        if any(line in content for line in _KEY_IS_ENCRYPTED):
            raise ConfigError(
                f"security.{name}: the key in {path} has a password. Give one without a password, "
                "which only you can read."
            )


def has_own_certificates() -> bool:
    """Whether Dask's own configuration names certificates for a client."""
    return bool(dask.config.get("distributed.comm.tls.client.cert", None))


def private_folder() -> Path:
    """A folder for files of workers, which no other user can enter.

    Dask's default can be created by anybody, and workers read Python objects back from it. It has
    the same name for all jobs of a user, so that Dask finds and deletes what killed jobs left.
    """
    base = Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())
    folder = base / f"figrl-{os.getuid()}"
    base.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    ):
        return folder
    return Path(tempfile.mkdtemp(prefix="figrl-", dir=base))


def http_routes(*, pages: bool) -> dict[str, Any]:
    """Settings of Dask's HTTP servers, which always listen: nothing is served, or the dashboard.

    The dashboard shows and changes nothing; but a proxy to other ports is no part of it.
    """
    if not pages:
        return {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
    routes = dask.config.get("distributed.scheduler.http.routes")
    kept = [route for route in routes if route != "distributed.http.proxy"]
    return {"distributed.scheduler.http.routes": kept}
