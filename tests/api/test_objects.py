"""What a notebook has: one call to vectors, and objects that search, compare, draw and show."""

from __future__ import annotations

import gc
import inspect
import pickle
import xml.etree.ElementTree as ET

import dask
import matplotlib as mpl
import numpy as np
import pytest
from IPython.display import HTML

import figrl
from figrl.api.embedding import FoldInArguments
from figrl.api.progress import NotebookScreen
from figrl.api.words import python_words
from figrl.engine.progress import Progress
from figrl.engine.screens import Bar
from figrl.engine.stage import StageResult
from figrl.errors import BadInputError, ConfigError, ResourceError
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.words import yaml_words
from figrl.serve.fold_in import FoldInOptions
from tests.learn.test_accurate import planted_edges

mpl.use("Agg")


@pytest.fixture(scope="module")
def run(single):
    return figrl.embed(planted_edges(3), dim=8, client=single)


@pytest.mark.parametrize(
    ("call", "model"),
    [
        (figrl.ingest, IngestOptions),
        (figrl.embed, EmbedOptions),
        (figrl.fold_in, FoldInOptions),
    ],
)
def test_signatures_have_the_names_and_defaults_of_the_models(call, model):
    parameters = inspect.signature(call).parameters
    own = {"store", "edges", "graph", "out", "run", "overwrite", "publish", "client"}
    own |= {"memory_limit", "progress"}
    options = {name: one.default for name, one in parameters.items() if name not in own}
    assert options == {name: field.default for name, field in model.model_fields.items()}
    assert call.__doc__.count("Examples") == 1


def test_arguments_of_the_method_are_those_of_the_call():
    assert set(FoldInArguments.__annotations__) == set(FoldInOptions.model_fields)


def test_vectors_in_the_forms_of_other_libraries(run):
    vectors = np.asarray(run)
    ids = list(run.ids)
    assert run.ids[-1] == ids[-1]
    assert run.ids[2:5] == ids[2:5]
    np.testing.assert_array_equal(np.asarray(run.ids), ids)
    np.testing.assert_array_equal(run[ids[3]], vectors[3])
    frame = run.to_pandas()
    assert frame.index.tolist() == ids
    np.testing.assert_array_equal(frame.to_numpy(), vectors)
    lazy = run.to_dask()
    np.testing.assert_array_equal(lazy.compute().set_index("id").to_numpy(), vectors)
    table = run.to_arrow()
    assert table["id"].to_pylist() == ids
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), vectors)
    labelled = run.to_xarray()
    assert labelled.chunks is not None
    np.testing.assert_array_equal(labelled.sel(node=labelled["id"] == ids[7]), vectors[[7]])


def test_what_does_not_fit_memory_is_refused(run, monkeypatch):
    monkeypatch.setattr("figrl.api.tables.human_bytes", lambda size: f"{size} bytes")
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("", (), {"available": 10}))
    with pytest.raises(ResourceError, match=r"10 bytes of memory are free.*to_dask"):
        np.asarray(run)


def test_neighbours_of_an_id_and_of_a_vector(run):
    node = run.ids[0]
    by_id = run.neighbors(node, 3)
    by_vector = run.neighbors(run[node], 4)
    assert by_vector["neighbor"][0] == node
    assert by_vector["neighbor"].tolist()[1:] == by_id["neighbor"].tolist()
    assert run.neighbors([node, run.ids[1]], 2)["id"].tolist() == [node, node, *[run.ids[1]] * 2]
    with pytest.raises(ValueError, match="has 3 dimensions"):
        run.neighbors(np.zeros(3))


def test_clusters_colour_a_picture(run, single):
    labels = run.cluster(3, client=single)
    assert labels.index.tolist() == list(run.ids)
    assert set(labels) == {0, 1, 2}
    axes = run.plot(color=labels, labels=[run.ids[0]], nodes=50)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2"]
    assert sum(len(part.get_offsets()) for part in axes.collections) == 50
    assert len(run.plot(ax=axes).texts) <= 1


def test_values_in_the_order_of_the_ids_colour_a_picture(run, single):
    labels = run.cluster(3, client=single)

    def drawn(color):
        return {
            part.get_label(): len(part.get_offsets()) for part in run.plot(color=color).collections
        }

    counts = {str(name): count for name, count in labels.value_counts().items()}
    assert drawn(labels) == drawn(labels.to_numpy()) == drawn(labels.tolist()) == counts
    axes = run.plot(color=np.linspace(0, 1, run.shape[0]))
    np.testing.assert_array_equal(axes.collections[0].get_array(), np.linspace(0, 1, run.shape[0]))
    with pytest.raises(
        ValueError, match=r"color has 2 values, and the run has \d+ nodes: give one"
    ):
        run.plot(color=[1, 2])
    with pytest.raises(TypeError, match=r"color is a value for each node, .*; not a str\."):
        run.plot(color="red")
    with pytest.raises(KeyError, match=r"color has no value for \d+: .*color\.to_numpy\(\)"):
        run.plot(color=labels.iloc[:5])


def test_a_run_is_a_mapping_of_ids_to_vectors(run, monkeypatch):
    ids = list(run.ids)
    assert run.shape == run.vectors.shape == np.asarray(run).shape
    assert ids[3] in run
    assert np.int64(ids[3]) in run
    assert [999_999 in run, "x" in run, "3" in run] == [False] * 3
    monkeypatch.setattr("figrl.serve.embedding._IDS_AT_A_TIME", 7)
    assert list(run) == ids


def test_names_of_nodes_with_sides(single):
    edges = figrl.ingest([(1, 2), (3, 1), (3, 2)], kind="bipartite", client=single)
    run = figrl.embed(edges, dim=2, client=single)
    assert list(run) == [(1, "source"), (3, "source"), (1, "target"), (2, "target")]
    assert all(node in run for node in run)
    assert [1 in run, (2, "target") in run, (2, "source") in run] == [True, True, False]
    told = r"Id 1 is on both sides.* meant: side='source' or side='target'\.$"
    for call in (lambda: run[1], lambda: run.lookup([1]), lambda: run.neighbors(1)):
        with pytest.raises(ConfigError, match=told):
            call()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda run: run[:3], r"takes one id, or \(id, side\), not a slice; rows are run\.vectors"),
        (lambda run: run[[1, 2]], r"not a list; several are run\.lookup\(\[\.\.\.\]\)"),
        (lambda run: run[np.arange(2)], "not an ndarray; several"),
        (lambda run: run[None], "not None; several"),
        (lambda run: run[1.5], "not a float; several"),
        (lambda run: [1] in run, "not a list; several"),
        (lambda run: run.lookup(3), r"ids have to be a sequence; write \[3\] for one\."),
        (lambda run: run.lookup(np.int64(3)), r"write \[3\] for one"),
        (lambda run: run.lookup(None), "ids have to be a sequence, such as a list, not None"),
        (lambda run: run.lookup([None]), r"one of these is missing \(None\)"),
        (lambda run: run.neighbors(None), "an id, a sequence of ids, or a vector, not None"),
        (lambda run: run.neighbors([0.1] * 8), r"floating-point numbers.*numpy\.asarray"),
        (lambda run: run.compare(np.asarray(run)), "compare takes another run, .* not an ndarray"),
        (lambda run: run.neighbors(1, client="tcp://a:1"), r"distributed\.Client\('tcp://a:1'\)"),
        (lambda run: figrl.ingest([(1, 2)], client="tcp://a:1"), "has to be a distributed.Client"),
        (lambda run: figrl.embed([(1, 2)], client=7), "distributed.Client, not an int: give one"),
        (lambda run: run.fold_in([(1, 2)], client="a:1"), r"not a str: give distributed\.Client"),
        (lambda run: figrl.fold_in(run, [(1, 2)], client="a:1"), r"distributed\.Client\('a:1'\)"),
        (lambda run: figrl.embed(run), r"learnt already.*give run\.graph"),
    ],
)
def test_what_is_no_id_and_no_run_is_refused_in_words(run, call, told):
    with pytest.raises(TypeError, match=told):
        call(run)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_neighbours_are_at_least_one(run, count):
    told = f"^count is {count}. It has to be a whole number from 1 on"
    for node in (run.ids[0], run[run.ids[0]]):
        with pytest.raises(ConfigError, match=told):
            run.neighbors(node, count)
    with pytest.raises(ConfigError, match=told):
        figrl.neighbors(run.graph.store, [run.ids[0]], count=count)


def test_ids_of_the_wrong_type_are_not_there(run):
    with pytest.raises(KeyError, match=r"the ids of this graph are integers: .*1\.5"):
        run.lookup([1.5])
    with pytest.raises(KeyError, match="1 of the ids is not in the graph: 999999"):
        run.lookup([run.ids[0], 999_999])
    with pytest.raises(KeyError, match="2 of the ids are not in the graph: 999998, 999999"):
        run.lookup([999_999, 999_998])


def test_a_run_compared_with_others(run, single):
    same = run.compare(run)
    assert same.common == len(run.ids)
    assert same.mean == pytest.approx(1, abs=1e-5)
    other = figrl.embed(run.graph, dim=8, seed=5, client=single)
    found = run.compare(other)
    assert found.quantiles[0.01] <= found.quantiles[0.5] <= 1 + 1e-6
    least = min(0.9, np.floor(10 * found.cosines.min()) / 10)
    assert f"Nodes by cosine, from {least:g} to 1" in found._repr_html_()
    assert "Nodes by cosine, from 0.9 to 1" in same._repr_html_()
    moved = found.moved(3)
    assert moved["cosine"].tolist() == np.sort(found.cosines)[:3].tolist()
    assert moved["id"][0] == run.ids[int(found.rows[found.cosines.argmin()])]
    small = figrl.embed(run.graph, dim=4, client=single)
    with pytest.raises(ConfigError, match="same dim"):
        run.compare(small)


def test_new_nodes_without_a_file(run, single):
    known = run.ids[:2]
    folded = run.fold_in([(901, known[0]), (900, known[1])], client=single, degrees="stored")
    assert folded.ids == [900, 901]
    np.testing.assert_array_equal(folded.to_pandas().loc[901], folded.vectors[1])
    folder = folded.path
    assert folder.exists()
    del folded
    gc.collect()
    assert not folder.exists()


def test_a_new_node_that_nothing_links_to_the_graph_is_a_warning(run, single):
    known = run.ids[0]
    told = r"1 of 2 new nodes has no edge to a node of the graph: its vector is zero\. The new node"
    with pytest.warns(UserWarning, match=told) as warned:
        folded = run.fold_in([(900, known), (901, 999_999)], client=single)
    assert warned[0].filename == __file__
    assert not folded[901].any()
    with pytest.warns(UserWarning, match=told) as warned:
        figrl.fold_in(run, [(900, known), (901, 999_999)], client=single)
    assert warned[0].filename == __file__


def test_a_new_node_by_its_id(run, single):
    folded = run.fold_in([(901, run.ids[0]), (900, run.ids[1])], client=single)
    np.testing.assert_array_equal(folded[np.int64(901)], folded.vectors[1])
    assert list(folded) == [900, 901]
    assert 900 in folded
    assert [902 in folded, "900" in folded, None in folded] == [False] * 3
    with pytest.raises(KeyError, match="902 is none of the new nodes"):
        folded[902]
    with pytest.raises(TypeError, match="id of one new node, not a slice"):
        folded[:2]


def test_a_temporary_store_lives_as_long_as_what_is_made_of_it(single):
    graph = figrl.ingest([(1, 2), (2, 3), (3, 1), (3, 4)], client=single)
    store = graph.store
    assert pickle.loads(pickle.dumps(graph)).keep is None
    run = figrl.embed(graph, dim=2, client=single)
    del graph
    gc.collect()
    assert run[4].shape == (2,)
    del run
    gc.collect()
    assert not store.exists()


def test_embed_takes_a_graph_a_store_and_edge_files(single, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n1,2\n2,3\n3,1\n3,4\n")
    store = tmp_path / "store"
    first = figrl.embed(path, store=store, dim=2, client=single)
    figrl.ingest([(1, 2), (2, 3), (3, 4)], store=store, client=single)
    of_graph = figrl.embed(first.graph, dim=2, client=single)
    assert of_graph.run == first.run
    latest = figrl.embed(store, dim=2, client=single)
    assert latest.graph.edges == 3
    assert figrl.embed(figrl.open_store(store), dim=2, client=single).run == latest.run
    with pytest.raises(ConfigError, match="leave store out"):
        figrl.embed(first.graph, store=tmp_path / "other")
    with pytest.raises(BadInputError, match=r"figrl\.ingest\(edges, store="):
        figrl.embed(tmp_path / "nothing")
    with pytest.raises(TypeError, match="a graph, a store or edges"):
        figrl.embed()


def test_a_path_at_which_there_is_nothing(tmp_path):
    with pytest.raises(BadInputError, match=r"The file nosuch\.csv does not exist\. .*looked for"):
        figrl.embed("nosuch.csv")
    with pytest.raises(BadInputError, match=r"nothing does not exist: there are neither edges nor"):
        figrl.embed(tmp_path / "nothing")


def test_the_dimensions_of_a_small_graph(single):
    ring = [(i, (i + 1) % 5) for i in range(5)]
    told = r"^dim is 128{}, but the graph has 5 nodes: give at most 4\.$"
    with pytest.raises(ConfigError, match=told.format(" by default")):
        figrl.embed(ring, client=single)
    with pytest.raises(ConfigError, match=told.format("")):
        figrl.embed(ring, dim=128, client=single)
    with (
        dask.config.set({"figrl.embed.dim": 64}),
        pytest.raises(ConfigError, match=r"^dim is 64, .* at most 4\. Set by dask\.config: dim"),
    ):
        figrl.embed(ring, client=single)
    with pytest.raises(ConfigError, match=r"^The graph has one node only, and dim has to be below"):
        figrl.embed([(1, 1)], dim=2, client=single)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda run: figrl.embed(run.graph, kind="directed"),
            r"'kind'\. .*ingest\(edges, kind=\.\.\.\)",
        ),
        (
            lambda run: figrl.embed(run.graph, dims=2),
            r"embed\(\) has .* 'dims'\. Did you mean 'dim'\?$",
        ),
        (lambda run: figrl.ingest([], wieght=2), "Did you mean 'weight'"),
        (lambda run: figrl.ingest([], dim=2), r"'dim'\. It belongs to figrl\.embed\."),
        (lambda run: figrl.fold_in(run, [], degree="x"), "Did you mean 'degrees'"),
        (lambda run: run.fold_in([], degree="x"), r"fold_in\(\) has no .* Did you mean 'degrees'"),
        (lambda run: run.neighbors(1, amoung="all"), "Did you mean 'among'"),
        (lambda run: figrl.neighbors("s", [1], cuont=1), "Did you mean 'count'"),
        (lambda run: figrl.open_store("s", zzz=1), r"has no argument 'zzz'\. It has: store\."),
    ],
)
def test_misspelt_arguments_are_answered_with_what_was_meant(run, call, told):
    with pytest.raises(TypeError, match=told):
        call(run)


def test_objects_show_themselves(run, single):
    folded = run.fold_in([(900, run.ids[0])], client=single)
    store = figrl.open_store(run.graph.store)
    for shown in (run, run.graph, store, folded, run.compare(run)):
        page = ET.fromstring(f"<div>{shown._repr_html_()}</div>")
        assert page.find("table") is not None
        assert repr(shown).startswith("<")
        assert len(repr(shown)) < 300
    assert "white-space:normal;max-width:40em" in run._repr_html_()
    assert "eigenvalues are right" in run._repr_html_()
    assert len(ET.fromstring(f"<div>{run._repr_html_()}</div>").findall(".//rect")) == 7


def test_one_bar_for_a_call(monkeypatch):
    drawn = []

    class Display:
        def update(self, page):
            drawn.append(page.data)

    def display(page: HTML, **_):
        drawn.append(page.data)
        return Display()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("figrl.api.progress._REDRAW_SECONDS", 0)
    bar = Bar(Progress("ingest"), NotebookScreen(), worded=python_words)
    bar.note("Give --weight none.")
    for name in ("scan", "ids", "build"):
        result = StageResult(name, 2)
        bar.started(result)
        result.stats = {"0": {}, "1": {}}
        bar.finished(result)
    bar.end("done")
    shares = [float(ET.fromstring(page).find("progress").get("value")) for page in drawn]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert "weight=&#x27;none&#x27;" in drawn[-1]


def test_progress_on_standard_error(single, capsys):
    figrl.ingest([(1, 2)], client=single, progress=True)
    assert "ingest: done in" in capsys.readouterr().err
    figrl.ingest([(1, 2)], client=single)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Give --weight 'my score' or --weight 3.", "Give weight='my score' or weight=3."),
        ("With --half-life 30d", "With half_life='30d'"),
        ("--dim is 5: lower --sketch-size (or --depth)", "dim is 5: lower sketch_size (or depth)"),
        ("--publish yes, --out or --overwrite", "publish=True, out or overwrite=True"),
        ("Make one: figrl ingest EDGES --store /a", "Make one: figrl.ingest(edges, store='/a')"),
        ("See figrl verify --store /a --repair", "See figrl verify --store /a --repair"),
        ("take --representation unit", "take representation='unit'"),
    ],
)
def test_options_become_arguments(text, expected):
    assert python_words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Give --weight 'my score' or --kind bipartite.",
            "Give ingest.weight: 'my score' or ingest.kind: bipartite.",
        ),
        (
            "Lower --sketch-size (or raise --epsilon)",
            "Lower embed.sketch_size (or raise embed.epsilon)",
        ),
        ("Raise --memory-limit to 990MB", "Raise memory_limit to 990MB"),
        ("See figrl verify --store /a --repair, --publish-anyway", None),
    ],
)
def test_errors_in_the_keys_of_a_configuration(text, expected):
    assert yaml_words(text) == (expected or text)
