"""A stranger on the same machine, who tries to run code in somebody's cluster.

python -m tests.engine.intruder UID FOLDER ADDRESS...

Becomes the user UID and tries every way in to every address: each would create a folder of its own
below FOLDER. Prints the pages that were served.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import pickle
import sys
import urllib.request
from contextlib import suppress

import distributed
from distributed.comm import connect
from distributed.security import Security

PAGES = ("/", "/status", "/info/main/workers.html", "/metrics", "/json/counts.json", "/health")
SECONDS = 3.0


async def as_client(address: str, security: Security | None, folder: str) -> None:
    """Connect as a client does, and submit a function."""
    async with distributed.Client(
        address, security=security, asynchronous=True, timeout=SECONDS, set_as_default=False
    ) as client:
        await client.submit(os.mkdir, folder, pure=False)


async def as_peer(address: str, security: Security | None, folder: str) -> None:
    """Speak to a scheduler, worker or nanny directly."""
    arguments = security.get_connection_args("client") if security else {}
    comm = await connect(address, timeout=SECONDS, **arguments)
    function, args = pickle.dumps(os.mkdir), pickle.dumps((folder,))
    await comm.write({"op": "run", "function": function, "args": args, "reply": True})
    await comm.read()


async def try_all(folder: str, addresses: list[str], own: Security) -> None:
    """Try every way in, with no certificate and with one of the stranger's own."""
    ways = itertools.product((as_client, as_peer), addresses, ("tcp", "tls"), (None, own))
    await asyncio.gather(
        *(
            asyncio.wait_for(way(f"{protocol}://{address}", security, f"{folder}/{i}"), SECONDS)
            for i, (way, address, protocol, security) in enumerate(ways)
        ),
        return_exceptions=True,
    )


def served_pages(addresses: list[str]) -> list[str]:
    """Pages that an HTTP server answers with."""
    served = []
    for address, page in itertools.product(addresses, PAGES):
        with (
            suppress(OSError, http.client.HTTPException),
            urllib.request.urlopen(f"http://{address}{page}", timeout=SECONDS),
        ):
            served.append(page)
    return served


def main(uid: str, folder: str, *addresses: str) -> None:
    """Give up all rights, then try."""
    own = Security.temporary()
    # Import all that is needed before: the libraries may lie where the stranger cannot read.
    asyncio.run(try_all("", ["127.0.0.1:1"], own))
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    asyncio.run(try_all(folder, list(addresses), own))
    sys.stdout.write(json.dumps({"uid": os.getuid(), "pages": served_pages(list(addresses))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
