"""A whole job as a single block, whose stages run in threads of the worker that has it.

A graph of a block or two leaves a scheduler nothing to share out, and a round trip for each of
forty stages would take longer than the work. Blocks still commit marks, so such a job resumes
like any other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import distributed

from figrl.engine.block import Outcome, execute_block
from figrl.engine.runner import Runner
from figrl.engine.stage import Block, Silent, Stage, StageResult, Stages, Stats


class LocalRunner(Runner):
    """Runs blocks in threads of this process."""

    def __init__(self, marks: Path, threads: ThreadPoolExecutor) -> None:
        super().__init__(marks, Silent())
        self._attempt = uuid.uuid4().hex[:8]
        self._threads = threads

    def on_every_worker(self, function: Callable[[], Any]) -> None:
        """Call a function here."""
        function()

    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Do blocks in threads."""
        futures = [
            self._threads.submit(
                execute_block, stage.function, args, key, self.mark_path(stage, key), self._attempt
            )
            for key, args in ((block.key, block.args) for block in blocks)
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def run_in_one_worker(
    runner: Runner, name: str, job: Callable[..., Stages[Stats]], *args: Any
) -> Stats:
    """Run the stages of ``job(*args)`` on one worker; their results become those of `runner`."""
    whole = Stage(name, _run_here, [Block("all", (runner.marks, job, args))])
    done = runner.run_stage(whole).only
    runner.results[-1:] = [StageResult(**result) for result in done["results"]]
    returned: Stats = done["returned"]
    return returned


def _run_here(marks: Path, job: Callable[..., Stages[Stats]], args: tuple[Any, ...]) -> Stats:
    threads = int(distributed.get_worker().state.nthreads)
    with ThreadPoolExecutor(threads) as pool:
        runner = LocalRunner(marks, pool)
        returned = runner.run(job(*args))
    return {"returned": returned, "results": [asdict(result) for result in runner.results]}
