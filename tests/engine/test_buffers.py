"""The operand that threads share: filled once, by all, and never two at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from figrl.engine.buffers import Kept, SharedOperand
from figrl.engine.worker import WorkerState
from tests.waiting import LONG


def test_each_block_is_filled_once_by_whoever_waits():
    operand, filled, together = SharedOperand(), [], threading.Barrier(2)

    def fill(block, out):
        if block < 2:
            together.wait(LONG)
        filled.append((block, threading.get_ident()))
        out[block] = block

    def use(_):
        with operand.use("a", (40, 3), 40, fill) as values:
            return values.sum()

    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(use, range(8)))
    assert sums == [3 * sum(range(40))] * 8
    assert sorted(block for block, _ in filled) == list(range(40))
    assert len({thread for _, thread in filled}) > 1


def test_another_operand_waits_until_the_first_is_not_used():
    operand = SharedOperand()

    def use(key):
        with operand.use(key, (100, 2), 1, lambda _, out: out.fill(key)) as values:
            time.sleep(0.005)
            return bool((values == key).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(use, [1, 2, 1, 3, 2, 1, 3, 3, 2, 1]))


def test_a_failure_reaches_everybody_and_the_next_one_starts_afresh():
    operand = SharedOperand()

    def broken(block, out):
        raise ValueError("no such block")

    with (
        pytest.raises(ValueError, match="no such block"),
        operand.use("a", (4, 1), 2, broken),
    ):
        pass
    with operand.use("a", (4, 1), 2, lambda block, out: out.fill(7)) as values:
        np.testing.assert_array_equal(values, np.full((4, 1), 7))


def test_buffers_are_reused_within_a_thread_and_given_back():
    state = WorkerState()
    first = state.buffer("x", (10, 10))
    second = state.buffer("x", (5, 4))
    assert np.shares_memory(first, second)
    other = ThreadPoolExecutor(1).submit(state.buffer, "x", (10, 10)).result()
    assert not np.shares_memory(first, other)
    state.release_buffers()
    assert not np.shares_memory(state.buffer("x", (10, 10)), first)


def test_no_more_is_kept_than_there_is_room_for():
    kept = Kept()
    assert kept.reserve(60, room=100)
    assert not kept.reserve(50, room=100)
    kept.keep("a", "value", 60)
    assert kept.get("a") == "value"
    assert kept.get("b") is None
    assert kept.reserve(40, room=100)
    # Somebody else had it first: its bytes count once.
    kept.keep("a", "value", 40)
    assert kept.reserve(40, room=100)
    kept.release()
    assert kept.get("a") is None
    assert not kept.reserve(61, room=100), "40 bytes are still set aside"
    kept.give_back(40)
    assert kept.reserve(100, room=100)
