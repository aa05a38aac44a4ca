"""Fold-in: vectors for new nodes from their edges to known ones; nothing is learnt again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import distributed
from pydantic import Field

from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.engine.stage import Memory
from figrl.errors import BadInputError, ConfigError, ResourceError
from figrl.ingestion.build import build_graph
from figrl.ingestion.ingest import ingest_identity
from figrl.ingestion.inputs import Edges, inspect_files, read_input
from figrl.ingestion.opening import AnyFile
from figrl.ingestion.options import IngestOptions, ReadOptions
from figrl.ingestion.sources import SourceFile
from figrl.learn.spec import EmbedSpec
from figrl.serve.delivery import deliver, rows_of_parts
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.export import vectors_schema
from figrl.serve.fold_blocks import BLOCK_ROWS, fold_memory, fold_stages
from figrl.serve.fold_entries import FoldTask
from figrl.serve.lookup import check_side
from figrl.serve.output import check_output, output_locked, quarantine_of
from figrl.store.files import copy, delete, digest, exists
from figrl.store.graph import graph_from_manifest
from figrl.store.ids import check_id_kind
from figrl.store.layout import PathLike, store_paths
from figrl.store.range_starts import write_starts
from figrl.store.sides import Side
from figrl.units import human_bytes

_INPUT_COUNTS = ("rows_read", "rows_rejected", "self_loops_dropped", "repeated_edges_merged")


class FoldInOptions(ReadOptions):
    """Options of fold-in; ``source`` is the column of new nodes, ``target`` that of known ones."""

    section: ClassVar[str] = "fold_in"
    added_later: ClassVar[frozenset[str]] = frozenset({"side", "ids", "csv_header"})

    side: Side | None = Field(
        None,
        description="Side of the new nodes in a bipartite or directed graph; the known ones are on "
        "the other. Default there: source.",
    )
    degrees: Literal["extended", "stored"] = Field(
        "extended",
        description="Degrees of known nodes: with the new edges (the paper), or as stored.",
    )
    known: Literal["skip", "recompute"] = Field(
        "skip",
        description="A 'new' node that the graph has already: skip it, or recompute its vector.",
    )
    rounds: int = Field(
        3,
        ge=1,
        le=100,
        description="With smoothing: rounds in which linked new nodes propagate their vectors to "
        "each other; 1: such edges have no effect.",
    )


def run_fold_in(
    store: PathLike,
    edges: Edges,
    out: Path,
    config: FoldInOptions,
    session: Session,
    *,
    run: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Fold in new nodes and return a report; see `figrl.fold_in`."""
    started = time.perf_counter()
    embedding = open_store(store).embedding(run)
    job = FoldIn(embedding, config).with_side()
    given = read_input(edges, job.reading, session.storage, new_nodes=True)
    out = check_output(out, store=store, inputs=[*given.given, *given.files])
    rejected = quarantine_of(out, given.files)
    with output_locked(out, "fold-in", overwrite=overwrite) as place, session.open() as client:
        memory = session.memory(client)
        job.check_memory(memory)
        scratch = place.space / "edges"
        with given.opened(client, scratch, session.monitor) as sources:
            job.check_ids(sources)
            read = ingest_identity(sources, job.reading)
            identity = digest([read, job.config.significant(), embedding.run])
            folder = place.space / f"fold-in-{identity}"
            parts = folder / "parts"
            place.begin(folder, parts, keep=scratch)
            runner = ClusterRunner(client, folder / "marks", session.monitor, memory)
            counts = job.run(runner, sources, memory, parts)
        check_linked(counts)
        quarantine = keep_quarantine(folder, rejected)
        schema = vectors_schema(embedding.graph, embedding.dim)
        deliver(runner, place, parts, schema, _rows_folded(runner))
    return {
        "store": str(store_paths(store).root),
        "run": embedding.run,
        "out": str(out),
        "quarantine": quarantine,
        "counts": counts,
        "seconds": round(time.perf_counter() - started, 3),
        **runner.describe(),
    }


def check_linked(counts: Mapping[str, int]) -> None:
    """Refuse edges of which none links a new node to a known one: all vectors would be zeros."""
    new, unknown = counts["nodes_folded_in"], counts["unknown_nodes"]
    if not new and unknown:
        raise BadInputError(
            f"No node is new: all in the first column are in the graph, and {unknown:,} in the "
            "second are not. The new node comes first: name the columns with --source (new nodes) "
            "and --target (known nodes), or swap them."
        )
    if new and counts["nodes_without_known_neighbour"] == new:
        raise BadInputError(
            f"None of the {new:,} new nodes is linked to a node of the graph, so that all their "
            "vectors would be zeros. The second column has to hold ids as the graph has them, "
            "'007' and '7' being two: compare them with those of figrl export."
        )


def _rows_folded(runner: ClusterRunner) -> list[int]:
    """Rows of each part: the nodes that the first round of each block gave a vector."""
    [first] = [result for result in runner.results if (result.name, result.step) == ("fold", None)]
    return rows_of_parts(first, "folded")


@dataclass(frozen=True)
class FoldIn:
    """New edges folded into a run: how they are read, checked and processed."""

    embedding: Embedding
    config: FoldInOptions

    def with_side(self) -> FoldIn:
        """The same with the side of the new nodes filled in, where nodes have sides."""
        graph, side = self.embedding.graph, self.config.side
        check_side(graph, side, "--side")
        if self.config.ids not in ("auto", graph.id_kind):
            raise ConfigError(
                f"--ids is {self.config.ids}, but the ids of the graph are {graph.id_kind}: leave "
                "it out, since new nodes are read as the graph's are."
            )
        options = self.config.model_copy(update={"side": side or graph.index.sides[0]})
        return FoldIn(self.embedding, options)

    @property
    def reading(self) -> IngestOptions:
        """How the edges are ingested as a small graph of their own, the new nodes as sources."""
        given = self.config.model_dump(include=set(ReadOptions.model_fields))
        graph = self.embedding.graph
        given["ids"] = graph.id_kind
        return IngestOptions(kind=graph.kind, block_rows=BLOCK_ROWS, **given)

    @property
    def memory(self) -> Memory:
        """Memory of the largest stage."""
        return fold_memory(self.embedding.dim, self.embedding.chunk_rows)

    def check_memory(self, available: ClusterMemory) -> None:
        """Refuse workers that are too small for a block of new nodes."""
        needed = self.memory.peak_bytes(available.threads)
        if needed > available.allowed_bytes:
            raise ResourceError(
                f"fold-in needs {human_bytes(needed)} in a worker with {available.threads} "
                f"threads; {human_bytes(available.allowed_bytes)} may be used of a limit of "
                f"{human_bytes(available.limit_bytes)}. {available.remedy()}"
            )

    def inspect(self, client: distributed.Client, files: Sequence[AnyFile]) -> list[SourceFile]:
        """Sniff files of new edges; their ids have to be of the graph's kind."""
        sources = inspect_files(client, files, self.reading)
        self.check_ids(sources)
        return sources

    def check_ids(self, sources: Sequence[SourceFile]) -> None:
        """Refuse ids that are not of the graph's kind."""
        expected = self.embedding.graph.id_kind
        for source in sources:
            # Text is read as ids of the graph's kind, whatever it looks like.
            if source.typed:
                remedy = "Cast the id columns to the type of the graph's."
                check_id_kind(source.name, source.id_kind, expected, remedy=remedy)

    def run(
        self,
        runner: ClusterRunner,
        sources: Sequence[SourceFile],
        memory: ClusterMemory,
        parts: Path,
    ) -> dict[str, int]:
        """Write the vectors of new nodes to parts; return counts of nodes and edges by outcome."""
        embedding, config, folder = self.embedding, self.config, runner.marks.parent
        graph_runner = runner.beside(folder / "graph" / "work" / "marks")
        read = (sources, self.reading, memory, folder / "graph")
        facts = build_graph(graph_runner, *read, both_sides=False)
        write_starts(folder / "graph", facts["id_starts"])
        task = FoldTask(
            known=embedding.graph,
            new=graph_from_manifest(folder / "graph", {"graph": facts}),
            basis=embedding.path / "basis",
            folder=folder,
            parts=parts,
            extended=config.degrees == "extended",
            recompute=config.known == "recompute",
            spec=EmbedSpec(**embedding.manifest["spec"]),
            smoothed=embedding.manifest["smoothing_steps"] > 0,
            rounds=config.rounds,
            side=config.side,
        )
        counts = runner.run(fold_stages(task, self.memory))
        return counts | {name: facts[name] for name in _INPUT_COUNTS}


def keep_quarantine(folder: Path, target: Path) -> str | None:
    """Copy the bad rows of a job, if there are any, to a folder that outlives it."""
    rejected = folder / "graph" / "quarantine"
    if not exists(rejected):
        return None
    delete(target)
    # Not moved: the job may be killed before it ends, and run again.
    copy(rejected, target)
    return str(target)
