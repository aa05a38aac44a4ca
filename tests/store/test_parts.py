"""Values taken from parts: in any order, each part opened once; and whole objects moved about."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl.errors import BadInputError
from figrl.store import ids as ids_module
from figrl.store.files import copy, move
from figrl.store.ids import IdIndex, check_id_kind, group_places, range_path, write_ids
from figrl.store.leftovers import delete_temporary


@given(parts=st.lists(st.integers(0, 5), max_size=30))
def test_places_are_grouped_by_part_and_stay_in_order(parts):
    grouped = {part: places.tolist() for part, places in group_places(np.array(parts, np.int64))}
    assert grouped == {
        part: [place for place, other in enumerate(parts) if other == part] for part in set(parts)
    }
    assert list(grouped) == sorted(grouped)


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any),
    words=st.booleans(),
    data=st.data(),
)
def test_ids_of_any_rows_are_taken(tmp_path_factory, sizes, words, data):
    folder, starts = tmp_path_factory.mktemp("ids"), [0, *np.cumsum(sizes).tolist()]
    every = [f"node {i:03d}" if words else 7 * i for i in range(starts[-1])]
    for number, size in enumerate(sizes):
        part = every[starts[number] : starts[number] + size]
        ids = pa.array(part, pa.large_string() if words else pa.int64())
        write_ids(range_path(folder, number), {"id": ids})
    rows = data.draw(st.lists(st.integers(0, starts[-1] - 1), max_size=20))
    opened = []
    with pytest.MonkeyPatch.context() as patch:
        map_ids = ids_module.map_ids
        patch.setattr(ids_module, "map_ids", lambda path: opened.append(path) or map_ids(path))
        found = IdIndex(folder, tuple(starts)).take(np.array(rows, np.int64))
    assert found.tolist() == [every[row] for row in rows]
    assert all(type(value) in (int, str) for value in found)
    assert len(opened) == len(set(opened))


def test_ids_of_another_kind_are_refused_with_a_remedy():
    check_id_kind("a.parquet", "int", "int", remedy="Cast them.")
    with pytest.raises(BadInputError, match=r"^a: its ids are int, but those of run r are string"):
        check_id_kind("a", "int", "string", owner="run r", remedy="Cast them.")


@pytest.mark.parametrize("whole_folder", [False, True])
def test_copies_and_moves_replace_as_a_whole(tmp_path, whole_folder):
    source = tmp_path / "source"
    if whole_folder:
        source.mkdir()
        (source / "new").write_text("x")
    else:
        source.write_text("x")
    copy(source, tmp_path / "deep" / "copied")
    target = tmp_path / "target"
    if whole_folder:
        target.mkdir()
        (target / "old").touch()
    else:
        target.write_text("old")
    move(source, target)
    assert not source.exists()
    for path in (tmp_path / "deep" / "copied", target):
        found = [p.name for p in path.iterdir()] if whole_folder else path.read_text()
        assert found == (["new"] if whole_folder else "x")


def test_only_half_written_objects_are_deleted(tmp_path):
    for name in (".a.1234.tmp", ".hidden", "b"):
        (tmp_path / name).touch()
    (tmp_path / ".c.5678.tmp").mkdir()
    delete_temporary(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "b"]
