"""The examples of the docstrings run, and give what they say."""

from __future__ import annotations

import doctest

import pytest

import figrl
from figrl.api import calls, embedding, words


@pytest.mark.parametrize("module", [figrl, calls, embedding, words], ids=lambda m: m.__name__)
def test_examples_run(module, single):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    finder = doctest.DocTestFinder()
    tests = [
        test
        for test in finder.find(module, globs={**vars(module), "figrl": figrl})
        if test.examples
    ]
    assert tests
    with single.as_current():
        for test in tests:
            runner.run(test)
    assert runner.failures == 0
