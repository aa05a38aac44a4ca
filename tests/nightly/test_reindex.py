"""Nights: what changed is published, what is wrong is refused, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from figrl import embed, fold_in, ingest, neighbors
from figrl.engine.session import Session
from figrl.errors import BadInputError, ConfigError, GateError
from figrl.learn.spec import EmbedOptions
from figrl.nightly.config import example_config, read_reindex_config, source_files
from figrl.nightly.reindex import run_reindex
from figrl.serve.embedding import open_store
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.overlay_update import run_fold_publish
from figrl.serve.publish import history, roll_back
from figrl.serve.runs import run_embed
from figrl.serve.status import store_status
from figrl.store.files import read_json
from tests.learn.test_accurate import planted_edges
from tests.reference import write_edges

BASE = {"embed": {"dim": 6, "smoothing": 3}, "keep": {"runs": 3}}


class Nights:
    """A folder that grows by a partition a night, and the store that follows it."""

    def __init__(self, folder: Path, client, **options):
        self.folder, self.client, self.options = folder, client, options
        self.store = folder / "store"

    def write(self, day: int, edges, **columns) -> Path:
        path = self.folder / "edges" / f"date=2026-11-{day:02d}" / "part.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pairs = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
        table = pa.table({"source": pairs[:, 0], "target": pairs[:, 1], **columns})
        pq.write_table(table, path)
        return path

    def config(self, **options) -> Path:
        path = self.folder / "night.yaml"
        content = {"store": "store", "sources": "edges", **BASE, **self.options, **options}
        path.write_text(yaml.safe_dump(content))
        return path

    def run(self, *, anyway: bool = False, **options):
        config = read_reindex_config(self.config(**options))
        return run_reindex(config, Session(self.client), publish_anyway=anyway)


@pytest.fixture
def nights(client, tmp_path):
    nights = Nights(tmp_path, client)
    nights.write(1, planted_edges(3))
    return nights


def test_nights_follow_each_other(nights):
    first = nights.run()
    assert not first["nothing_to_do"]
    assert first["alignment"] is None
    assert nights.run() | {"seconds": 0} == nights.run() | {"seconds": 0}
    again = nights.run()
    assert again["nothing_to_do"]
    assert again["run"] == first["run"]
    assert len(list((nights.store / "runs").iterdir())) == 1
    nights.write(2, [(i, i + 1) for i in range(30)])
    second = nights.run()
    assert second["alignment"]["reference"] == first["run"]
    assert second["alignment"]["mean_cosine"] > 0.95
    assert open_store(nights.store).embedding().run == second["run"]
    assert [e["action"] for e in history(open_store(nights.store).paths)] == ["published"] * 2
    for name in ("report.html", "gates.json", "checks.json", "log.jsonl"):
        assert (nights.store / "runs" / second["run"] / name).stat().st_size > 0
    metrics = (nights.store / "metrics.prom").read_text()
    labels = f'graph="{second["graph"]}",run="{second["run"]}",store="{nights.store}"'
    assert f"figrl_run_info{{{labels}}} 1.0\n" in metrics
    assert f'figrl_last_job_exit_code{{store="{nights.store}"}} 0.0\n' in metrics
    assert roll_back(nights.store)["current"] == first["run"]


def test_only_so_many_runs_are_kept(nights):
    runs = [nights.run()["run"]]
    for day in range(2, 6):
        nights.write(day, [(day * 7 + i, i + day) for i in range(10)])
        runs.append(nights.run()["run"])
    there = {path.name for path in (nights.store / "runs").iterdir()}
    assert there == set(runs[-3:])
    graphs = {path.name for path in (nights.store / "graph").iterdir()} - {"latest"}
    assert len(graphs) == 3


@pytest.mark.parametrize(
    ("gates", "gate"),
    [
        ({}, "edges_change"),
        ({"edges_change": None, "mean_cosine": 0.99999}, "mean_cosine"),
        ({"edges_change": None, "largest_residual": 0.0}, "largest_residual"),
    ],
)
def test_a_gate_refuses(nights, gates, gate):
    edges = planted_edges(3)
    first = nights.run()
    nights.write(1, edges[: len(edges) // 2])
    for _ in range(2):
        with pytest.raises(GateError, match=gate) as caught:
            nights.run(gates=gates)
        assert caught.value.exit_code == 4
    store = open_store(nights.store)
    assert store.embedding().run == first["run"]
    events = history(store.paths)
    assert [e["action"] for e in events] == ["published", "refused"], "recorded once"
    assert gate in events[-1]["gates"]
    assert (nights.store / "runs" / events[-1]["run"] / "report.html").exists()
    assert "figrl_last_job_exit_code" in (nights.store / "metrics.prom").read_text()
    done = nights.run(gates=gates, anyway=True)
    assert done["run"] == events[-1]["run"] == open_store(nights.store).embedding().run


def test_no_rubbish_is_published(nights):
    first = nights.run()
    edges = planted_edges(3)
    weights = np.ones(len(edges))
    weights[17:30] = np.nan
    path = nights.write(1, edges, weight=weights)
    with pytest.raises(BadInputError, match=r"part.parquet, row 18.*weight") as caught:
        nights.run()
    assert caught.value.exit_code == 3
    with pytest.raises(GateError, match="rejected_rows"):
        nights.run(ingest={"on_bad_edges": "quarantine"})
    ids = pa.array([f"n{a}" for a, _ in edges])
    pq.write_table(pa.table({"source": ids, "target": ids[::-1]}), path)
    with pytest.raises(BadInputError, match="ids are string, but those of the published run"):
        nights.run()
    assert open_store(nights.store).embedding().run == first["run"]


def test_nodes_of_the_day_are_served_and_absorbed(nights):
    client, edges = nights.client, planted_edges(3)
    first = nights.run()
    new = nights.folder / "new.parquet"
    rows = np.array([(5000, 1), (5000, 2), (5001, 130), (5002, 5001)])
    pq.write_table(pa.table({"source": rows[:, 0], "target": rows[:, 1]}), new)
    session, config = Session(client), FoldInOptions()
    report = run_fold_publish(nights.store, new, config, session)
    assert report["counts"]["nodes_folded_in"] == 3
    assert run_fold_publish(nights.store, new, config, session)["already_done"]
    with pytest.warns(UserWarning, match="1 of 3 new nodes has no edge to a node of the graph"):
        alone = fold_in(nights.store, new, out=nights.folder / "out.parquet", client=client).table()
    served = open_store(nights.store).embedding()
    assert len(served) == first["nodes"] + 3
    alone_vectors = np.stack(alone["vector"].to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(served.lookup(alone["id"].to_pylist()), alone_vectors)
    both = served.lookup([5001, 7, 5000])
    np.testing.assert_array_equal(both[1], served[7])
    found = neighbors(nights.store, [5000], count=3)["neighbor"].to_pylist()
    assert len(found) == 3
    assert 5000 not in found
    near = neighbors(nights.store, [5001], count=1)["neighbor"].to_pylist()
    assert near == [5002], "it has its vector from there"
    late = nights.folder / "late.parquet"
    pq.write_table(pa.table({"source": [5000], "target": [200]}), late)
    run_fold_publish(nights.store, late, config, session)
    updated = open_store(nights.store).embedding()
    out = nights.folder / "all.parquet"
    with pytest.warns(UserWarning, match="1 of 3 new nodes"):
        expected = fold_in(nights.store, [new, late], out=out, client=client).table()
    assert expected["id"].to_pylist() == [5000, 5001, 5002]
    expected_vectors = np.stack(expected["vector"].to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(updated.lookup([5000, 5001, 5002]), expected_vectors)
    assert not np.allclose(updated[5000], alone_vectors[0])
    np.testing.assert_array_equal(served.lookup([5000])[0], alone_vectors[0])  # still open
    with pytest.raises(ConfigError, match="other options"):
        run_fold_publish(nights.store, late, FoldInOptions(rounds=1), session)
    # Night: one of the nodes is in the sources now, the others are carried over.
    nights.write(2, [(5000, 1), (5000, 2), (5000, 3), *edges[:5]])
    second = nights.run()
    assert second["carried_nodes"] == 2
    served = open_store(nights.store).embedding()
    assert served.overlay is not None
    assert served.rows_of([5000])[0] < served.graph.nodes <= served.rows_of([5001])[0]
    nights.write(3, [(5001, 130), (5002, 5001)])
    assert nights.run()["carried_nodes"] == 0
    assert open_store(nights.store).embedding().overlay is None


def test_bad_edges_of_the_day_are_not_in_the_way(nights):
    client = nights.client
    nights.run()
    session, config = Session(client), FoldInOptions()
    good, bad = nights.folder / "good.parquet", nights.folder / "bad.parquet"
    pq.write_table(pa.table({"source": [5000], "target": [1]}), good)
    pq.write_table(pa.table({"source": [5001, None], "target": [1, 2]}), bad)
    for _ in range(2):
        with pytest.raises(BadInputError, match=r"bad.parquet, row 2"):
            run_fold_publish(nights.store, bad, config, session)
    assert run_fold_publish(nights.store, good, config, session)["counts"]["nodes_folded_in"] == 1
    with pytest.raises(ConfigError, match="recompute"):
        run_fold_publish(nights.store, good, FoldInOptions(known="recompute"), session)
    nights.write(2, [(1, 2), (2, 3)])
    assert nights.run()["carried_nodes"] == 1
    # A rollback hands over the edges; they are folded in with the next ones.
    roll_back(nights.store)
    assert open_store(nights.store).embedding().lookup([5000]).any()
    more = nights.folder / "more.parquet"
    pq.write_table(pa.table({"source": [5002], "target": [3]}), more)
    run_fold_publish(nights.store, more, config, session)
    assert open_store(nights.store).embedding().lookup([5000, 5002]).any(axis=1).all()


def test_a_run_that_was_rolled_back_is_not_published_again(nights):
    first = nights.run()
    nights.write(2, [(i, i + 1) for i in range(30)])
    second = nights.run()
    roll_back(nights.store)
    held = nights.run()
    assert (held["nothing_to_do"], held["run"]) == (True, first["run"])
    nights.write(3, [(i, i + 2) for i in range(30)])
    third = nights.run()
    assert third["alignment"]["reference"] == first["run"]
    roll_back(nights.store, first["run"])
    assert nights.run(anyway=True)["run"] == third["run"] != second["run"]


def test_another_graph_of_the_same_size_is_refused(nights):
    nights.run()
    nights.write(1, [(a + 100_000, b + 100_000) for a, b in planted_edges(3)])
    with pytest.raises(GateError, match="mean_cosine is unknown"):
        nights.run()


def test_a_first_night_that_is_refused_can_be_looked_at(nights):
    with pytest.raises(GateError, match="largest_residual"):
        nights.run(gates={"largest_residual": 0.0})
    status = store_status(nights.store)
    assert status["current"] is None
    assert [event["action"] for event in status["history"]] == ["refused"]
    assert open_store(nights.store).embedding(status["runs"][0]["run"]).graph.nodes > 100


def test_refused_nights_do_not_pile_up(nights):
    nights.run()
    for day in range(2, 6):
        nights.write(day, [(i, i + day) for i in range(40)])
        with pytest.raises(GateError):
            nights.run(gates={"mean_cosine": 1.0}, keep={"runs": 1, "refused": 1})
    assert len(open_store(nights.store).runs) == 2
    assert len(list((nights.store / "graph").iterdir())) == 3, "two graphs, and the latest's name"


def test_an_index_can_be_asked_for_later(nights):
    run = nights.run()["run"]
    again = nights.run(index="approximate")
    assert again["nothing_to_do"]
    assert (nights.store / "runs" / run / "index" / "index.json").exists()


def test_missing_sources_are_in_the_metrics(nights):
    nights.run()
    for path in (nights.folder / "edges").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(BadInputError, match="no edge file"):
        nights.run()
    metrics = (nights.store / "metrics.prom").read_text()
    assert f'figrl_last_job_exit_code{{store="{nights.store}"}} 3.0\n' in metrics


def test_sources_are_chosen_by_patterns_and_days(nights):
    for day in range(2, 6):
        nights.write(day, [(1, 2)])
    for litter in ("part_tmp.parquet", "part_tmp.parquet.crc"):
        (nights.folder / "edges" / "date=2026-11-03" / litter).write_bytes(b"")
    chosen = {"path": "edges", "exclude": ["*_tmp*"]}
    config = read_reindex_config(
        nights.config(sources=[chosen], window={"days": 2, "partition": "date"})
    )
    assert [Path(file).parent.name for file in source_files(config)] == [
        "date=2026-11-04",
        "date=2026-11-05",
    ]
    config = read_reindex_config(
        nights.config(sources=[{**chosen, "include": ["*date=2026-11-03*"]}])
    )
    assert [Path(file).name for file in source_files(config)] == ["part.parquet"]
    config = read_reindex_config(nights.config(sources=[{**chosen, "include": ["*.csv"]}]))
    with pytest.raises(BadInputError, match="none of its files matches"):
        source_files(config)
    config = read_reindex_config(
        nights.config(sources=[chosen], window={"days": 2, "partition": "day"})
    )
    with pytest.raises(BadInputError, match="lies in no folder day=YYYY-MM-DD"):
        source_files(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("store: s", "the key 'sources' is missing"),
        ("store: s\nsources: e\nembd: {}", "no key 'embd'; did you mean 'embed'"),
        ("store: s\nsources: e\ngates: {node_change: 1}", "did you mean 'nodes_change'"),
        ("store: s\nsources: e\nembed: {dimm: 1}", "did you mean 'dim'"),
        ("store: s\nsources: [{path: e, inclde: x}]", "did you mean 'include'"),
        ("store: s\nsources: e\nkeep: {runs: 0}", "keep.runs is 0"),
        ("store: s\nsources: []", "sources"),
        ("- 1", "keys and values"),
        ("{", "cannot be read"),
        ("store: s\nsources: e\nembed: {dim: x}\nkeep: {runs: y}", "embed.dim.*keep.runs"),
    ],
)
def test_mistakes_in_a_configuration(tmp_path, content, message):
    path = tmp_path / "night.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_reindex_config(path)


def test_the_example_is_a_configuration_of_defaults(tmp_path):
    path = tmp_path / "night.yaml"
    path.write_text(example_config().replace("/data/figrl/store", "/data/mine"))
    config = read_reindex_config(path)
    path.write_text("store: /data/mine\nsources: /data/edges")
    short = read_reindex_config(path)
    assert config.model_copy(update={"sources": short.sources}) == short
    assert "# days: 90" in example_config().replace("#   ", "# ")


def test_a_log_is_a_line_of_json_for_each_event(nights):
    run = nights.run()["run"]
    text = (nights.store / "runs" / run / "log.jsonl").read_text()
    events = [yaml.safe_load(line) for line in text.splitlines()]
    assert events[0]["event"] == "started"
    assert events[-1]["event"] == "done"
    finished = [event["stage"] for event in events if event["event"] == "stage finished"]
    assert {"build", "check", "recall"} <= set(finished)
    assert read_json(nights.store / "runs" / run / "checks.json")["neighbour_recall"] > 0.5


class TestEmbedWhereNightsPublish:
    """`figrl embed` on a store that `reindex` has published."""

    def test_it_is_not_published_unless_asked_to(self, nights):
        first = nights.run()
        run = embed(nights.store, dim=4, client=nights.client)
        assert open_store(nights.store).embedding().run == first["run"] != run.run
        assert [e["by"] for e in history(open_store(nights.store).paths)] == ["reindex"]
        with pytest.raises(ConfigError, match="published by figrl reindex, through gates"):
            run_embed(nights.store, EmbedOptions(dim=4), Session(nights.client), publish=True)
        assert roll_back(nights.store, run.run)["current"] == run.run
        roll_back(nights.store, first["run"])
        again = embed(nights.store, dim=4, seed=2, client=nights.client)
        assert open_store(nights.store).embedding().run == first["run"] != again.run

    def test_asked_to_it_goes_through_the_gates_of_the_last_night(self, nights):
        first = nights.run(gates={"largest_residual": None})
        options = {"dim": 6, "smoothing": 3, "seed": 5, "client": nights.client}
        second = embed(nights.store, publish=True, **options)
        assert second.manifest["alignment"]["reference"] == first["run"]
        assert open_store(nights.store).embedding().run == second.run
        assert read_json(second.path / "gates.json")["gates"][0]["passed"]
        assert embed(nights.store, publish=True, **options).run == second.run, "done: not again"
        told = store_status(nights.store)
        assert told["last_attempt"].items() >= {"job": "embed", "result": "nothing to do"}.items()
        assert [(e["action"], e["by"]) for e in told["history"]] == [
            ("published", "reindex"),
            ("published", "embed"),
        ]
        # The next night is stricter; its run is refused, and so is what embed would publish.
        nights.write(2, [(i, i + 1) for i in range(30)])
        with pytest.raises(GateError, match="--publish-anyway"):
            nights.run(gates={"mean_cosine": 1.0})
        with pytest.raises(GateError, match=r"largest_residual|mean_cosine") as caught:
            embed(nights.store, publish=True, **options | {"seed": 6})
        assert "figrl rollback" in str(caught.value)
        assert open_store(nights.store).embedding().run == second.run

    def test_a_store_without_nights_is_published_as_ever(self, client, tmp_path):
        path = write_edges(tmp_path / "edges.parquet", planted_edges(3))
        ingest(path, store=tmp_path / "store", client=client)
        session, dim = Session(client), EmbedOptions(dim=3)
        held = run_embed(tmp_path / "store", dim, session, publish=False)
        assert (held["published"], held["gated"]) == (False, False)
        assert open_store(tmp_path / "store").paths.current_run() is None
        shown = run_embed(tmp_path / "store", dim, session)
        assert (shown["published"], shown["already_done"]) == (True, True)
        assert open_store(tmp_path / "store").embedding().run == held["run"]


def test_the_last_attempt_is_told_beside_the_published_run(nights):
    """Of a night that is refused, one that fails, and one that has nothing to do."""
    first = nights.run()
    attempt = store_status(nights.store)["last_attempt"]
    assert (attempt["job"], attempt["run"], attempt["result"], attempt["reason"]) == (
        "reindex",
        first["run"],
        "published",
        None,
    )
    nights.write(2, [(i, i + 1) for i in range(30)])
    for _ in range(2):
        with pytest.raises(GateError):
            nights.run(gates={"mean_cosine": 1.0})
    told = store_status(nights.store)
    attempt = told["last_attempt"]
    assert (attempt["result"], attempt["exit_code"]) == ("refused", 4)
    assert "mean_cosine" in attempt["reason"]
    assert told["current"] == first["run"] != attempt["run"]
    assert [g["gate"] for g in attempt["gates"] if not g["passed"]] == ["mean_cosine"]
    metrics = (nights.store / "metrics.prom").read_text()
    store = f'store="{nights.store}"'
    assert f'figrl_gate_passed{{gate="mean_cosine",{store}}} 1.0\n' in metrics
    assert f'figrl_last_attempt_gate_passed{{gate="mean_cosine",{store}}} 0.0\n' in metrics
    labels = f'job="reindex",result="refused",run="{attempt["run"]}",{store}'
    assert f"figrl_last_attempt_info{{{labels}}} 1.0\n" in metrics
    assert f"figrl_last_attempt_served{{{store}}} 0.0\n" in metrics
    for path in (nights.folder / "edges" / "date=2026-11-02").iterdir():
        path.write_bytes(b"PAR1 broken")
    for _ in range(2):
        with pytest.raises(BadInputError):
            nights.run()
    told = store_status(nights.store)
    assert told["last_attempt"]["result"] == "failed"
    assert told["last_attempt"]["exit_code"] == 3
    assert "part.parquet" in told["last_attempt"]["reason"]
    assert [e["action"] for e in told["history"]] == ["published", "refused", "failed"]
    assert told["history"][-1]["reason"] == told["last_attempt"]["reason"]
    path.unlink()
    assert nights.run()["nothing_to_do"]
    attempt = store_status(nights.store)["last_attempt"]
    assert (attempt["result"], attempt["run"]) == ("nothing to do", first["run"])
