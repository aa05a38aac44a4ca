"""Configurations as people write them: each is taken as it is meant, or refused with a reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from figrl.config import make_options
from figrl.engine.cluster_file import read_cluster_config
from figrl.errors import ConfigError
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.nightly.config import read_reindex_config
from figrl_jobs.options import finite

BIG = "1" * 400

# Options of ingest: what is given, and the value of one field or words of the refusal.
INGEST: list[tuple[dict[str, Any], Any]] = [
    ({}, {"weight_column": None}),
    ({"weight": "none"}, {"weight_column": None}),
    ({"weight": "None"}, {"weight_column": None}),
    ({"weight": "w"}, {"weight_column": "w"}),
    ({"weight": 3}, {"weight_column": "3"}),
    ({"source": 2, "target": 3}, {"source": "2"}),
    ({"csv_header": True}, {"csv_header": "yes"}),
    ({"csv_header": False}, {"csv_header": "no"}),
    ({"csv_header": "maybe"}, "--csv-header is 'maybe'"),
    ({"kind": "mixed"}, "--kind is 'mixed'"),
    ({"ids": "float"}, "--ids is 'float'"),
    ({"on_bad_edges": "skip"}, "--on-bad-edges is 'skip'"),
    ({"block_rows": 3}, "power of two"),
    ({"block_rows": 0}, "--block-rows is 0"),
    ({"block_rows": 1 << 21}, "--block-rows"),
    ({"block_rows": True}, "yes and no"),
    ({"block_rows": "many"}, "--block-rows is 'many'"),
    ({"block_rows": 1.5}, "--block-rows is 1.5"),
    ({"time": "at"}, "belong together"),
    ({"half_life": "30d"}, "belong together"),
    ({"time": "at", "half_life": "30d"}, {"half_life": "30d"}),
    ({"time": "at", "half_life": 30}, {"half_life": "30"}),
    ({"time": "at", "half_life": "30 parsecs"}, "--half-life is '30 parsecs'"),
    ({"time": "at", "half_life": "-1d"}, "--half-life"),
    ({"time": "at", "half_life": "0"}, "--half-life"),
    ({"time": "at", "half_life": "inf"}, "--half-life"),
    ({"time": "at", "half_life": "nan"}, "--half-life"),
    ({"as_of": "2026-01-01"}, "--as-of"),
    ({"time": "at", "half_life": "1d", "as_of": "soon"}, "--as-of is 'soon'"),
    ({"time": "at", "half_life": "1d", "as_of": "2026-01-01"}, {"as_of": "2026-01-01"}),
    ({"wieght": "w"}, "did you mean 'weight'?"),
    ({"source": True}, "yes and no"),
    ({"source": ["a"]}, "--source is ['a']"),
]

# Options of embed, for a graph of 1,000 nodes and mean degree 10.
EMBED: list[tuple[dict[str, Any], Any]] = [
    ({}, {"dim": 128, "regularization": 10.0}),
    ({"dim": 0}, "--dim is 0"),
    ({"dim": -1}, "--dim is -1"),
    ({"dim": 1000}, "at most 999"),
    ({"dim": 10**30}, "--dim"),
    ({"dim": True}, "yes and no"),
    ({"dim": 1.5}, "--dim is 1.5"),
    ({"dim": float("nan")}, "--dim"),
    ({"dim": "64"}, {"dim": 64}),
    ({"width": 0}, "--width is 0"),
    ({"width": 1}, "--width of at least 16"),
    ({"width": 40_000}, "--width"),
    ({"depth": 0}, "--depth is 0"),
    ({"depth": 101}, "--depth is 101"),
    ({"width": 32_768, "depth": 2}, "65536 columns"),
    ({"width": 64, "sketch_size": 512}, "Give --width or --sketch-size"),
    ({"sketch_size": 512}, {"width": 64}),
    ({"sketch_size": 5}, "--sketch-size from 128"),
    ({"epsilon": 0}, "--epsilon is 0"),
    ({"epsilon": 1}, "--epsilon is 1"),
    ({"epsilon": float("nan")}, "--epsilon"),
    ({"epsilon": 1e-9}, "--epsilon of at least"),
    ({"regularization": 0}, {"regularization": 0.0}),
    ({"regularization": "0.5"}, {"regularization": 0.5}),
    ({"regularization": "auto"}, {"regularization": 10.0}),
    ({"regularization": 10_000}, {"regularization": 10_000.0}),
    ({"regularization": 10_001}, "1000 times that at most"),
    ({"regularization": 1e30}, "1000 times that at most"),
    ({"regularization": "1e308"}, "1000 times that at most"),
    ({"regularization": -1}, "a number from 0 on"),
    ({"regularization": "inf"}, "a number from 0 on"),
    ({"regularization": "nan"}, "a number from 0 on"),
    ({"regularization": float("inf")}, "--regularization"),
    ({"regularization": "lots"}, "--regularization is 'lots'"),
    ({"regularization": True}, "yes and no"),
    ({"representation": "units"}, "--representation is 'units'"),
    ({"representation": "product"}, {"regularization": 1.0, "smoothing": 0}),
    ({"representation": "product", "smoothing": 3}, "--smoothing is for the unit"),
    ({"smoothing": 101}, "from 0 to 100"),
    ({"smoothing": -1}, "from 0 to 100"),
    ({"smoothing": "some"}, "from 0 to 100"),
    ({"smoothing": True}, "yes and no"),
    ({"smoothing": 0}, {"smoothing": 0}),
    ({"seed": -1}, "--seed is -1"),
    ({"seed": 1 << 63}, "--seed"),
    ({"preset": "best"}, "--preset is 'best'"),
    ({"preset": "paper"}, {"regularization": 0.0, "depth": 1}),
    ({"power_iterations": 3}, "no option 'power_iterations'"),
]

START = "store: s\nsources: e.csv\n"
# Files of reindex: their text, and words of the refusal; None where they are taken.
REINDEX: list[tuple[str | bytes, str | None]] = [
    (START, None),
    (START + "ingest: {csv_header: yes, weight: 3}\n", None),
    (START + "window: {days: 90}\n", None),
    (START + "gates: {nodes_change: null}\n", None),
    ("store: s\nsources: [a.csv, b.csv]\n", None),
    ("", "'store' is missing"),
    ("# nothing\n", "'sources' is missing"),
    ("store: s\n", "'sources' is missing"),
    ("store: s\nsources: []\n", "sources"),
    ("[]", "keys and values"),
    ("0", "keys and values"),
    ("false", "keys and values"),
    ("just words", "keys and values"),
    ("store: [", "cannot be read"),
    ("store: s\n\tsources: e\n", "cannot be read"),
    (b"store: \xff\n", "cannot be read"),
    ("store: \0\n", "cannot be read"),
    ("store: !!python/object:os.system x\n", "cannot be read"),
    ("store: 2026-13-45\n", "cannot be read"),
    ("[" * 5000, "cannot be read"),
    (START + "store: t\n", "'store' is there twice"),
    (START + "embed: {dim: 8, dim: 9}\n", "'dim' is there twice"),
    (START + "1: 2\n", "1"),
    (START + "stoer: s\n", "did you mean 'store'?"),
    (START + "embed: {dims: 8}\n", "did you mean 'dim'?"),
    (START + "embed: {dim: yes}\n", "yes and no"),
    (START + "embed: 5\n", "embed is 5"),
    (START + f"embed: {{seed: {BIG}}}\n", "embed.seed"),
    (START + "gates: {nodes_change: .nan}\n", "gates.nodes_change"),
    (START + "gates: {nodes_change: .inf}\n", "gates.nodes_change"),
    (START + "gates: {nodes_change: -1}\n", "gates.nodes_change is -1"),
    (START + "gates: {rejected_rows: 2}\n", "gates.rejected_rows is 2"),
    (START + "keep: {runs: 0}\n", "keep.runs is 0"),
    (START + "keep: {unfinished_days: .inf}\n", "keep.unfinished_days"),
    (START + "window: {days: 0}\n", "window.days is 0"),
    (START + "window: {}\n", "'window.days' is missing"),
    (START + "align: perhaps\n", "align is 'perhaps'"),
    (START + "index: fast\n", "index is 'fast'"),
    (START + "ingest: {time: at}\n", "belong together"),
    ("store: 5\nsources: e\n", "store is 5"),
    ("store: s\nsources: 5\n", "sources"),
    ("store: s\nsources: [{include: '*'}]\n", "path"),
    ("a: &a [x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\n" + START, "no key 'a'"),
]

CLUSTER: list[tuple[str | bytes, str | None]] = [
    ("", None),
    ("local: {workers: 2}\n", None),
    ("scheduler: tcp://127.0.0.1:8786\n", None),
    ("local: {workers: 0}\n", "local.workers is 0"),
    ("local: {workers: yes}\n", "yes and no"),
    ("local: {workers: 1.5}\n", "local.workers"),
    ("local: {threads_per_worker: -1}\n", "local.threads_per_worker"),
    ("local: {memory_limit: lots}\n", "is not a size of memory"),
    ("local: {memory_limit: 0}\n", "local.memory_limit"),
    ("local: {memroy_limit: 2GB}\n", "did you mean 'memory_limit'?"),
    ("local: {workers: 1, workers: 2}\n", "'workers' is there twice"),
    ("local: {}\nscheduler: tcp://a:1\n", "exactly one of"),
    ("scheduler:\n", "nothing is given"),
    ("scheduler: 5\n", "scheduler is 5"),
    ("schedular: tcp://a:1\n", "did you mean 'scheduler'?"),
    ("custom:\n", "nothing is given"),
    ("custom: {scale: 3}\n", "class"),
    ("- local\n", "keys and values"),
    ("local: [\n", "cannot be read"),
    (b"\xff\xfe", "cannot be read"),
]


def test_the_corpus_is_large() -> None:
    assert len(INGEST) + len(EMBED) + len(REINDEX) + len(CLUSTER) >= 100


def _check(read: Any, expected: Any, place: str = "") -> Any:
    """Read a configuration; where words are expected, it has to be refused with them."""
    if not isinstance(expected, str):
        return read()
    with pytest.raises(ConfigError) as caught:
        read()
    assert caught.value.exit_code == 2
    assert expected in caught.value.message
    assert place in caught.value.message
    assert len(caught.value.message) < 2000
    return None


@pytest.mark.parametrize(("given", "expected"), INGEST, ids=str)
def test_options_of_ingest(given: dict[str, Any], expected: Any) -> None:
    made = _check(lambda: make_options(IngestOptions, given), expected)
    if made is not None:
        assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(("given", "expected"), EMBED, ids=str)
def test_options_of_embed(given: dict[str, Any], expected: Any) -> None:
    def spec() -> Any:
        return make_spec(make_options(EmbedOptions, given), nodes=1000, mean_degree=10.0)

    made = _check(spec, expected)
    if made is not None:
        assert {name: getattr(made, name) for name in expected} == expected


def _write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("number", range(len(REINDEX)))
def test_a_file_of_reindex(tmp_path: Path, number: int) -> None:
    content, expected = REINDEX[number]
    path = _write(tmp_path / "night.yaml", content)
    made = _check(lambda: read_reindex_config(path), expected, str(path))
    assert made is None or made.store == str(tmp_path / "s")


@pytest.mark.parametrize("number", range(len(CLUSTER)))
def test_a_cluster_file(tmp_path: Path, number: int) -> None:
    content, expected = CLUSTER[number]
    path = _write(tmp_path / "cluster.yaml", content)
    made = _check(lambda: read_cluster_config(path), expected, str(path))
    assert made is None or made.kind in ("local", "scheduler")


def test_a_configuration_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", tmp_path, tmp_path / "gone.yaml"):
        _check(lambda path=path: read_reindex_config(path), "cannot be read", str(path))


def test_json_has_no_infinity() -> None:
    report = {"a": float("inf"), "b": [1.5, float("nan"), {"c": (2, float("-inf"))}], "d": None}
    assert finite(report) == {"a": None, "b": [1.5, None, {"c": [2, None]}], "d": None}
