"""A whole job as a single block, whose stages run in the worker that has it.

A graph of a block or two leaves a scheduler nothing to share out, and going there and back for
each of forty stages would take longer than the work. Blocks still leave marks, so such a job goes
on where it stopped like any other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import distributed

from pipeline.blocks import Stats, execute_block
from pipeline.job import Block, Job, Outcome, Silent, Stage


class NearJob(Job):
    """A job whose blocks are done by threads of this process."""

    def __init__(self, marks: Path, threads: int) -> None:
        super().__init__(marks, _Notes())
        self._attempt = uuid.uuid4().hex[:8]
        self._leaving = ExitStack()
        self._threads = self._leaving.enter_context(ThreadPoolExecutor(threads))

    def __enter__(self) -> NearJob:
        return self

    def __exit__(self, *exception: object) -> None:
        self._leaving.close()

    def everywhere(self, function: Callable[[], Any]) -> None:
        """Call a function here."""
        function()

    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Do blocks in threads."""
        futures = [
            self._threads.submit(
                execute_block,
                stage.function,
                block.args,
                block.key,
                stage.mark_path(block.key),
                self._attempt,
            )
            for block in blocks
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    @property
    def notes(self) -> list[str]:
        """What a person should read."""
        assert isinstance(self.monitor, _Notes)
        return self.monitor.notes


class _Notes(Silent):
    """A monitor that keeps what was said, for whoever waits for the job."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


def run_near(job: Job, name: str, function: Callable[..., Stats], *args: Any) -> Stats:
    """Call ``function(near_job, *args)`` on a worker, as the only block of a stage of `job`."""
    block = Block("all", (job.marks, function, args))
    done = job.run(name, _do_near, [block]).stats["all"]
    for note in done["notes"]:
        job.monitor.note(note)
    result: Stats = done["result"]
    return result


def _do_near(marks: Path, function: Callable[..., Stats], args: tuple[Any, ...]) -> Stats:
    threads = int(distributed.get_worker().state.nthreads)
    with NearJob(marks, threads) as near:
        return {"result": function(near, *args), "notes": near.notes}
