"""The report of a night: one self-contained HTML page, whose text is in the template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from figrl.engine.stage import Monitor, StageResult, group_by_name
from figrl.nightly.gates import Verdict
from figrl.serve import pictures
from figrl.serve.embedding import Embedding
from figrl.serve.page import render_page
from figrl.store.files import exists, read_record, write_text
from figrl.store.layout import read_manifest
from figrl.units import human_bytes, human_seconds

_FILES_SHOWN = 8
_CHOSEN = " (chosen)"
"""After the value of an option that was left to the preset."""

REMEDIES = {
    "nodes_change": "See below which files were read: is a part missing, or there twice?",
    "edges_change": "See below which files were read: is a part missing, or there twice?",
    "rejected_rows": "The folder quarantine/ of the graph has each bad row, with file and reason.",
    "largest_residual": "Learn more exactly: raise embed.depth or embed.width.",
    "mean_cosine": "See the drift below: the graph has changed, or its ids are those of others.",
    "non_finite_vectors": "Look for extreme weights in the sources.",
    "zero_vectors": "Look for nodes whose edges all have weight 0, and for parts that are missing.",
    "neighbour_recall_loss": "See below which settings changed; more dimensions keep more.",
}
"""What to look at where a gate refuses."""


class Watched:
    """A monitor that keeps what stages took, and forwards to another one."""

    def __init__(self, forward: Monitor) -> None:
        self.stages: list[dict[str, Any]] = []
        self._forward = forward
        self.planned, self.note = forward.planned, forward.note
        self.started, self.advanced = forward.started, forward.advanced

    def finished(self, result: StageResult) -> None:
        """Keep its statistics."""
        self.stages.append(result.describe())
        self._forward.finished(result)


@dataclass(frozen=True)
class Compared:
    """A figure of this night and of the published run before it; `last` is None without one."""

    name: str
    last: str | None
    now: str
    change: str


@dataclass(frozen=True)
class Night:
    """What a night came to: its run, the one published before, measures and stages."""

    new: Embedding
    published: Embedding | None
    measures: dict[str, Any]
    before: dict[str, Any] | None
    verdicts: Sequence[Verdict]
    stages: Sequence[dict[str, Any]]
    anyway: bool

    def write_report(self) -> Path:
        """Write ``report.html`` into the folder of the run."""
        manifest, graph = self.new.manifest, read_manifest(self.new.graph.path)
        refusing = [verdict for verdict in self.verdicts if not verdict.passed]
        sources = graph.get("sources", [])
        page = render_page(
            "report.html",
            title=f"figrl night, run {self.new.run}",
            created=datetime.fromtimestamp(manifest["created"], UTC),
            store=self.new.graph.store,
            run=self.new.run,
            last=None if self.published is None else self.published.run,
            refusing=refusing,
            reasons=[verdict.reason for verdict in refusing],
            refused=bool(refusing) and not self.anyway,
            remedies=dict.fromkeys(REMEDIES[verdict.gate] for verdict in refusing),
            graph=graph,
            manifest=manifest,
            alignment=manifest.get("alignment"),
            verdicts=self.verdicts,
            gates_before=self._gates_before(),
            compared=list(self._compared(graph)),
            settings=list(self._settings(graph)),
            sources=sources[:_FILES_SHOWN],
            more_sources=len(sources) - _FILES_SHOWN,
            parts=self._parts(graph),
            # The pictures are SVG made here, not text of users.
            pictures={name: Markup(svg) for name, svg in self._pictures()},
        )
        target = self.new.path / "report.html"
        write_text(target, page)
        return target

    def _gates_before(self) -> dict[str, float | None]:
        """What the gates measured of the run before."""
        if self.published is None or not exists(self.published.path / "gates.json"):
            return {}
        gates = read_record(self.published.path / "gates.json")["gates"]
        return {verdict["gate"]: verdict["value"] for verdict in gates}

    def _compared(self, graph: dict[str, Any]) -> Iterator[Compared]:
        """Sizes, quality and cost, beside those of the run before."""
        now, last = figures(self.new.manifest, graph, self.measures), {}
        if self.published is not None:
            stored = read_manifest(self.published.graph.path)
            last = figures(self.published.manifest, stored, self.before or {})
        shown = {"bytes": human_bytes, "seconds": human_seconds, "share": "{:.1%}".format}
        for (name, unit), value in now.items():
            if value is not None:
                text = shown.get(unit, "{:,}".format)
                old = last.get((name, unit))
                told = None if old is None else text(old)
                yield Compared(name, told, text(value), change(old, value, share=unit == "share"))

    def _settings(self, graph: dict[str, Any]) -> Iterator[Compared]:
        """Options as they were used, and what they were the last time."""
        now, last = settings(self.new.manifest, graph), None
        if self.published is not None:
            last = settings(self.published.manifest, read_manifest(self.published.graph.path))
        for name in sorted({*now, *(last or {})}):
            value, old = (one.get(name, "not set") for one in (now, last or now))
            # A choice of the preset follows the graph: it changes every night.
            same = value == old or (value.endswith(_CHOSEN) and old.endswith(_CHOSEN))
            yield Compared(name, old, value, "" if same else "changed")

    def _parts(self, graph: dict[str, Any]) -> list[tuple[str, float, dict[str, Any]]]:
        """Parts of the night, their seconds, and their stages."""
        listed = {
            "ingest": graph["stages"],
            "learn": self.new.manifest["stages"],
            "check, fold in again, index": self.stages,
        }
        return [
            (name, sum(stage["seconds"] for stage in stages), group_by_name(stages))
            for name, stages in listed.items()
            if stages
        ]

    def _pictures(self) -> Iterator[tuple[str, str]]:
        """Names and SVGs of the pictures; without the drift where no run was compared."""
        values = self.new.eigenvalues
        if values is None:
            singular = self.new.manifest["singular_values"]
            yield "spectrum", pictures.spectrum(singular, name="singular value")
        else:
            yield "spectrum", pictures.spectrum(values.tolist(), name="eigenvalue")
        yield "degrees", pictures.degrees(self.measures["degrees"])
        alignment = self.new.manifest.get("alignment")
        if alignment and alignment["mean_cosine"] is not None:
            names = ("histogram", "mean_cosine", "mean_cosine_unaligned")
            yield "drift", pictures.drift(*(alignment[name] for name in names))


def figures(
    manifest: dict[str, Any], graph: dict[str, Any], measures: dict[str, Any]
) -> dict[tuple[str, str], Any]:
    """Figures of a run by name and unit; None where one is not known."""
    certificate, facts = manifest["certificate"] or {}, graph["graph"]
    return {
        ("input files", ""): graph["files"],
        ("input bytes", "bytes"): graph["input_bytes"],
        ("input rows", ""): facts["rows_read"],
        ("rows rejected", ""): facts["rows_rejected"],
        ("nodes", ""): facts["nodes"],
        ("edges", ""): facts["edges"],
        ("share of the graph's matrix in the vectors", "share"): certificate.get("share_captured"),
        ("neighbour recall", "share"): measures.get("neighbour_recall"),
        ("vectors all zero", ""): measures.get("zero_vectors"),
        ("time to ingest", "seconds"): graph["seconds"],
        ("time to learn", "seconds"): manifest["seconds"],
        ("peak memory of a worker", "bytes"): max(
            graph["peak_worker_bytes"], manifest["peak_worker_bytes"]
        ),
    }


def change(last: float | None, now: float, *, share: bool) -> str:
    """Difference of two figures, in percent of the first, or in points of two shares."""
    if last is None:
        return ""
    if share:
        return f"{100 * (now - last):+.1f} points"
    if now == last:
        return "same"
    return f"{now / last - 1:+.1%}" if last else "was 0"


def settings(manifest: dict[str, Any], graph: dict[str, Any]) -> dict[str, str]:
    """Options of ingest that were given, and all that vectors depend on, as they were used."""
    found = {f"ingest: {k}": str(v) for k, v in graph["config"].items() if v is not None}
    for name, value in manifest["spec"].items():
        chosen = manifest["config"].get(name) in (None, "auto")
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        found[f"embed: {name}"] = text + _CHOSEN * chosen
    return found
