"""Servers of the tests, on loopback: one of S3, in a process of its own, and one of HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import obstore
from obstore.store import S3Store

from figrl.store.access import Access, Storage
from tests.waiting import wait_until

BUCKET = "figrl-edges"
SECRET = "Wq7/hidden+secret0THAT9nobody8sees"


@dataclass(frozen=True)
class S3Server:
    """A running server of S3."""

    endpoint: str

    def entry(self, **more: Any) -> dict[str, Any]:
        """An entry of ``storage`` by which it is reached."""
        keys = {"access_key_id": "AKFIGRL", "secret_access_key": SECRET}
        return {"endpoint": self.endpoint, "region": "us-east-1", **keys, **more}

    @property
    def storage(self) -> Storage:
        return Storage.of({"s3": Access(**self.entry())})

    @property
    def bucket(self) -> S3Store:
        config: Any = self.entry()
        return S3Store(BUCKET, client_options={"allow_http": True}, **config)

    def put(self, key: str, content: bytes | Path) -> str:
        """Write an object; return its URL."""
        obstore.put(
            self.bucket, key, content.read_bytes() if isinstance(content, Path) else content
        )
        return f"s3://{BUCKET}/{key}"

    def publish(self, key: str) -> None:
        """Let everybody read an object."""
        self.call(f"{BUCKET}/{key}?acl", "PUT", acl="public-read")

    def delete(self, key: str) -> None:
        obstore.delete(self.bucket, key)

    def call(self, path: str, method: str, body: bytes | None = None, acl: str = "private") -> None:
        # A signature that nobody checks.
        scope = "AKFIGRL/20260101/us-east-1/s3/aws4_request"
        signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=00"
        headers = {"Content-Type": "text/plain", "x-amz-acl": acl, "Authorization": signed}
        request = urllib.request.Request(f"{self.endpoint}/{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()

    @contextmanager
    def checking_credentials(self) -> Iterator[None]:
        """Refuse every key that is not known, as real servers do."""
        self.call("moto-api/reset-auth", "POST", b"0")
        try:
            yield
        finally:
            self.call("moto-api/reset-auth", "POST", b"inf")


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start moto with an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        (folder / "moto.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"NO_PROXY": "*"}) as it,
    ):
        server = S3Server(f"http://127.0.0.1:{port}")

        def answers() -> bool:
            assert it.poll() is None, (folder / "moto.log").read_text()
            try:
                server.call("moto-api/", "GET")
            except OSError:
                return False
            return True

        try:
            wait_until(answers, "moto answers", 60.0)
            server.call(BUCKET, "PUT")
            yield server
        finally:
            it.terminate()


@dataclass
class WebServer:
    """A server of the files of a folder; it gives ranges and knows conditions, unless told not to.

    `asked`: method, path and headers of all requests.
    """

    folder: Path
    address: str = ""
    etags: bool = True
    ranges: bool = True
    login: str | None = None
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    served: WebServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        served = self.served
        headers = {name.lower(): value for name, value in self.headers.items()}
        served.asked.append((self.command, self.path, headers))
        path = served.folder / unquote(self.path.partition("?")[0]).strip("/")
        if served.login is not None and headers.get("authorization") != served.login:
            return self._empty(401)
        if not path.is_file():
            return self._empty(404)
        content = path.read_bytes()
        etag = f'"{md5(content).hexdigest()}"'
        if headers.get("if-match", etag) != etag:
            return self._empty(412)
        whole, status = len(content), 200
        if "range" in headers and served.ranges:
            first, last = map(int, headers["range"].removeprefix("bytes=").split("-"))
            content, status = content[first : last + 1], 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{first + len(content) - 1}/{whole}")
        if served.etags:
            self.send_header("ETag", etag)
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)
        return None

    def _empty(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server(folder: Path) -> Iterator[WebServer]:
    """Serve a folder."""
    served = WebServer(folder)
    handler = type("Handler", (_Handler,), {"served": served})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        served.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
