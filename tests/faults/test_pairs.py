"""A few pairs of each job; `python -m tests.faults.pairs --count 100` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.faults.pairs import KINDS, Pairs, count_pairs


@pytest.fixture(scope="module")
def pairs(client, tmp_path_factory):
    with Pairs(tmp_path_factory.mktemp("pairs"), client) as pairs:
        yield pairs


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_at_once_one_result_is_whole(pairs, kind):
    ended = count_pairs(pairs, kind, 2)
    assert ended.total() == 2
    assert set(ended) <= {(0, 0), (0, 2), (0, 6)}
