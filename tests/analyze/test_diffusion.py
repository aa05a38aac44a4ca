"""Both models of diffusion against the enumeration of everything that can happen."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp

from figrl.analyze.adjacency import Adjacency
from figrl.analyze.influence import (
    InfluenceTask,
    influence,
    influence_block,
    runs_in_a_block,
    spread_sums,
)
from figrl.analyze.linear_threshold import root_cycles
from figrl.analyze.live_edges import (
    Forest,
    SeedPools,
    Tally,
    count_reached,
    draw_seeds,
    mixed_in,
    model_key,
)
from figrl.engine.local_runner import LocalRunner
from figrl.engine.runner import ClusterRunner
from figrl.errors import ConfigError
from figrl.store.files import save_array
from tests.analyze.lists import adjacency_of

RUNS = 200_000

SHAPES = {
    "path": (4, [(0, 1), (1, 2), (2, 3)]),
    "star": (5, [(0, 1), (0, 2), (0, 3), (0, 4)]),
    "cycle": (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]),
    "clique and tail": (6, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 4), (4, 5)]),
    "two parts": (7, [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (4, 5)]),
}


def lists_of(shape: str, *, weighted: bool) -> Adjacency:
    nodes, edges = SHAPES[shape]
    matrix = np.zeros((nodes, nodes))
    for i, (a, b) in enumerate(edges):
        matrix[a, b] = matrix[b, a] = 0.5 + 0.75 * ((3 * i) % 4) if weighted else 1.0
    return adjacency_of(sp.csr_array(matrix))


def reached(live: list[tuple[int, int]], seeds: tuple[int, ...]) -> set[int]:
    """Nodes that directed edges lead to."""
    found = set(seeds)
    while new := {b for a, b in live if a in found} - found:
        found |= new
    return found


def exact_cascade(matrix: np.ndarray, seeds: tuple[int, ...], chance: float) -> np.ndarray:
    """Chance of each node to become active: over all sets of undirected edges that are open."""
    edges = [(a, b) for a, b in np.argwhere(matrix) if a < b]
    total = np.zeros(len(matrix))
    for openness in itertools.product([False, True], repeat=len(edges)):
        taken = list(itertools.compress(edges, openness))
        weight = chance ** len(taken) * (1 - chance) ** (len(edges) - len(taken))
        live = taken + [(b, a) for a, b in taken]
        total[list(reached(live, seeds))] += weight
    return total


def exact_threshold(matrix: np.ndarray, seeds: tuple[int, ...]) -> np.ndarray:
    """Chance of each node to become active: over all cells of the cube of thresholds.

    All that matters of a threshold is between which two sums of weights at its node it lies.
    """
    cells = []
    for row in matrix:
        weights = row[row > 0]
        some = (itertools.combinations(weights, k) for k in range(weights.size + 1))
        sums = {sum(chosen) for chosen in itertools.chain.from_iterable(some)}
        cuts = sorted(total / weights.sum() for total in sums) if weights.size else [0.0, 1.0]
        cells.append([(b, b - a) for a, b in itertools.pairwise(cuts)])
    for seed in seeds:
        cells[seed] = [(1.0, 1.0)]
    total = np.zeros(len(matrix))
    degrees = matrix.sum(axis=1)
    for cell in itertools.product(*cells):
        needed = np.array([top for top, _ in cell]) * degrees - 1e-9
        active = np.isin(np.arange(len(matrix)), seeds)
        while (new := active | ((degrees > 0) & (matrix @ active >= needed))).sum() > active.sum():
            active = new
        total[active] += math.prod(width for _, width in cell)
    return total


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seeds", [(0,), (0, 3), (2,)])
def test_thresholds_activate_as_often_as_they_must(shape, seeds, weighted):
    lists = lists_of(shape, weighted=weighted)
    expected = exact_threshold(lists.matrix().toarray(), seeds)
    assert_within_sampling_error(lists, seeds, expected, model="lt")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("seeds", "chance"), [((0,), 0.1), ((0, 3), 0.37), ((2,), 0.8)])
def test_cascades_activate_as_often_as_they_must(shape, seeds, chance):
    lists = lists_of(shape, weighted=False)
    expected = exact_cascade(lists.matrix().toarray(), seeds, chance)
    assert_within_sampling_error(lists, seeds, expected, model="ic", probability=chance)


def activations(lists, seeds, **options) -> np.ndarray:
    """In how many runs each node becomes active, from seeds that stay the same."""
    inside = np.isin(np.arange(lists.nodes), seeds).astype(np.int64)
    times = np.zeros(lists.nodes, np.int64)
    spread_sums(lists, inside, seeds[:1], first_run=0, seed_share=1.0, times=times, **options)
    return times


def assert_within_sampling_error(lists, seeds, expected, **options):
    share = activations(lists, seeds, runs=RUNS, seed=11, **options) / RUNS
    error = np.sqrt(np.abs(expected * (1 - expected)) / RUNS)
    np.testing.assert_array_less(np.abs(share - expected), 4.5 * error + 1e-9)
    assert (share[list(seeds)] == 1).all()


def test_cascades_of_probability_one_and_zero():
    lists = lists_of("two parts", weighted=False)
    all_of_it = activations(lists, [0], model="ic", runs=10, seed=0, probability=1.0)
    np.testing.assert_array_equal(all_of_it, [10, 10, 10, 10, 0, 0, 0])
    nothing = activations(lists, [0], model="ic", runs=10, seed=0, probability=0.0)
    np.testing.assert_array_equal(nothing, [10, 0, 0, 0, 0, 0, 0])
    with pytest.raises(ConfigError, match="from 0 to 1"):
        activations(lists, [0], model="ic", runs=1, seed=0, probability=1.5)


@dataclass(frozen=True)
class RunSums:
    """Sums over runs; those of parts of the runs add up."""

    runs: int
    ratio: float
    ratio_squared: float
    active: float

    def __add__(self, other: RunSums) -> RunSums:
        return RunSums(
            self.runs + other.runs,
            self.ratio + other.ratio,
            self.ratio_squared + other.ratio_squared,
            self.active + other.active,
        )


def spread_ratio(lists, labels, hole: int, **options) -> RunSums:
    """Of one hole alone."""
    own, together = spread_sums(lists, labels, [hole], **options).tolist()
    assert own == together
    return RunSums(options["runs"], *own)


def random_lists(nodes: int = 300, entries: int = 900) -> Adjacency:
    rng = np.random.default_rng(3)
    ends = rng.integers(0, nodes, (2, entries))
    half = sp.coo_array((np.ones(entries), ends), shape=(nodes, nodes)).tocsr()
    return adjacency_of(((half + half.T) > 0).astype(float))


LISTS = random_lists()
LABELS = np.arange(LISTS.nodes) // 30


@pytest.mark.parametrize("model", ["lt", "ic"])
def test_runs_do_not_depend_on_how_they_are_cut(model):
    def of(first: int, runs: int, seed: int = 5) -> RunSums:
        return spread_ratio(
            LISTS, LABELS, 42, model=model, first_run=first, runs=runs, seed=seed, probability=0.3
        )

    whole = of(0, 1000)
    cut = of(0, 1) + of(1, 332) + of(333, 500) + of(833, 167)
    assert (cut.runs, cut.active) == (whole.runs, whole.active)
    assert cut.ratio == pytest.approx(whole.ratio, rel=1e-12)
    assert cut.ratio_squared == pytest.approx(whole.ratio_squared, rel=1e-12)
    assert of(0, 1000) == whole
    assert of(0, 1000, seed=6) != whole
    assert of(1000, 1000) != whole


def test_a_tenth_of_the_cluster_is_drawn_all_different():
    """Without edges, what is active is what was drawn."""
    lists = adjacency_of(sp.csr_array((50, 50)))
    labels = np.repeat([0, 1], [40, 10])
    sums = spread_ratio(lists, labels, 7, model="ic", first_run=0, runs=500, seed=0)
    assert sums == RunSums(500, 0.0, 0.0, 500 * 5.0)
    # Each of twenty has a partner elsewhere, who has no one else to listen to.
    edges = np.zeros((41, 41))
    edges[range(20), range(20, 40)] = edges[range(20, 40), range(20)] = 1
    pairs = adjacency_of(sp.csr_array(edges))
    labels = np.repeat([0, 1, 0], [20, 20, 1])
    sums = spread_ratio(pairs, labels, 40, model="lt", first_run=0, runs=500, seed=0)
    assert sums.active == 500 * 5
    assert sums.ratio == pytest.approx(500 * 2 / 3)


def test_each_member_is_as_likely_to_be_a_seed():
    """The partner of one member has a cluster of its own: its index tells who was drawn."""
    edges = np.zeros((22, 22))
    edges[3, 21] = edges[21, 3] = 1
    lists = adjacency_of(sp.csr_array(edges))
    labels = np.repeat([0, 1], [21, 1])
    sums = spread_ratio(lists, labels, 20, model="lt", first_run=0, runs=40_000, seed=1)
    share = (sums.active - 3 * 40_000) / 40_000
    assert share == pytest.approx(2 / 20, abs=4.5 * math.sqrt(0.1 * 0.9 / 40_000))


@pytest.mark.parametrize("model", ["lt", "ic"])
def test_a_hole_alone_in_its_cluster_and_one_without_edges(model):
    edges = np.zeros((4, 4))
    edges[0, 1] = edges[1, 0] = edges[1, 2] = edges[2, 1] = 1
    lists = adjacency_of(sp.csr_array(edges))
    alone = np.array([0, 1, 1, 2])
    options = {"model": model, "first_run": 0, "runs": 20_000, "seed": 0, "probability": 0.5}
    sums = spread_ratio(lists, alone, 0, **options)
    # Alike for both models: 1 follows with 1/2, then 2 does with 1 or 1/2.
    expected = 0.5 + 0.5 * (1.0 if model == "lt" else 0.5)
    assert sums.ratio / 20_000 == pytest.approx(expected, abs=0.03)
    assert spread_ratio(lists, alone, 3, **options) == RunSums(20_000, 0.0, 0.0, 20_000.0)
    joined = spread_ratio(lists, np.array([0, 1, 1, 0]), 3, **options)
    assert joined.active > 2 * 20_000


@pytest.mark.parametrize("model", ["lt", "ic"])
def test_holes_of_one_run_find_what_each_finds_alone(model):
    """Also two holes of one cluster, and in any order."""
    options = {"model": model, "first_run": 0, "runs": 300, "seed": 4, "probability": 0.25}
    holes = [7, 200, 8, 29]
    together = spread_sums(LISTS, LABELS, holes, **options)
    alone = [spread_sums(LISTS, LABELS, [hole], **options)[0] for hole in holes]
    np.testing.assert_array_equal(together[:-1], alone)
    assert together[-1, 0] == pytest.approx(together[:-1, 0].mean())
    assert together[-1, 2] == pytest.approx(together[:-1, 2].mean())
    other_order = spread_sums(LISTS, LABELS, holes[::-1], **options)
    np.testing.assert_array_equal(other_order[:-1], alone[::-1])


@pytest.mark.parametrize("seed", range(5))
def test_rings_and_trees_are_counted_as_going_from_node_to_node_does(seed):
    """The forest of a run against a walk: sizes, rings, and seeds below other seeds."""
    nodes, run = 40, 3
    rng = np.random.default_rng(seed)
    for _ in range(60):
        heard = rng.integers(0, nodes, nodes).astype(np.int32)
        labels = rng.integers(0, 3, nodes)
        holes = rng.choice(nodes, 4, replace=False).tolist()
        pools = SeedPools.of(labels, holes, share=0.3, key=model_key(seed, "lt"))
        forest = Forest(heard.copy(), *(np.empty(nodes, np.int32) for _ in range(2)))
        seeds = np.empty(nodes, np.int32)
        root_cycles(forest, seeds)
        sums, times = np.zeros((5, 3)), np.zeros(nodes, np.int64)
        count_reached(forest, pools, run, 1, Tally(sums, times, np.zeros(nodes, np.int64), seeds))
        met = np.zeros(nodes, np.int64)
        for place, hole in enumerate(holes):
            pool = np.flatnonzero(labels == labels[hole]).astype(np.int32)
            key = np.uint64(mixed_in(pools.keys[place], np.uint64(run)))
            at, drawn = np.searchsorted(pool, hole), pools.drawn[place]
            count = draw_seeds(pool, at, drawn, key, seeds)
            active = set(seeds[:count].tolist())
            assert count == len(active) == min(pool.size, 1 + max(1, round(0.3 * pool.size)))
            assert hole in active
            assert (labels[list(active)] == labels[hole]).all()
            while new := {v for v in range(nodes) if heard[v] in active} - active:
                active |= new
            met[list(active)] += 1
            inside = int((labels[list(active)] == labels[hole]).sum())
            ratio = (len(active) - inside) / inside
            np.testing.assert_allclose(sums[place], [ratio, ratio**2, len(active)])
        np.testing.assert_array_equal(times, met)


def test_labels_have_to_fit():
    with pytest.raises(ConfigError, match="as many labels as nodes"):
        spread_ratio(LISTS, LABELS[:-1], 0, model="lt", first_run=0, runs=1, seed=0)


@pytest.fixture
def task(tmp_path) -> InfluenceTask:
    folder = tmp_path / "lists"
    folder.mkdir()
    save_array(folder / "starts.npy", LISTS.starts)
    save_array(folder / "neighbours.npy", LISTS.neighbours)
    save_array(tmp_path / "labels.npy", LABELS)
    save_array(tmp_path / "holes.npy", np.array([5, 250, 31]))
    paths = folder, tmp_path / "labels.npy", tmp_path / "holes.npy"
    return InfluenceTask(*paths, "lt", seed=3, probability=0.2)


@pytest.mark.parametrize("model", ["lt", "ic"])
def test_workers_and_threads_find_the_same(client, task, tmp_path, monkeypatch, model):
    task = replace(task, model=model)
    # This process is no worker: its BLAS is left alone.
    monkeypatch.setattr("figrl.engine.worker.WorkerState.limit_blas_threads", lambda _: None)
    with ThreadPoolExecutor(2) as threads:
        local = LocalRunner(tmp_path / "local", threads)
        here = influence(local, task, runs=1100, nodes=300, members=90)
    # Shorter blocks, as of a larger graph.
    there = influence(
        ClusterRunner(client, tmp_path / "cluster"), task, runs=1100, nodes=3_000_000, members=0
    )
    for a, b in zip([*here.holes, here.together], [*there.holes, there.together], strict=True):
        assert (a.runs, round(a.active, 9)) == (b.runs, round(b.active, 9))
        assert a.mean == pytest.approx(b.mean, rel=1e-12)
        assert a.error == pytest.approx(b.error, rel=1e-9)
    ratios = np.array(
        [influence_block(task, run, 1)["sums"] for run in range(1100)],
    )[:, :, 0]
    for place, found in enumerate([*here.holes, here.together]):
        assert found.mean == pytest.approx(ratios[:, place].mean())
        assert found.error == pytest.approx(ratios[:, place].std(ddof=1) / math.sqrt(1100))


def test_blocks_of_runs_are_worth_a_task_and_no_more():
    assert runs_in_a_block(10_000, 317_080, 958) == 470
    assert runs_in_a_block(10_000, 317_080, 190_000) == 215
    assert runs_in_a_block(10_000, 10**9, 10**6) == 1
    # However few runs there are, there is something to share out.
    assert runs_in_a_block(1000, 34, 34) == 63
    assert runs_in_a_block(5, 34, 34) == 1


def test_runs_that_were_done_are_not_done_again(client, task, tmp_path):
    sizes = {"runs": 600, "nodes": 300, "members": 90}
    whole = influence(ClusterRunner(client, tmp_path / "marks"), task, **sizes)
    marks = sorted((tmp_path / "marks" / "influence-lt").iterdir())
    assert len(marks) == 16
    for mark in marks[3:8]:
        mark.unlink()
    again = ClusterRunner(client, tmp_path / "marks")
    assert influence(again, task, **sizes) == whole
    assert [(stage.blocks, stage.reused) for stage in again.results] == [(16, 11)]
