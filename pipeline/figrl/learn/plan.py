"""What embedding a graph costs, known before it is run, and whether it fits.

The plan lists the very stages that will be run. Their memory decides how products are cut; their
bytes and operations, at the rates of a machine, give disk, network and seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from figrl.engine.capacity import ClusterMemory
from figrl.engine.rates import Rates
from figrl.engine.stage import RESERVED_BYTES, list_stages
from figrl.errors import ResourceError
from figrl.learn.embed import embed_stages
from figrl.learn.operand import kept_entry_bytes
from figrl.learn.setup import Geometry, Setup, Tiling, stored_columns
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.learn.tiling import PARTS, PlannedStage, chain_products, choose_tiling, plan_stages
from figrl.store.files import delete, exists, read_json, write_json
from figrl.store.graph import Graph, choose_block_rows
from figrl.units import human_bytes

_ADVICE = {
    "compute": "more workers or threads; or --preset fast, or a smaller --width or --depth",
    "memory": "more workers, so that each writes to less new memory",
    "disk": "faster storage, or workers with more memory, so that less is read again; or a smaller "
    "--width or --depth",
    "tasks": "fewer workers do as well: it is a small graph for so many",
}
"""What makes a run faster, by what it spends most of its time on."""


@dataclass(frozen=True)
class EmbedPlan:
    """The cost of a run, stage by stage."""

    setup: Setup
    options: EmbedOptions
    memory: ClusterMemory

    @cached_property
    def stages(self) -> list[PlannedStage]:
        """All stages of the run; those that are needed only in some cases may have no blocks."""
        return plan_stages(list_stages(embed_stages(self.setup)), self.memory.threads)

    @property
    def peak_bytes(self) -> int:
        """Most memory that the stages need in a worker process, besides `Setup.kept_bytes`."""
        return max(stage.peak_bytes for stage in self.stages)

    @property
    def disk_bytes(self) -> int:
        """Most disk that the run takes at a time: what is written, less what is deleted."""
        sizes: dict[Path, int] = {}
        most = others = 0
        for planned in self.stages:
            stage = planned.stage
            if stage.blocks:
                sizes |= {array.path: array.nbytes for array in stage.writes}
                others += 0 if stage.writes else stage.cost.written_bytes
            most = max(most, sum(sizes.values()) + others)
            for path in stage.frees:
                sizes.pop(path, None)
        return most

    def predicted_seconds(self) -> list[tuple[str, float]]:
        """Stages in their order with predicted seconds; of a small graph, they are one."""
        rates = Rates()
        stages = [
            (planned.stage.name, planned.seconds(rates, self.memory)["total"])
            for planned in self.stages
            if planned.stage.blocks
        ]
        if self.setup.is_small:
            return [("embed", sum(seconds for _, seconds in stages))]
        return stages

    @property
    def notes(self) -> list[str]:
        """What a person should know before the run."""
        size, nodes = self.setup.spec.sketch_size, self.setup.graph.nodes
        if size <= nodes:
            return []
        asked = self.options.sketch_size is not None
        by_rule = self.options.preset == "paper" or self.options.epsilon is not None
        origin = "The paper's rule asks for" if by_rule and not asked else "You asked for"
        cheaper = "A larger --epsilon or a --sketch-size" if by_rule else "A smaller --dim"
        return [
            f"{origin} {size:,} sketch columns, more than the graph has nodes ({nodes:,}): the "
            f"sketch is larger than the matrix it stands for. {cheaper} would be cheaper."
        ]

    @property
    def _smaller(self) -> str:
        """Options of a smaller run."""
        by_rule = self.options.preset == "paper" or self.options.epsilon is not None
        if by_rule:
            return "a smaller --sketch-size (or a larger --epsilon)"
        return "a smaller --sketch-size" if self.options.sketch_size else "a smaller --width"

    def sufficient_limit(self) -> str:
        """The least memory of a worker, about, with which the run would fit."""
        plan, limit = self, self.memory.limit_bytes
        # With more memory products are cut in another way, which may need a little more again.
        while plan.peak_bytes > plan.memory.allowed_bytes:
            limit = max(math.ceil(plan.peak_bytes / self.memory.usable_share), limit + 10_000_000)
            enough = replace(self.memory, limit_bytes=limit)
            plan = plan_embedding(self.setup.graph, self.options, enough)
        return f"{math.ceil(limit / 1e7) * 10}MB"

    def check(self, free_disk_bytes: int, option: str = "--memory-limit") -> None:
        """Refuse what does not fit, with the numbers and the `option` to change."""
        threads, allowed = self.memory.threads, self.memory.allowed_bytes
        worst = max(self.stages, key=lambda stage: stage.peak_bytes)
        if worst.peak_bytes > allowed:
            memory = worst.stage.memory
            stated = memory.peak_bytes(threads)
            parts = [
                (RESERVED_BYTES, "for the process"),
                (memory.shared_bytes, "shared"),
                (memory.task_bytes, f"for each of {threads} threads"),
                (worst.peak_bytes - stated, "held since earlier stages"),
            ]
            shown = ", ".join(f"{human_bytes(size)} {what}" for size, what in parts if size)
            remedy = self.memory.remedy(self.sufficient_limit(), fewer=memory.task_bytes > 0)
            # Below the process itself, no smaller run fits either.
            smaller = f" Or take {self._smaller}." if allowed > RESERVED_BYTES else ""
            raise ResourceError(
                f"Stage '{worst.stage.name}' needs {human_bytes(worst.peak_bytes)} in each "
                f"worker ({shown}); {human_bytes(allowed)} may be used of a limit of "
                f"{human_bytes(self.memory.limit_bytes)}. "
                f"{remedy.replace('--memory-limit', option)}{smaller}"
            )
        if self.disk_bytes > free_disk_bytes:
            raise ResourceError(
                f"The run needs {human_bytes(self.disk_bytes)} of disk, and "
                f"{human_bytes(free_disk_bytes)} are free. Free some, put the store elsewhere, or "
                f"take {self._smaller}."
            )

    def in_folder(self, folder: Path) -> EmbedPlan:
        """The plan of a run in its folder, cut as an earlier attempt cut it, if that still fits.

        Where it does not fit, what that attempt wrote is deleted.
        """
        here = replace(self, setup=replace(self.setup, folder=folder))
        path = folder / "work" / "tiling.json"
        if exists(path):
            wide, narrow = (Tiling(**read_json(path)[name]) for name in ("wide", "narrow"))
            same = replace(here, setup=replace(here.setup, wide=wide, narrow=narrow))
            if same.peak_bytes <= self.memory.allowed_bytes:
                return same
            delete(folder)
        write_json(path, {name: vars(getattr(here.setup, name)) for name in ("wide", "narrow")})
        return here

    def describe(self, rates: Rates | None = None) -> dict[str, Any]:
        """Return the plan as JSON can hold it; `rates` by default of a small two-core machine."""
        used = rates or Rates()
        seconds = [stage.seconds(used, self.memory) for stage in self.stages]
        parts = {part: sum(of_stage[part] for of_stage in seconds) for part in PARTS}
        setup, memory = self.setup, self.memory
        binds = max(parts, key=parts.__getitem__)
        return {
            "nodes": setup.graph.nodes,
            "edges": setup.graph.edges,
            "dim": setup.spec.dim,
            "sketch_size": setup.spec.sketch_size,
            "workers": memory.workers,
            "threads_per_worker": memory.threads,
            "memory_limit_bytes": memory.limit_bytes,
            "allowed_bytes": memory.allowed_bytes,
            "reserved_bytes": RESERVED_BYTES,
            "peak_worker_bytes": self.peak_bytes,
            "kept_bytes": setup.kept_bytes,
            "disk_bytes": self.disk_bytes,
            "geometry": asdict(setup.geometry),
            "tiling": asdict(setup.wide),
            "vectors_tiling": asdict(setup.narrow),
            "spec": asdict(setup.spec),
            "stages": self._grouped([of_stage["total"] for of_stage in seconds]),
            "seconds": round(sum(of_stage["total"] for of_stage in seconds), 3),
            "seconds_by_part": {part: round(value, 3) for part, value in parts.items()},
            "network_bytes": sum(
                planned.asked_bytes(memory.workers)
                + planned.stage.cost.again_bytes
                + planned.stage.cost.written_bytes
                for planned in self.stages
                if planned.stage.blocks
            ),
            "storage_rate": memory.storage_rate,
            "binds": binds,
            "advice": _ADVICE[binds],
            "rates": {**asdict(used), "measured": rates is not None},
            "notes": self.notes,
        }

    def _grouped(self, seconds: Sequence[float]) -> list[dict[str, Any]]:
        """Stages that have blocks, repetitions added up."""
        groups: dict[str, dict[str, Any]] = {}
        for planned, taken in zip(self.stages, seconds, strict=True):
            stage = planned.stage
            if not stage.blocks:
                continue
            zeros = dict.fromkeys(("times", "tasks", "read_bytes", "written_bytes", "flops"), 0)
            empty = {"name": stage.name, **zeros, "peak_bytes": 0, "seconds": 0.0}
            group = groups.setdefault(stage.name, empty)
            group["times"] += 1
            group["tasks"] += len(stage.blocks)
            group["read_bytes"] += planned.asked_bytes(self.memory.workers)
            for key in ("written_bytes", "flops"):
                group[key] += getattr(stage.cost, key)
            group["peak_bytes"] = max(group["peak_bytes"], planned.peak_bytes)
            group["seconds"] = round(group["seconds"] + taken, 3)
        return list(groups.values())


def plan_embedding(graph: Graph, options: EmbedOptions, memory: ClusterMemory) -> EmbedPlan:
    """Choose blocks and slices for a graph on a cluster."""
    spec = make_spec(options, nodes=graph.nodes, mean_degree=graph.mean_degree)
    wide, narrow = Tiling(spec.width, graph.nodes), Tiling(spec.dim, graph.nodes)
    geometry = Geometry.of(graph, stored_columns(spec))
    setup = Setup(
        graph,
        spec,
        geometry,
        wide,
        narrow,
        memory.threads,
        Path(),
        keep_sketch=options.keep_sketch,
        edge_bytes=graph.all_edge_bytes(),
    )
    setup = choose_tiling(setup, "wide", spec.width, memory)
    setup = choose_tiling(setup, "narrow", spec.dim, memory)
    if memory.workers == 1 or setup.is_small:
        if spec.products > 1:
            setup = chain_products(setup, "wide", spec.width, memory)
        if spec.smoothing != 0:
            setup = chain_products(setup, "narrow", spec.dim, memory)
    plan = EmbedPlan(setup, options, memory)
    return replace(plan, setup=replace(setup, kept_bytes=_kept_bytes(plan)))


def _kept_bytes(plan: EmbedPlan) -> int:
    """Memory of a worker in which products may keep the graph from slice to slice.

    What the largest stage leaves of the memory that may be used; none where reading an entry again
    for every slice costs less than to write it to memory once.
    """
    setup, spec, rates = plan.setup, plan.setup.spec, Rates()
    again = math.ceil(spec.width / setup.wide.slice_columns) * spec.products - 1
    again += math.ceil(spec.dim / setup.narrow.slice_columns) * spec.smoothing
    entry_bytes = kept_entry_bytes(setup.graph)
    if again / rates.entries < entry_bytes / rates.touch:
        return 0
    room = max(plan.memory.allowed_bytes - plan.peak_bytes, 0)
    return min(room, entry_bytes * 2 * setup.graph.edges + 24 * setup.graph.nodes)


def imagined_graph(nodes: int, edges: int) -> Graph:
    """A graph that does not exist, for a plan: unweighted, its edges spread evenly over blocks."""
    block_rows = choose_block_rows(nodes, 2 * edges)
    blocks = math.ceil(nodes / block_rows)
    return Graph(
        path=Path(),
        version="imagined",
        nodes=nodes,
        edges=edges,
        block_rows=block_rows,
        blocks=blocks,
        largest_block_edges=math.ceil(2 * edges / blocks),
        id_kind="int",
        id_starts=(0, nodes),
        weighted=False,
        mean_degree=2 * edges / nodes,
    )
