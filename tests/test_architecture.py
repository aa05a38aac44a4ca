"""Contracts on the source: rooms that only look down, no module state, files of readable length."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.module_state import find_state, frozen_classes

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("pipeline/figrl/**/*.py"), *ROOT.glob("jobs/figrl_jobs/**/*.py")])
WORKER = ROOT / "pipeline" / "figrl" / "engine" / "worker.py"
LONGEST_FILE = 330


def test_lower_rooms_never_import_higher_ones():
    """The contracts are in pyproject.toml; imports through a third module count too."""
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_worker_module_keeps_state():
    trees = {path: ast.parse(path.read_text()) for path in SOURCES}
    frozen = {name for tree in trees.values() for name in frozen_classes(tree)}
    found = [
        f"{path.relative_to(ROOT)}, {state}"
        for path, tree in trees.items()
        if path != WORKER
        for state in find_state(tree, frozen)
    ]
    assert found == []


def test_files_are_short_enough_to_read():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    global COUNT\n    COUNT = 1",
        "def f(name):\n    globals()[name] = 1",
        "SEEN = {}\ndef f(key):\n    SEEN[key] = 1",
        "SEEN: dict[str, int] = {}\ndef f(key):\n    del SEEN[key]",
        "SEEN = dict()\ndef f(key):\n    SEEN[key] += 1",
        "SEEN = [x for x in range(3)]\ndef f(key):\n    SEEN.append(key)",
        "SEEN = set()\ndef f(key):\n    return lambda: SEEN.add(key)",
        "SEEN = {1}\ndef f():\n    SEEN.pop()",
        "ROWS = np.zeros(3)\ndef f():\n    ROWS[:] = 1",
        "TOTALS = [0]\nTOTALS += [1]",
        "if True:\n    SEEN = []\ndef f():\n    SEEN.clear()",
        "from figrl.x import SEEN\ndef f(key):\n    SEEN.setdefault(key, 1)",
        "class A:\n    seen = {}\n    def f(self, key):\n        self.seen[key] = 1",
        "class A:\n    count = 0\ndef f():\n    A.count += 1",
        "class A:\n    @classmethod\n    def f(cls):\n        cls.count = 1",
        "import figrl\ndef f():\n    figrl.limit = 1",
        "LOCK = threading.Lock()",
        "HOST = ContextVar('host', default=None)",
        "class A:\n    pass\nONE = A()",
        "PAIR = (1, Pool(2))",
        "RUNNERS = {'local': Runner()}",
        "@functools.cache\ndef f(path):\n    return open(path)",
        "@lru_cache(maxsize=None)\ndef f(*paths):\n    return paths",
        "class A:\n    @cache\n    def f(self):\n        return 1",
    ],
)
def test_state_of_a_module_is_found(code):
    assert find_state(ast.parse(code)) != []


def test_constants_and_what_belongs_to_a_call_are_no_state():
    code = """
    import re
    import numpy as np
    from dataclasses import dataclass, field
    from figrl.x import Range

    NUMBER = re.compile("[0-9]+")
    SIZES = {"a": 1, **{"b": 2}}
    WORDS = "one two".split()
    MASK = np.uint64(7)
    FOLDER = Path(__file__).parent

    @dataclass(frozen=True)
    class Limit:
        low: int = 0
        parts: dict[str, int] = field(default_factory=dict)

    DEFAULT = Limit(1)
    BOTH = (Limit(2), Range(3))
    square = lambda x: Pool(x)

    class Counter:
        def __init__(self):
            self.seen = {}

        def add(self, key):
            self.seen[key] = 1
            self.seen.update(SIZES)

    @functools.cache
    def table():
        return np.arange(3)

    def f(SIZES, key):
        SIZES[key] = 1
        found = dict(WORDS)
        found[key] = np.add(1, 2)
        WORDS_LEFT = list(WORDS)
        WORDS_LEFT.append(key)
        return found

    def g():
        SIZES = {}
        SIZES["a"] = 2
        return SIZES
    """
    assert find_state(ast.parse(dedent(code)), {"Range"}) == []
