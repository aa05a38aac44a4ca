"""The report of a run: one self-contained HTML page, whose text is in the template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from figrl.engine.stage import group_by_name
from figrl.nightly.gates import Verdict
from figrl.serve import pictures
from figrl.serve.embedding import Embedding
from figrl.serve.page import render_page
from figrl.store.files import read_record, write_text


def write_report(
    embedding: Embedding, measures: dict[str, Any], verdicts: Sequence[Verdict]
) -> Path:
    """Write ``report.html`` into the folder of a run that was measured."""
    manifest = embedding.manifest
    stages = group_by_name(manifest["stages"])
    mapped = read_record(embedding.path / "map.json")
    # The pictures are SVG made here, not text of users.
    drawn = _pictures(embedding, measures, mapped, stages)
    page = render_page(
        "report.html",
        title=f"figrl run {embedding.run}",
        created=datetime.fromtimestamp(manifest["created"], UTC),
        graph=embedding.graph,
        manifest=manifest,
        alignment=manifest.get("alignment"),
        measures=measures,
        verdicts=verdicts,
        mapped=mapped,
        stages=stages,
        pictures={name: Markup(svg) for name, svg in drawn},
    )
    target = embedding.path / "report.html"
    write_text(target, page)
    return target


def _pictures(
    embedding: Embedding, measures: dict[str, Any], mapped: dict[str, Any], stages: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Names and SVGs of the pictures; without the drift where no run was compared."""
    values = embedding.eigenvalues
    if values is None:
        singular = embedding.manifest["singular_values"]
        yield "spectrum", pictures.spectrum(singular, name="singular value")
    else:
        yield "spectrum", pictures.spectrum(values.tolist(), name="eigenvalue")
    yield "degrees", pictures.degrees(measures["degrees"])
    alignment = embedding.manifest.get("alignment")
    if alignment and alignment["mean_cosine"] is not None:
        names = ("histogram", "mean_cosine", "mean_cosine_unaligned")
        yield "drift", pictures.drift(*(alignment[name] for name in names))
    yield "map", pictures.node_map(mapped["points"], mapped["labels"])
    seconds = [row["seconds"] for row in stages.values()]
    yield "stages", pictures.stage_times(list(stages), seconds)
