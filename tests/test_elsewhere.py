"""Recipes of docs/elsewhere.md: vectors in tools that know nothing of figrl."""

from __future__ import annotations

import ast
import contextlib
import struct

import numpy as np
import pyarrow.parquet as pq
import pytest

import figrl
from tests.documents import ROOT, blocks
from tests.learn.test_accurate import planted_edges

PAGE = ROOT / "docs" / "elsewhere.md"
RECIPES = blocks(PAGE, "python")
ASKED = "n001"


def packages(block):
    """Packages that a block imports."""
    found = set()
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    return found


@pytest.fixture(scope="module")
def folder(single, tmp_path_factory):
    """A store of nodes n000, n001, ... and its exported vectors."""
    folder = tmp_path_factory.mktemp("elsewhere")
    edges = [(f"n{a:03}", f"n{b:03}") for a, b in planted_edges(3)]
    graph = figrl.ingest(edges, store=folder / "store", client=single)
    figrl.embed(graph, dim=16, client=single)
    figrl.export(folder / "store", out=folder / "vectors.parquet", client=single)
    return folder


@pytest.fixture(scope="module")
def exported(folder):
    """Ids and vectors."""
    table = pq.read_table(folder / "vectors.parquet")
    vectors = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    return table["id"].to_pylist(), vectors


def run_recipe(block, folder):
    """Execute one block by itself; skip it where what it imports is not installed."""
    for package in sorted(packages(block)):
        pytest.importorskip(package, reason=f"{block.place} needs {package}")
    names = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        exec(compile("\n" * block.line + block.text, str(PAGE), "exec"), names)
    return names


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.place)
def test_recipes_find_the_nearest_nodes(folder, exported, block):
    names = run_recipe(block, folder)
    if "nearest" not in block.text:
        return
    ids, vectors = exported
    cosine = vectors @ vectors[ids.index(ASKED)]
    assert names["nearest"] == [ids[row] for row in np.argsort(-cosine)[:5]]


def test_no_recipe_imports_figrl():
    assert len(RECIPES) == 7
    assert not any("figrl" in packages(block) for block in RECIPES)


def test_the_file_for_postgresql_has_every_bit(folder, exported):
    """PostgreSQL's binary COPY: a header, then tuples of fields with their lengths."""
    run_recipe(RECIPES[-1], folder)
    content, at, ids, vectors = (folder / "vectors.copy").read_bytes(), 19, [], []
    assert content.startswith(b"PGCOPY\n\xff\r\n\x00" + bytes(8))
    while (fields := struct.unpack_from(">h", content, at)[0]) != -1:
        assert fields == 2
        [length] = struct.unpack_from(">i", content, at + 2)
        ids.append(content[at + 6 : at + 6 + length].decode())
        at += 6 + length
        size, dim, unused = struct.unpack_from(">ihh", content, at)
        assert (size, unused) == (4 + 4 * dim, 0)
        vectors.append(np.frombuffer(content, ">f4", dim, at + 8))
        at += 4 + size
    assert at + 2 == len(content)
    assert ids == exported[0]
    np.testing.assert_array_equal(np.array(vectors), exported[1])
