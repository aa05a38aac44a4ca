"""The graph of edges behind a URL is that of the same edges in a local file, to the last byte."""

from __future__ import annotations

import io
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

import figrl
from figrl.engine.session import Session
from figrl.errors import BadInputError
from figrl.ingestion import opening
from figrl.ingestion.formats import parquet, text
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.listing import find_files
from figrl.ingestion.opening import RemoteReader, open_bytes
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sources import inspect_file, split_into_pieces
from figrl.store.access import Access, Storage
from tests.remote.servers import BUCKET

FORMATS = ("parquet", "csv", "csv.gz", "tsv", "txt", "txt.gz", "jsonl")


def graph_files(store, version):
    """Bytes of all files of a graph but the manifest, which names the input."""
    folder = store / "graph" / version
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", "contents.json")
    }


def ingest(client, edges, store, storage=None, **options):
    session = Session(client, storage=storage or Storage())
    return run_ingest(edges, store, IngestOptions(**options), session)


@pytest.fixture
def same(client, tmp_path):
    """Check that URLs make the graph that local files make."""

    def check(urls, local, storage, **options):
        there = ingest(client, urls, tmp_path / "remote", storage, **options)
        here = ingest(client, local, tmp_path / "local", **options)
        found = graph_files(tmp_path / "remote", there["graph_version"])
        assert found == graph_files(tmp_path / "local", here["graph_version"])
        assert len(found) > 4
        assert there["input_bytes"] == here["input_bytes"]
        return there

    return check


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format(same, s3, edge_files, suffix, monkeypatch):
    # In pieces, as files of gigabytes are.
    monkeypatch.setattr(text, "_PIECE_BYTES", 7_001)
    url = s3.put(f"formats/edges.{suffix}", edge_files[suffix])
    report = same(url, edge_files[suffix], s3.storage)
    assert report["sources"] == [url]


def test_every_format_over_http(same, web, edge_files, monkeypatch):
    monkeypatch.setattr(text, "_PIECE_BYTES", 20_001)
    urls, chosen = [], ("parquet", "csv", "txt.gz", "txt")
    for suffix in chosen:
        (web.folder / f"my edges.{suffix}").write_bytes(edge_files[suffix].read_bytes())
        urls.append(f"http://{web.address}/my%20edges.{suffix}?version=1")
    for url, suffix in zip(urls, chosen, strict=True):
        report = same(url, edge_files[suffix], Storage())
        assert report["sources"] == [url.partition("?")[0]]
    gets = [headers for method, _, headers in web.asked if method == "GET"]
    assert all("range" in headers and "if-match" in headers for headers in gets)
    assert {path for _, path, _ in web.asked} == {
        url.removeprefix(f"http://{web.address}") for url in urls
    }


def test_a_server_without_etags_is_read_by_its_times(same, web, edge_files):
    web.etags = False
    path = web.folder / "e.csv"
    path.write_bytes(edge_files["csv"].read_bytes())
    url = f"http://{web.address}/e.csv"
    [file] = find_files(url)
    same(url, edge_files["csv"], Storage())
    os.utime(path, (1, 1_000_000))
    with pytest.raises(BadInputError, match=rf"{url}: it was changed since it was found"):
        open_bytes(file).read(10)


def test_globs_and_hive_partitions(same, s3, edge_files, tmp_path):
    lines = edge_files["csv"].read_bytes().split(b"\n")
    names = ["day=1/a.csv", "day=2/b.csv", "day=2/deep/c.csv", "day=3/d.csv"]
    for number, name in enumerate(names):
        local = tmp_path / "hive" / name
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(b"\n".join([lines[0], *lines[1 + number :: 4]]))
        s3.put(f"hive/{name}", local)
    for hidden in ("hive/_SUCCESS", "hive/.tmp/e.csv", "hive/day=1/_started"):
        s3.put(hidden, b"no edges")
    s3.put("hive/day=9/", b"")
    base = f"s3://{BUCKET}/hive"
    for pattern in ("", "/", "/day=*", "/day=*/", "/**/*.csv", "/**"):
        found = [str(file) for file in find_files(base + pattern, s3.storage)]
        assert found == [f"{base}/{name}" for name in names], pattern
    meant = {
        "/day=[12]/*.csv": names[:2],
        "/day=2": names[1:3],
        "/*/deep": names[2:3],
        "/day=?/[a-b].csv": names[:2],
    }
    for pattern, chosen in meant.items():
        found = [str(file) for file in find_files(base + pattern, s3.storage)]
        assert found == [f"{base}/{name}" for name in chosen], pattern
    same(f"{base}/day=[12]*", str(tmp_path / "hive" / "day=[12]*"), s3.storage)


def test_names_with_signs_and_marks_of_patterns(s3):
    csv = b"source,target\n1,2\n"
    for name in ("a b.csv", "50%25.csv", "x?[1].csv", "ä+#.csv"):
        url = s3.put(f"signs/{name}", csv)
        [file] = find_files(url, s3.storage)
        assert str(file) == url
        with open_bytes(file) as stream:
            assert stream.read() == csv
    names = sorted(["a b.csv", "50%25.csv", "x?[1].csv", "ä+#.csv"])
    found = find_files(f"s3://{BUCKET}/signs", s3.storage)
    assert [str(file).rpartition("/")[2] for file in found] == names


def test_a_mix_of_local_files_and_urls(client, s3, edge_files, tmp_path):
    url = s3.put("mix/more.csv", b"source,target\n1,100000\n")
    report = ingest(client, [edge_files["csv"], url], tmp_path / "store", s3.storage)
    assert report["sources"] == [str(edge_files["csv"]), url]
    assert report["files"] == 2
    assert report["rows_read"] == edge_files["csv"].read_bytes().count(b"\n")


def test_files_that_differ_in_the_query_of_their_urls_are_several(web):
    (web.folder / "table.csv").write_bytes(b"source,target\n1,2\n")
    urls = [f"http://{web.address}/table.csv?of={name}" for name in "ba"]
    files = find_files([*urls, *urls])
    assert [file.bucket.root for file in files] == sorted(urls)


def test_settings_say_how_calls_reach_urls(client, s3, edge_files, pairs):
    import dask

    url = s3.put("calls/edges.parquet", edge_files["parquet"])
    with dask.config.set({"figrl.storage": {"s3": s3.entry()}}):
        graph = figrl.ingest(url, client=client)
        assert graph.nodes == len(np.unique(pairs))
        run = figrl.embed(url, dim=4, depth=2, smoothing=0, client=client)
        new = figrl.fold_in(run, s3.put("calls/new.csv", b"source,target\n5000,1\n"), client=client)
    assert new.ids == [5000]


def test_a_piece_of_parquet_asks_for_its_columns_only(s3, web, edge_files, monkeypatch):
    monkeypatch.setattr(opening, "_GAP_BYTES", 0)
    path = web.folder / "edges.parquet"
    table = pq.read_table(edge_files["parquet"])
    wide = [str(np.random.default_rng(i).random()) * 20 for i in range(len(table))]
    table = table.set_column(1, "note", [wide])
    pq.write_table(table, path, row_group_size=1500, compression="none", use_dictionary=False)
    [file] = find_files(f"http://{web.address}/edges.parquet")
    source = inspect_file(file, IngestOptions())
    assert source.parts == 4
    web.asked.clear()
    piece = split_into_pieces([source])[2]
    [batch] = parquet.read(piece)
    assert batch.edges["source"].to_pylist() == table["source"][3000:4500].to_pylist()
    ranges = [h["range"].removeprefix("bytes=") for m, _, h in web.asked if m == "GET"]
    asked = sum(1 + int(last) - int(first) for first, _, last in (r.partition("-") for r in ranges))
    assert asked < 150_000 < 400_000 < path.stat().st_size


def test_a_reader_gives_the_bytes_of_any_place(s3, monkeypatch):
    monkeypatch.setattr(opening, "_FIRST_BYTES", 50)
    monkeypatch.setattr(opening, "_REQUEST_BYTES", 333)
    rng = np.random.default_rng(1)
    content = rng.bytes(9_000)
    [file] = find_files(s3.put("reader/any.txt", content), s3.storage)
    for until in (opening.END, 3_000):
        with io.BufferedReader(RemoteReader(file, until), 100) as stream:
            assert stream.read() == content
            for at, size in rng.integers(0, 9_300, (30, 2)).tolist():
                assert stream.seek(at) == at
                assert stream.read(size % 1500) == content[at : at + size % 1500]
            assert stream.seek(-7, os.SEEK_END) == len(content) - 7
            assert stream.read() == content[-7:]
    reader = RemoteReader(file)
    reader.fetch([(10, 20), (2_000, 4_100), (8_990, 9_000)])
    with io.BufferedReader(reader, 100) as stream:
        for start, stop in ((2_000, 4_100), (0, 30), (8_900, 9_000), (3_990, 4_300)):
            stream.seek(start)
            assert stream.read(stop - start) == content[start:stop]


def test_reading_on_has_more_and_more_requests_under_way(web):
    (web.folder / "long.txt").write_bytes(b"1 2\n" * (5 << 20))
    [file] = find_files(f"http://{web.address}/long.txt")
    with RemoteReader(file, until=12 << 20) as reader:
        counts = []
        while reader.tell() < 12 << 20:
            reader.read(1 << 20)
            counts.append(len(reader._ahead))
    assert counts[0] == 1
    assert max(counts) > 3
    ends = [h["range"].rpartition("-")[2] for m, _, h in web.asked if m == "GET"]
    assert max(map(int, ends)) < (12 << 20) + opening._FIRST_BYTES, "no more than was wanted"


def test_entries_for_longer_beginnings_count_more():
    storage = Storage.of(
        {
            "s3": Access(region="a", endpoint="https://e"),
            "s3://b": Access(region="b"),
            "s3://b/c/": Access(region="c", anonymous=True),
            "https://host/x": Access(token="t"),
        }
    )
    regions = [storage.access(f"s3://{key}").region for key in ("x/1", "b/1", "b/c/1", "bb/c")]
    assert regions == ["a", "b", "c", "a"]
    assert storage.access("s3://b/c/1").endpoint == "https://e"
    assert storage.access("https://host/x/e.csv").token is not None
    assert storage.access("https://host/xy").token is None
