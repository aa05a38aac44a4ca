"""The study on the one graph of the paper that a library brings along."""

from __future__ import annotations

import csv
import gzip
import re
from html.parser import HTMLParser
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from figrl.engine.session import Session
from figrl.errors import BadInputError, ConfigError
from figrl.learn.spec import EmbedOptions
from figrl.study import paper
from figrl.study.experiment import Study
from figrl.study.graphs import largest_component
from figrl.study.page import Section, Table, render, write_csv
from figrl.study.parts.clustering import METHODS, PRESETS, SETTING, Clustering
from figrl.study.parts.unseen import draw_held_out, learn_without
from figrl.study.peers import RIVALS
from figrl.study.run import PARTS, run_study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    graph = nx.karate_club_graph()
    with gzip.open(folder / "karate.txt.gz", "wt") as file:
        file.write("# Zachary\n")
        file.writelines(f"{a}\t{b}\n" for a, b in graph.edges())
    with gzip.open(folder / "karate.labels.tsv.gz", "wt") as file:
        file.writelines(f"{node}\t{club}\n" for node, club in graph.nodes("club"))
    return folder


@pytest.fixture(scope="module")
def studied(client, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    parts = [part for part in PARTS if part != "timing"]
    return out, parts, run_study(parts, data, out, Session(client), quick=True)


def rows_of(report, name):
    path = next(path for path in report["tables"] if path.endswith(f"/{name}.csv"))
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_of_karate_are_those_that_are_known(studied):
    _, _, report = studied
    for row in rows_of(report, "clustering"):
        # The best split into two parts, and the paper's figure, which no such split has.
        found = [float(row[f"preset {preset}"]) for preset in PRESETS]
        assert max(found) == pytest.approx(0.3715, abs=2e-3)
        # Its k of 200 is more than karate has nodes.
        assert row[f"preset {SETTING}"] == ""
        assert float(row["printed"]) == 0.41
        assert row["reached by"] == "none"
        assert float(row["best of all"]) == pytest.approx(0.538, abs=2e-3)
        assert float(row["NMI"]) > 0.8
    for row in rows_of(report, "clustering-rivals-modularity"):
        # A quick study measures one of the rivals.
        assert float(row["LINE"]) > 0.3
        assert row["DeepWalk"] == ""
        assert float(row["DeepWalk, printed"]) in (0.396, 0.430)
    holes = {row["method"]: row for row in rows_of(report, "holes")}
    # Two of the paper's three (3, 14, 20), and another that links both clubs.
    assert {3, 20} < set(map(int, holes["RDS"]["ids"].split()))
    graph = nx.karate_club_graph()
    for node in map(int, holes["RDS"]["ids"].split()):
        assert len({graph.nodes[other]["club"] for other in graph[node - 1]}) == 2
    for method in ("HAM", "constraint", "PageRank", "betweenness", "AP_BICC"):
        assert holes[method]["ids"] == paper.KARATE_HOLES[method]
    for method in ("PageRank", "betweenness"):
        for model in ("LT", "IC"):
            assert float(holes["RDS"][model]) > float(holes[method][model])


def test_the_cost_falls_with_columns_and_with_depth(studied):
    _, _, report = studied
    sizes = [float(row["relative cost"]) for row in rows_of(report, "projection-size-all")]
    depths = [float(row["relative cost"]) for row in rows_of(report, "projection-depth-all")]
    assert all(cost > 0 for cost in sizes)
    assert sizes[-1] < sizes[0]
    assert depths[-1] < depths[0]
    (means,) = rows_of(report, "projection-size")
    assert [means["graph"], means["k"]] == ["karate", "3"]
    assert [float(means[column]) for column in ("sketch columns d = 50", "100")] == sizes


def test_what_was_found_is_not_measured_again(client, data, studied):
    out, parts, first = studied
    results = sorted((out / "quick" / "results").rglob("*.json"))
    assert len(results) > 20
    times = {path: path.stat().st_mtime_ns for path in results}
    lost = next(path for path in results if path.parent.name == "karate")
    lost.unlink()
    again = run_study(parts, data, out, Session(client), quick=True)
    changed = {path for path in results if path.stat().st_mtime_ns != times[path]}
    assert changed == {lost}
    assert again["tables"] == first["tables"]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value:
                self.addresses.append(value)


def test_the_page_needs_nothing_else(studied):
    _, _, report = studied
    text = Path(report["page"]).read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "script" not in page.tags
    assert page.tags.count("figure") == page.tags.count("figcaption") >= 8
    # Ids of several pictures on one page have to differ.
    ids = re.findall(r'<[a-z]+ id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_bad_calls_say_what_to_do(client, data, tmp_path):
    session = Session(client)
    with pytest.raises(ConfigError, match=r"no part 'colours'.*clustering"):
        run_study(["colours"], data, tmp_path, session)
    with pytest.raises(ConfigError, match="--repeats is 0"):
        run_study(["karate"], data, tmp_path, session, repeats=0)
    with pytest.raises(BadInputError, match="none of the graphs"):
        run_study(["karate"], tmp_path, tmp_path / "out", session)


def test_results_of_other_files_are_not_mixed(client, data, studied, tmp_path):
    out, _, _ = studied
    with gzip.open(tmp_path / "karate.txt.gz", "wt") as file:
        file.write("0\t1\n1\t2\n")
    with pytest.raises(ConfigError, match=r"are of another karate.txt.gz"):
        run_study(["karate"], tmp_path, out, Session(client), quick=True)


def test_nodes_held_back_come_back(client, tmp_path):
    pairs = np.array(nx.karate_club_graph().edges())
    ids = np.unique(pairs)
    held = draw_held_out(ids, 0.2, seed=3)
    assert held.size == 7
    found = learn_without(tmp_path, pairs, held, EmbedOptions(dim=3), Session(client))
    places = found.positions(ids)
    assert (places >= 0).all()
    assert set(held) <= set(found.new_ids)
    assert set(found.ids).isdisjoint(found.new_ids)
    both = np.concatenate([found.ids, found.new_ids])
    np.testing.assert_array_equal(both[places], ids)
    lengths = np.linalg.norm(found.new_vectors, axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-5)
    assert found.positions(np.array([999])).tolist() == [-1]


def test_the_largest_component_alone_is_left():
    pairs = np.array([[1, 2], [7, 8], [8, 9], [9, 7], [20, 21]])
    assert largest_component(pairs).tolist() == [[7, 8], [8, 9], [9, 7]]


def test_tables_keep_all_digits_in_csv_and_few_on_the_page(tmp_path):
    table = Table(
        "one", "A <table>", ("name", "value"), [["a", 1 / 3], ["b", None], ["c", 12345.6]]
    )
    text = write_csv(tmp_path, table).read_text()
    assert text == "name,value\na,0.3333333333333333\nb,\nc,12345.6\n"
    page = render("Title", ["lead"], [Section("s", "S & T", ["<b>"], [table])])
    assert "<td class=n>0.333</td>" in page
    assert "<td class=n>12,346</td>" in page
    assert "A &lt;table&gt;" in page
    assert "&lt;b&gt;" in page


def test_the_papers_own_setting_stands_beside_its_figures(client, tmp_path):
    graph = nx.gnm_random_graph(260, 900, seed=1)
    for name, chosen in (("polblogs", graph), ("karate", nx.karate_club_graph())):
        with gzip.open(tmp_path / f"{name}.txt.gz", "wt") as file:
            file.writelines(f"{a}\t{b}\n" for a, b in chosen.edges())
    part = Clustering(Study(tmp_path, tmp_path / "out", Session(client)))
    keys = part.keys()
    assert [key for key in keys if key[1] == SETTING] == [("polblogs", SETTING, 200)]
    found = part.measure("polblogs", SETTING, 200)
    assert found["sketch_size"] == 20_000
    other = found | {method: found[method] | {"modularity": -0.25} for method in METHODS}
    results = {
        key: {"skipped": "120 s"} if key[1] in RIVALS else found if key[1] == SETTING else other
        for key in keys
    }
    [first, *_] = part.section(results).tables
    column = list(first.columns).index(f"preset {SETTING}")
    shown = {(row[0], row[1]): row[column] for row in first.rows}
    for method in METHODS:
        assert shown["polblogs", method] == found[method]["modularity"] > -0.25
        assert shown["karate", method] is None
