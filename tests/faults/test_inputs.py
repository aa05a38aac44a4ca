"""Input as people have it: each file gives its graph, or an error that says what to do."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from figrl.errors import BadInputError, ConfigError, FigrlError
from figrl.ingestion.listing import find_files
from tests.faults.inputs import CASES, ingest_here
from tests.ingestion.stored import assert_holds


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("name", CASES)
def test_an_input(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = case.write(tmp_path)
    if case.edges is None:
        with pytest.raises(FigrlError) as caught:
            ingest_here(path, tmp_path / "graph", **case.options)
        assert caught.value.exit_code == case.code
        assert caught.value.message.startswith(str(path))
        assert [word for word in case.words if word not in caught.value.message] == []
        return
    graph, facts = ingest_here(path, tmp_path / "graph", **case.options)
    assert_holds(graph, case.edges)
    assert graph.weighted == (len(case.edges[0]) > 2)
    [reading] = facts["input"]
    assert (reading["weight"] is not None) == graph.weighted
    assert {key: reading[key] for key in case.reading} == case.reading
    for note in case.notes:
        assert note in " ".join(facts["notes"])


def test_the_header_that_was_guessed_is_told(tmp_path: Path) -> None:
    for text, words in (
        ("ann,bob\ncid,dan\n", "(ann, bob) was taken for names of columns; if it is an edge"),
        ("ann,bob\nbob,cid\n", "(ann, bob) was taken for an edge, since 'bob'"),
    ):
        path = tmp_path / "e.csv"
        path.write_text(text)
        _, facts = ingest_here(path, tmp_path / words[12:30])
        assert words in " ".join(facts["notes"])
    assert facts["input"] == [
        {"format": "csv", "source": "1", "target": "2", "weight": None, "time": None}
        | {"header": False}
    ]


def test_one_file_by_several_names_counts_once(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("s,t,weight\n1,2,0.5\n")
    (folder / "b.csv").symlink_to("a.csv")
    os.link(folder / "a.csv", folder / "c.csv")
    (tmp_path / "again").symlink_to(folder)
    (folder / "loop").symlink_to(folder)
    monkeypatch.chdir(folder)
    first = str(folder / "a.csv")
    for given in (
        folder,
        [first, first],
        ["a.csv", "./a.csv"],
        [folder, tmp_path / "again"],
        "*.csv",
    ):
        assert len(find_files(given)) == 1
    graph, facts = ingest_here([folder, "b.csv", "./a.csv"], tmp_path / "graph")
    assert facts["rows_read"] == 1
    assert_holds(graph, [(1, 2, 0.5)])


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.csv").write_text("1,2\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "day=1").symlink_to(tmp_path / "real")
    assert find_files(tmp_path / "in") == [str(tmp_path / "in" / "day=1" / "a.csv")]


@pytest.mark.parametrize("way", ["named", "folder", "glob"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "dangling", "loop"])
def test_what_is_no_file_is_an_error(tmp_path: Path, monkeypatch, kind: str, way: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.csv"
    words = "not a file but a pipe, a socket or a device"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("x.csv")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to("x.csv" if kind == "loop" else "gone.csv")
        words = "cannot be read" if kind == "loop" else "a link to something that is not there"
    (tmp_path / "good.csv").write_text("1,2\n")
    given = {"named": path, "folder": tmp_path, "glob": str(tmp_path / "*.csv")}[way]
    with pytest.raises(FigrlError) as caught:
        find_files(given)
    assert caught.value.exit_code in (2, 3)
    assert caught.value.message.startswith(f"{path}: ")
    assert words in caught.value.message


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("way", ["named", "above", "glob", "deep glob", "file"])
def test_what_may_not_be_read_is_an_error(tmp_path: Path, way: str) -> None:
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | 0o055)
    shut = tmp_path / "in" / "shut"
    shut.mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_text("1,2\n")
    (shut / "b.csv").write_text("3,4\n")
    shut.chmod(0o755 if way == "file" else 0)
    (shut / "b.csv").chmod(0)
    given = {
        "named": shut,
        "above": tmp_path / "in",
        "glob": f"{tmp_path}/in/*/*.csv",
        "deep glob": f"{tmp_path}/in/**/*.csv",
        "file": shut / "b.csv",
    }[way]
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError) as caught:
            ingest_here(given, tmp_path / "graph")
    finally:
        os.seteuid(0)
        shut.chmod(0o755)
    assert caught.value.message.startswith(f"{shut}")
    assert "chmod" in caught.value.message


def test_a_file_that_goes_away_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no edge file here"):
        find_files(tmp_path / "gone.csv")
