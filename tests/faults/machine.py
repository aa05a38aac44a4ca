"""A store against a dictionary: random jobs in random order, killed at random moments.

python -m tests.faults.machine [--examples 1000] [--steps 200] [--fixed]

A job ends well, or at a random touch of the disk its process is killed, or from there on the disk
is gone. After that everything in the store is what it was before the job, or what it should be
after it; the job is done again at once, or never. Prints counts; the first mismatch is an error
with the steps that lead to it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import distributed
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from figrl.errors import FigrlError
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.overlay import kept_edges, open_overlay
from figrl.serve.publish import PUBLICATIONS, KeepRuns, history, is_pinned
from figrl.serve.verify import verify
from figrl.store.layout import read_manifest, store_paths
from tests.faults import store_jobs as jobs
from tests.faults.every_call import Calls, draw_nothing, watch_nothing
from tests.faults.model import Model, Run, check_between
from tests.faults.store_jobs import (
    ARRIVALS,
    GRAPHS,
    NEW,
    NIGHTS_KEPT,
    OPTIONS,
    Expected,
    Job,
    Place,
    Vectors,
)


class World:
    """What all examples share."""

    def __init__(self, folder: Path, client: distributed.Client) -> None:
        self.folder, self.client = folder, client
        (folder / "inputs").mkdir()
        jobs.write_inputs(folder / "inputs")
        (folder / "examples").mkdir()
        self.counts: Counter[str] = Counter()
        self.expected = Expected(folder, client)
        self.expected.learn_all()
        draw_nothing()
        self.disk = Calls(folder / "examples", None, 0)
        self.disk.install()


class Fault(NamedTuple):
    """How a job ends, at which touch of the disk, and whether it is done again after that."""

    kind: str
    touch: int
    again: bool


_TOUCHES = st.one_of(st.integers(1, 30), st.integers(30, 400))
_FAULTS = st.one_of(
    st.just(Fault("none", 0, False)),
    st.just(Fault("none", 0, False)),
    st.builds(Fault, st.just("the disk is gone"), _TOUCHES, st.booleans()),
    st.builds(Fault, st.just("killed"), _TOUCHES, st.booleans()),
)
_OUTS = st.sampled_from(["folder", "file.parquet"])
_PICK = st.integers(0, 99)


class StoreMachine(RuleBasedStateMachine):
    """Jobs on one store, and the model of it."""

    world: World
    readers_elsewhere = False
    """Whether other processes read the store, so that runs may stay longer."""

    def __init__(self) -> None:
        super().__init__()
        folder = Path(tempfile.mkdtemp(dir=self.world.folder / "examples"))
        self.place = Place(self.world.folder / "inputs", folder)
        self.model = Model()
        self.outputs: dict[str, Vectors | None] = {}
        self.reader: tuple[Embedding, Vectors] | None = None
        self.world.counts["examples"] += 1

    def do(self, job: Job, after: Model, fault: Fault) -> bool:
        """Run a job and compare the store with the model; whether the job was done."""
        counts, before = self.world.counts, self.model
        counts["jobs"] += 1
        counts[job.func.__name__] += 1
        self.world.disk.arm(None, 0)
        done = self._run(job, fault)
        if not done:
            counts[fault.kind] += 1
            found = self.observe()
            check_between(before, found, after)
            self.model = found
            self._check_published()
            done = fault.again
            if done:
                job(self.world.client)
        if done:
            found = self.observe()
            if self.readers_elsewhere:
                there = before.runs.keys() & found.runs.keys() - after.runs.keys()
                after.runs |= {name: before.runs[name] for name in there}
            assert found == after, f"{found} is not {after}"
            self.model = after
        self._check_published()
        return done

    def _run(self, job: Job, fault: Fault) -> bool:
        """Run a job with a fault; whether it was done."""
        if fault.kind == "killed":
            return jobs.run_killed(job, self.place, self.world.folder, fault.touch)
        if fault.kind == "none":
            job(self.world.client)
            return True
        disk = self.world.disk
        disk.arm("is gone", fault.touch)
        try:
            job(self.world.client)
        except (FigrlError, OSError):
            # A job that fails for another reason is wrong.
            assert len(disk.kinds) >= fault.touch
            return False
        finally:
            disk.arm(None, 0)
        return True

    def observe(self) -> Model:
        """What is in the store."""
        paths, expected = store_paths(self.place.store), self.world.expected
        names = {name: key for key, name in expected.runs.items()}
        latest = paths.latest_graph()
        found = Model(None if latest is None else expected.graphs[latest], paths.current_run())
        events = history(paths, *PUBLICATIONS)
        found.published = [event["run"] for event in events]
        found.by_reindex = any(event.get("by") == "reindex" for event in events)
        for name in paths.finished_runs():
            overlay = open_overlay(paths.run(name))
            served = [] if overlay is None else overlay.facts["files"]
            found.runs[name] = Run(
                *names[name],
                kept=_arrivals([path.name for path in kept_edges(paths.run(name))]),
                served=_arrivals(served),
                pinned=is_pinned(paths, name),
                night="night" in read_manifest(paths.run(name)),
            )
            if overlay is not None:
                overlay.lease.release()
        return found

    def _check_published(self) -> None:
        """Compare all that the published run serves with what it should."""
        if self.model.current is not None:
            run = open_store(self.place.store).embedding()
            assert run.run == self.model.current
            self._check_vectors(self.model.runs[run.run], jobs.run_vectors(run))
            _close(run)

    def _check_vectors(self, run: Run, found: Vectors) -> None:
        assert found == self.world.expected.vectors(run.graph, run.options, run.served)

    def _pick(self, pick: int) -> str:
        return sorted(self.model.runs)[pick % len(self.model.runs)]

    @initialize()
    def begin(self) -> None:
        """A store has a graph."""
        self.ingest(0, Fault("none", 0, False))

    @rule(number=st.sampled_from(list(GRAPHS)), fault=_FAULTS)
    def ingest(self, number: int, fault: Fault) -> None:
        """Ingest a graph."""
        after = deepcopy(self.model)
        after.latest = number
        self.do(partial(jobs.ingest_graph, self.place, number), after, fault)

    @rule(options=st.integers(0, len(OPTIONS) - 1), publish=st.booleans(), fault=_FAULTS)
    def embed(self, options: int, publish: bool, fault: Fault) -> None:
        """Learn a run of the graph that was ingested last."""
        after = deepcopy(self.model)
        assert after.latest is not None
        name, gated = self.world.expected.runs[after.latest, options], publish and after.gated
        run = Run(after.latest, options, night=gated)
        if not gated:
            after.learn(name, run)
        if publish and not gated:
            after.publish(name)
        if gated:
            self._publish_by_night(after, name, run)
        self.do(partial(jobs.learn, self.place, options, publish), after, fault)

    @rule(
        number=st.sampled_from(list(GRAPHS)),
        options=st.integers(0, len(OPTIONS) - 1),
        fault=_FAULTS,
    )
    def night(self, number: int, options: int, fault: Fault) -> None:
        """Bring the published run up to date with a graph."""
        after = deepcopy(self.model)
        name = self.world.expected.runs[number, options]
        after.note_published()
        after.by_reindex |= not self._is_up_to_date(after, name) and after.published[-1:] != [name]
        if self._is_up_to_date(after, name):
            after.retire(NIGHTS_KEPT, self._read())
        else:
            self._publish_by_night(after, name, Run(number, options, night=True))
        self.do(partial(jobs.run_night, self.place, number, options), after, fault)

    def _publish_by_night(self, after: Model, name: str, run: Run) -> None:
        after.note_published()
        if not self._is_up_to_date(after, name):
            after.publish_by_night(name, run, NIGHTS_KEPT, self._read())

    @staticmethod
    def _is_up_to_date(model: Model, name: str) -> bool:
        return model.current == name and model.runs[name].night

    def _read(self) -> str | None:
        return self.reader[0].run if self.reader else None

    @precondition(lambda self: self.model.runs)
    @rule(pick=_PICK, fault=_FAULTS)
    def publish(self, pick: int, fault: Fault) -> None:
        """Publish any run that is there."""
        self._roll_back(self._pick(pick), self._pick(pick), fault)

    @precondition(lambda self: self.model.runs)
    @rule(fault=_FAULTS)
    def roll_back(self, fault: Fault) -> None:
        """Publish the run before, if there is one."""
        paths, current = store_paths(self.place.store), self.model.current
        events = [event["run"] for event in history(paths, "published")]
        if current is not None and self.model.published[-1:] != [current]:
            events.append(current)
        order = [run for run in dict.fromkeys(events[::-1]) if run in self.model.runs][::-1]
        earlier = order[: order.index(current)] if current in order else order
        if earlier:
            # Done again, it would go further back.
            self._roll_back(None, earlier[-1], fault._replace(again=False))

    def _roll_back(self, asked: str | None, name: str, fault: Fault) -> None:
        after = deepcopy(self.model)
        after.note_published()
        after.publish(name)
        self.do(partial(jobs.publish_again, self.place, asked), after, fault)

    @precondition(lambda self: self.model.runs)
    @rule(pick=_PICK, pinned=st.booleans(), fault=_FAULTS)
    def pin(self, pick: int, pinned: bool, fault: Fault) -> None:
        """Protect a run from deletion, or no longer."""
        after, name = deepcopy(self.model), self._pick(pick)
        after.runs[name].pinned = pinned
        self.do(partial(jobs.set_pin, self.place, name, pinned), after, fault)

    @rule(keep=st.integers(1, 3), fault=_FAULTS)
    def retire(self, keep: int, fault: Fault) -> None:
        """Delete what is neither among the last publications, pinned nor being read."""
        after = deepcopy(self.model)
        after.retire(keep, self._read())
        self.do(partial(jobs.retire_runs, self.place, KeepRuns(runs=keep)), after, fault)

    @precondition(lambda self: self.model.current is not None)
    @rule(number=st.sampled_from(ARRIVALS), fault=_FAULTS)
    def fold_and_serve(self, number: int, fault: Fault) -> None:
        """Serve new nodes with the published run."""
        after = deepcopy(self.model)
        run = after.runs[after.current or ""]
        run.kept |= {number}
        run.served = run.kept
        self.do(partial(jobs.serve_arrival, self.place, number), after, fault)

    @precondition(lambda self: self.model.current is not None)
    @rule(number=st.sampled_from(ARRIVALS), out=_OUTS, fault=_FAULTS)
    def fold_in(self, number: int, out: str, fault: Fault) -> None:
        """Write the vectors of new nodes to a place where something may be."""
        run = self.model.runs[self.model.current or ""]
        served = self.world.expected.vectors(run.graph, run.options, frozenset([number]))
        wanted = {node: vector for node, vector in served.items() if node >= NEW}
        self._write(partial(jobs.write_arrival, self.place, number, out), out, wanted, fault)

    @precondition(lambda self: self.model.runs)
    @rule(pick=_PICK, out=_OUTS, fault=_FAULTS)
    def export(self, pick: int, out: str, fault: Fault) -> None:
        """Write all vectors of a run to a place where something may be."""
        name = self._pick(pick)
        run = self.model.runs[name]
        wanted = self.world.expected.vectors(run.graph, run.options, run.served)
        self._write(partial(jobs.write_run, self.place, name, out), out, wanted, fault)

    def _write(self, job: Job, out: str, wanted: Vectors, fault: Fault) -> None:
        done = self.do(job, self.model, fault)
        path = self.place.folder / out
        found = jobs.table_vectors(pq.read_table(path)) if path.exists() else None
        if done:
            assert found == wanted
            left = list(path.parent.glob(f".*{out}.*"))
            if fault.kind == "the disk is gone":
                # As the last thing, the work was to be deleted: the next job does it.
                left = [one for one in left if one.suffix != ".tmp"]
            assert left == [], f"left beside the output: {left}"
        else:
            # A folder is gone for a moment before the new one takes its place.
            gone = [None] if out == "folder" else []
            assert found in (wanted, self.outputs.get(out), *gone)
        self.outputs[out] = found

    @precondition(lambda self: self.model.runs)
    @rule(pick=_PICK)
    def open_reader(self, pick: int) -> None:
        """Open a run, which stays readable as it is whatever is done to the store."""
        self.close_reader()
        name = self._pick(pick)
        run = self.model.runs[name]
        wanted = self.world.expected.vectors(run.graph, run.options, run.served)
        self.reader = open_store(self.place.store).embedding(name), wanted

    @precondition(lambda self: self.reader is not None)
    @rule()
    def close_reader(self) -> None:
        """Read all of the run that is open, and close it."""
        if self.reader is not None:
            run, wanted = self.reader
            assert jobs.run_vectors(run) == wanted
            _close(run)
            self.reader = None

    def check_whole(self) -> None:
        """Find nothing damaged."""
        assert verify(self.place.store)["damaged"] == []

    def check_tidy(self) -> None:
        """Find nothing left when the last jobs are tidied up."""
        keep = KeepRuns(runs=9, unfinished_days=0)
        jobs.retire_runs(self.place, keep, self.world.client)
        paths = store_paths(self.place.store)
        assert {path.name for path in paths.runs.glob("*")} <= self.model.runs.keys()
        assert list(paths.work.glob("*")) == []
        assert list(self.place.store.rglob(".*.tmp")) == []

    def teardown(self) -> None:
        """Check what is left of the store, and delete it."""
        if sys.exc_info()[0] is None and self.model.latest is not None:
            self.close_reader()
            self.check_whole()
            self.check_tidy()
        with suppress(OSError):
            shutil.rmtree(self.place.folder)


def _close(run: Embedding) -> None:
    run.lease.release()
    if run.overlay is not None:
        run.overlay.lease.release()


def _arrivals(names: list[str]) -> frozenset[int]:
    """Arrivals of which a run has the files."""
    return frozenset(int(name.removesuffix(".parquet").rpartition("-")[2]) for name in names)


def run_machine(examples: int, steps: int, *, fixed: bool) -> Counter[str]:
    """Run examples of so many steps each; counts of examples, jobs and faults."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=fixed,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    with tempfile.TemporaryDirectory(prefix="figrl-machine-") as name:
        watch_nothing()
        with jobs.in_process_client(Path(name)) as client:
            world = World(Path(name), client)
            machine: Any = type("Machine", (StoreMachine,), {"world": world})
            run_state_machine_as_test(machine, settings=chosen)
        return world.counts


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true", help="The same examples every time.")
    asked = parser.parse_args()
    counts = run_machine(asked.examples, asked.steps, fixed=asked.fixed)
    told = ", ".join(f"{name}: {count:,}" for name, count in counts.items())
    sys.stdout.write(f"{told}, mismatches: 0\n")


if __name__ == "__main__":
    _main()
