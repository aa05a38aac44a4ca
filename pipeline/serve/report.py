"""The report of a run: one HTML page that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from pipeline.blocks import Stats
from pipeline.files import read_json, write_json, write_text
from pipeline.job import Monitor
from pipeline.measure import human_bytes, human_seconds
from pipeline.run import map_once
from pipeline.serve import pictures
from pipeline.serve.align import take_rows
from pipeline.serve.embedding import Embedding
from pipeline.serve.gates import Verdict
from pipeline.stages import grouped_stages
from pipeline.tiles import open_tiles

_MAPPED_NODES, _MAPPED_CLUSTERS = 3000, 8

_STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#222933;background:#fff;margin:0 auto;
max-width:60rem;padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .4rem}
p{margin:.4rem 0}.lead{color:#556070}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1.5rem}
figure{margin:0;max-width:34rem}figcaption{color:#556070;font-size:.88rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}
th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid #e3e7ee;
vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ok{color:#1a7f37}.no{color:#c0262d;font-weight:600}
"""


def write_report(
    client: distributed.Client,
    embedding: Embedding,
    measures: dict[str, Any],
    verdicts: Sequence[Verdict],
    monitor: Monitor,
) -> Path:
    """Write ``report.html`` into the folder of a run."""
    path = embedding.path / "map.json"
    if not path.exists():
        [mapped] = map_once(client, map_nodes, [(embedding.path / "embedding",)])
        write_json(path, mapped)
    target = embedding.path / "report.html"
    write_text(target, render_report(embedding, measures, verdicts, read_json(path)))
    monitor.note(f"Report: {target}")
    return target


def map_nodes(vectors: Path) -> Stats:
    """Two principal components and the cluster of some nodes, evenly spaced over the rows."""
    from sklearn.cluster import KMeans

    nodes = open_tiles(vectors).shape[0]
    rows = np.unique(np.linspace(0, nodes - 1, min(nodes, _MAPPED_NODES)).astype(np.int64))
    sample = take_rows(vectors, rows)
    sample = np.where(np.isfinite(sample), sample, 0.0)
    distinct = len(np.unique(sample, axis=0))
    model = KMeans(min(_MAPPED_CLUSTERS, distinct), n_init=1, max_iter=25, random_state=0)
    labels = model.fit_predict(sample)
    centred = sample - sample.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    points = centred @ directions[:2].T
    if points.shape[1] < 2:
        points = np.column_stack([points, np.zeros(rows.size)])
    return {"points": np.round(points, 5).tolist(), "labels": labels.tolist(), "nodes": nodes}


def render_report(
    embedding: Embedding,
    measures: dict[str, Any],
    verdicts: Sequence[Verdict],
    mapped: dict[str, Any],
) -> str:
    """The page itself."""
    manifest = embedding.manifest
    made = datetime.fromtimestamp(manifest["created"], UTC)
    passed = all(verdict.passed for verdict in verdicts)
    state = "All gates passed." if passed else "<span class='no'>A gate refused this run.</span>"
    certificate = manifest["certificate"]
    body = [
        f"<h1>figrl run {html.escape(embedding.run)}</h1>",
        f"<p class=lead>{made:%Y-%m-%d %H:%M} UTC. {state}</p>",
        _facts(embedding, measures),
        "<h2>Gates</h2>",
        _gates(verdicts),
        "<h2>Vectors</h2>",
        f"<p>{html.escape(certificate['meaning'])}</p>" if certificate else "",
        _figures(embedding, measures, mapped),
        "<h2>Stages</h2>",
        _stages(manifest),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        "<link rel=icon href='data:,'>"
        f"<title>figrl run {html.escape(embedding.run)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _facts(embedding: Embedding, measures: dict[str, Any]) -> str:
    manifest = embedding.manifest
    alignment = manifest.get("alignment")
    rows = {
        "nodes": f"{embedding.graph.nodes:,}",
        "edges": f"{embedding.graph.edges:,}",
        "graph": embedding.graph.version,
        "dimensions": f"{embedding.dim}, from {manifest['sketch_size']:,} sketch columns",
        "learnt in": human_seconds(manifest["seconds"]),
        "peak memory of a worker": human_bytes(manifest["peak_worker_bytes"]),
        "rows rejected": f"{measures['rows_rejected']:,} of {measures['rows_read']:,}",
        "vectors all zero": f"{measures['zero_vectors']:,}",
    }
    if alignment:
        rows["aligned with"] = (
            f"run {alignment['reference']}, {alignment['shared_nodes']:,} nodes in common"
        )
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<div class=wide><table>{cells}</table></div>"


def _gates(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        state = (
            "<span class=ok>passed</span>" if verdict.passed else "<span class=no>refused</span>"
        )
        value = "-" if verdict.value is None else f"{verdict.value:.4g}"
        limit = "off" if verdict.limit is None else f"{verdict.limit:.4g}"
        rows.append(
            f"<tr><td>{verdict.gate.replace('_', ' ')}</td><td class=n>{value}</td>"
            f"<td class=n>{limit}</td><td>{state}</td><td>{html.escape(verdict.meaning)}</td></tr>"
        )
    head = "<tr><th>gate</th><th class=n>value</th><th class=n>limit</th><th></th><th></th></tr>"
    return f"<div class=wide><table>{head}{''.join(rows)}</table></div>"


def _figures(embedding: Embedding, measures: dict[str, Any], mapped: dict[str, Any]) -> str:
    manifest = embedding.manifest
    values = embedding.eigenvalues
    name = "singular value" if values is None else "eigenvalue"
    shown = manifest["singular_values"] if values is None else values.tolist()
    parts = [
        _figure(
            pictures.spectrum(shown, name=name),
            "What each dimension weighs. A flat tail says that more dimensions would bring "
            "little; a gap, where a natural number of clusters lies.",
        ),
        _figure(
            pictures.degrees(measures["degrees"]),
            "A straight slope is usual for real graphs. A spike at one degree is often a fault "
            "of the source.",
        ),
    ]
    alignment = manifest.get("alignment")
    if alignment and alignment["mean_cosine"] is not None:
        parts.append(
            _figure(
                pictures.drift(
                    alignment["histogram"],
                    alignment["mean_cosine"],
                    alignment["mean_cosine_unaligned"],
                ),
                "How far vectors moved since the published run. Most should lie at the right; "
                "a heap elsewhere is a part of the graph that changed.",
            )
        )
    parts.append(
        _figure(
            pictures.node_map(mapped["points"], mapped["labels"]),
            f"{len(mapped['points']):,} of {mapped['nodes']:,} nodes, coloured by k-means "
            "clusters of their vectors. Clusters that overlap here may be apart in the other "
            "dimensions.",
        )
    )
    return f"<div class=grid>{''.join(parts)}</div>"


def _figure(svg: str, sentence: str) -> str:
    return f"<figure>{svg}<figcaption>{html.escape(sentence)}</figcaption></figure>"


def _stages(manifest: dict[str, Any]) -> str:
    """Stages of one kind, such as the products of a chain, in one row."""
    groups = grouped_stages(manifest["stages"])
    picture = pictures.stage_times(list(groups), [row["seconds"] for row in groups.values()])
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td class=n>{row['times']}</td>"
        f"<td class=n>{row['seconds']:.1f}</td><td class=n>{human_bytes(row['read_bytes'])}</td>"
        f"<td class=n>{human_bytes(row['written_bytes'])}</td>"
        f"<td class=n>{human_bytes(row['peak_bytes'])}</td></tr>"
        for name, row in groups.items()
    )
    head = "<tr><th>stage</th>" + "".join(
        f"<th class=n>{name}</th>"
        for name in ("times", "seconds", "read", "written", "peak memory")
    )
    table = f"<div class=wide><table>{head}</tr>{rows}</table></div>"
    return table + _figure(picture, "Where the time went.")
