"""Decay of weights by age: the formula, every type of time, bad rows, and wrong use."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import figrl
from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.build import IngestSizes
from figrl.ingestion.decay import LARGEST_WEIGHT, Decay, HalfLife
from figrl.ingestion.options import IngestOptions
from tests.ingestion.stored import Edges, full_weights_of, ingested, message_of, quarantined
from tests.ingestion.test_graph import assert_symmetric
from tests.reference import DenseGraph

DAY = 86_400
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)


def write_timed(path: Path, edges: Edges, times: Any, kind: pa.DataType | None = None) -> Path:
    """Write edges, with or without weights, and their times in the column ``at``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ("source", "target", "weight")[: len(edges[0])]
    columns = dict(zip(names, map(list, zip(*edges, strict=True)), strict=True))
    pq.write_table(pa.table({**columns, "at": pa.array(times, kind)}), path)
    return path


@given(
    seed=st.integers(0, 1000),
    weighted=st.booleans(),
    kind=st.sampled_from(["undirected", "bipartite", "directed"]),
    files=st.integers(1, 3),
    as_of=st.none() | st.integers(0, 2000),
    power=st.integers(0, 5),
)
def test_the_formula_on_any_edges(
    tmp_path_factory: pytest.TempPathFactory,
    client: distributed.Client,
    seed: int,
    weighted: bool,
    kind: str,
    files: int,
    as_of: int | None,
    power: int,
) -> None:
    folder, rng = tmp_path_factory.mktemp("decay"), np.random.default_rng(seed)
    edges = [(int(a), int(b)) for a, b in rng.integers(0, 12, (60, 2))]
    times = rng.integers(0, 1000, 60).tolist()
    weights = rng.uniform(0.5, 2, 60).tolist() if weighted else [1.0] * 60
    ordered: Edges = []
    latest = max(times) if as_of is None else as_of
    for number in range(files):
        some = range(number, 60, files)
        part = [(*edges[i], weights[i])[: 3 if weighted else 2] for i in some]
        write_timed(folder / "in" / f"{number}.parquet", part, [times[i] for i in some])
        ordered += [
            (*edges[i], weights[i] * 2.0 ** (-max(latest - times[i], 0) / 90)) for i in some
        ]
    options = {"time": "at", "half_life": "90", "kind": kind, "block_rows": 1 << power}
    graph, report = ingested(client, folder / "in", folder / "store", as_of=as_of, **options)
    dense = DenseGraph.with_sides(ordered, kind) if kind != "undirected" else DenseGraph.of(ordered)
    found = np.zeros_like(dense.weights)
    for (i, j), weight in full_weights_of(graph).items():
        found[i, j] = weight
    np.testing.assert_allclose(found, dense.weights, rtol=1e-12, atol=0)
    assert report["as_of"] == latest
    assert_symmetric(graph)


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        ([MONDAY + timedelta(days=day) for day in (0, 10, 20)], pa.timestamp("us", "UTC")),
        ([MONDAY + timedelta(days=day) for day in (0, 10, 20)], pa.timestamp("ns", "Asia/Tokyo")),
        ([datetime(2026, 11, 2) + timedelta(days=d) for d in (0, 10, 20)], pa.timestamp("s")),
        ([date(2026, 11, 2) + timedelta(days=day) for day in (0, 10, 20)], pa.date32()),
        ([date(2026, 11, 2) + timedelta(days=day) for day in (0, 10, 20)], pa.date64()),
        ([MONDAY.timestamp() + DAY * day for day in (0, 10, 20)], pa.float64()),
        ([int(MONDAY.timestamp()) + DAY * day for day in (0, 10, 20)], pa.uint32()),
        (["2026-11-02", "2026-11-12T00:00:00Z", "2026-11-22 09:00:00+09:00"], pa.string()),
        (["1793577600", "2026-11-12", "2026-11-22T00:00:00"], pa.large_string()),
    ],
)
def test_every_type_of_time(
    tmp_path: Path, client: distributed.Client, times: Any, kind: pa.DataType
) -> None:
    path = write_timed(tmp_path / "e.parquet", [(1, 2), (2, 3), (3, 1)], times, kind)
    graph, report = ingested(client, path, tmp_path / "s", time="at", half_life="10d")
    assert full_weights_of(graph) == {
        (0, 1): 0.25,
        (1, 0): 0.25,
        (1, 2): 0.5,
        (2, 1): 0.5,
        (0, 2): 1.0,
        (2, 0): 1.0,
    }
    assert report["as_of"] == (MONDAY + timedelta(days=20)).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2min", 120),
        ("1.5h", 5400),
        ("30d", 30 * DAY),
        ("2 w", 14 * DAY),
        ("1y", 365.25 * DAY),
        ("12", 12),
    ],
)
def test_units(text: str, seconds: float) -> None:
    assert HalfLife.parse(text) == HalfLife(seconds, has_unit=text != "12")


def test_csv_and_the_weight_beside_the_time(tmp_path: Path, client: distributed.Client) -> None:
    """The third column that is no time is the weight, as without times."""
    (tmp_path / "e.csv").write_text(
        "a,b,at,w\nx,y,2026-01-01,4\nx,y,2026-01-03,1\ny,z,2026-01-02T00:00:00,8\n"
    )
    graph, report = ingested(client, tmp_path / "e.csv", tmp_path / "s", time="at", half_life="1d")
    assert full_weights_of(graph) == {(0, 1): 2.0, (1, 0): 2.0, (1, 2): 4.0, (2, 1): 4.0}
    assert report["weighted"]


def test_bits_do_not_depend_on_how_the_input_is_cut(
    tmp_path: Path, client: distributed.Client
) -> None:
    rng = np.random.default_rng(3)
    ends, times = rng.integers(0, 200, (40_000, 2)), rng.uniform(0, 1e6, 40_000)
    edges = [(int(a), int(b)) for a, b in ends]
    options = {"time": "at", "half_life": "1d", "block_rows": 64}
    whole, _ = ingested(
        client, write_timed(tmp_path / "e.parquet", edges, times), tmp_path / "one", **options
    )
    for part in range(5):
        some = slice(8000 * part, 8000 * part + 8000)
        write_timed(tmp_path / "in" / f"{part}.parquet", edges[some], times[some])
    small = IngestSizes(1 << 11, 1 << 20, 1 << 11, "int")
    with patch.object(IngestSizes, "for_memory", return_value=small):
        cut, _ = ingested(client, tmp_path / "in", tmp_path / "two", **options)
    assert full_weights_of(cut) == full_weights_of(whole)


def test_an_age_is_never_negative_and_no_weight_vanishes() -> None:
    decay = Decay(HalfLife(1.0, has_unit=False), now=10.0)
    found = decay.apply(np.array([12.0, 10.0, 8.0, -1e6]), np.array([3.0, 3.0, 4.0, 1.0]))
    assert found.tolist() == [3.0, 3.0, 1.0, 1 / LARGEST_WEIGHT]


def test_bad_times_are_bad_rows(tmp_path: Path, client: distributed.Client) -> None:
    (tmp_path / "e.csv").write_text(
        "a,b,at\n1,2,2026-01-01\n2,3,\n3,4,yesterday\n4,5,nan\n5,6,1767225600000\n6,7,2026-01-01\n"
    )
    options = {"time": "at", "half_life": "30d"}
    message = message_of(client, tmp_path / "e.csv", tmp_path / "a", **options)
    assert "e.csv, row 3: the time is missing" in message
    assert "--on-bad-edges quarantine" in message
    graph, report = ingested(
        client, tmp_path / "e.csv", tmp_path / "b", on_bad_edges="quarantine", **options
    )
    assert graph.edges == 2
    assert report["rows_rejected"] == 4
    assert [(bad["row"], bad["time"], bad["reason"]) for bad in quarantined(graph)] == [
        (3, None, "the time is missing"),
        (4, "yesterday", "the time is not a number, a date or a timestamp"),
        (5, "nan", "the time is not finite"),
        (6, "1767225600000", "the time is not in seconds since 1970"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "at"}, r"time and half_life belong together.*Give both or none"),
        ({"half_life": "30d"}, r"time and half_life belong together"),
        ({"as_of": "2026-01-01"}, r"as_of is the time up to which ages are counted: give time"),
        ({"time": "at", "half_life": "30x"}, r"half_life is '30x': write a positive number"),
        ({"time": "at", "half_life": "0d"}, r"half_life is '0d': write a positive number"),
        ({"time": "at", "half_life": "1d", "as_of": "soon"}, r"as_of is 'soon'.*Write a date"),
        ({"time": "at", "half_life": 5, "as_of": "2026-01-01"}, r"as_of is '2026-01-01'.*number"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        figrl.ingest(tmp_path / "e.parquet", store=tmp_path / "store", **options)


def test_columns_that_hold_no_times_are_refused(tmp_path: Path, client: distributed.Client) -> None:
    moments = write_timed(tmp_path / "e.parquet", [(1, 2)], [MONDAY])
    message = message_of(client, moments, tmp_path / "s", time="at", half_life="30")
    assert "the time column 'at' is timestamp" in message
    assert "give the half-life a unit, such as 30d" in message
    flags = write_timed(tmp_path / "f.parquet", [(1, 2)], [True])
    message = message_of(client, flags, tmp_path / "s", time="at", half_life="30d")
    assert "it has to hold timestamps, dates or numbers: cast it." in message
    assert "no column 'when'" in message_of(
        client, flags, tmp_path / "s", time="when", half_life="30d"
    )
    (tmp_path / "e.txt").write_text("1 2 3\n")
    with pytest.raises(BadInputError, match=r"no column names.*--time cannot be used"):
        ingested(client, tmp_path / "e.txt", tmp_path / "s", time="at", half_life="30d")


def test_plain_values_of_yaml_are_accepted() -> None:
    options = IngestOptions(time="at", half_life=30, as_of=1000)
    assert (options.half_life, options.as_of) == ("30", "1000")
    dated = IngestOptions(time="at", half_life="30d", as_of=date(2026, 1, 2))
    assert dated.significant()["as_of"] == "2026-01-02"
