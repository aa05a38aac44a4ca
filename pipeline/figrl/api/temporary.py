"""Folders that live as long as the objects that need them."""

from __future__ import annotations

import tempfile
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import distributed

from figrl.errors import ConfigError
from figrl.store.files import delete, exists


class TemporaryFolder:
    """A folder on this machine that is deleted with this object; a copy elsewhere is None."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="figrl-"))
        weakref.finalize(self, delete, self.path)

    def check_seen_by(self, client: distributed.Client | None) -> None:
        """Refuse workers on other machines, which do not see the folder."""
        if client is None:
            return
        seen = client.run(partial(exists, self.path))
        blind = [worker for worker, sees in seen.items() if not sees]
        if blind:
            raise ConfigError(
                f"Without a store, a folder of this machine is used ({self.path}), which the "
                f"worker {blind[0]} does not see. Give --store, on a file system that all workers "
                "share."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()
