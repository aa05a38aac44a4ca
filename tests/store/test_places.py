"""Addresses: a file URL is a path; any other is refused by every job and call, but for edges."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import figrl
from figrl.errors import ConfigError
from figrl.store.places import local_path, remote_url
from figrl_jobs.main import main


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///data/edges.csv", "/data/edges.csv"),
        ("file://localhost/data/a%20b", "/data/a b"),
        ("edges.csv", "edges.csv"),
        ("date=2026-11-18T03:00/edges.csv", "date=2026-11-18T03:00/edges.csv"),
        ("12:30", "12:30"),
    ],
)
def test_paths_and_file_urls(given, path):
    assert local_path(given) == Path(path)


@pytest.mark.parametrize(
    "given",
    [
        *("s3://bucket/store", "gs://b/x", "az://b/x", "https://example.org/e.csv", "hdfs://n/x"),
        *("simplecache::s3://bucket/x", Path("s3://bucket/store"), "file://elsewhere/x", "S3://b"),
    ],
)
def test_other_addresses_are_refused(given):
    with pytest.raises(ConfigError, match="is not on a file system"):
        local_path(given)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("s3://bucket/a b/*.csv", "s3://bucket/a b/*.csv"),
        ("S3A://bucket", "s3://bucket"),
        (Path("gs://bucket/x"), "gs://bucket/x"),
        ("https://h/e.csv?a=1", "https://h/e.csv?a=1"),
        ("az://c/e.csv", "az://c/e.csv"),
        *((other, None) for other in ("hdfs://n/x", "file:///x", "x/s3://b", "e.csv", "s3:x")),
    ],
)
def test_urls_of_edges(given, url):
    assert remote_url(given) == url


S3 = "s3://bucket/there"


@pytest.mark.parametrize(
    "words",
    [
        ["ingest", "hdfs://node/edges.csv", "--store", "store"],
        ["ingest", "edges.csv", "--store", S3],
        ["embed", "--store", S3],
        ["plan", "--store", S3],
        ["export", "--store", S3, "--out", "v.parquet"],
        ["fold-in", "edges.csv", "--store", S3, "--out", "v.parquet"],
        ["neighbors", "--store", S3, "1"],
        ["status", "--store", S3],
        ["rollback", "--store", S3],
        ["pin", "RUN", "--store", S3],
        ["verify", "--store", S3],
        ["cluster", "--store", S3, "--clusters", "2"],
        ["holes", "--store", S3],
        ["cancel", "JOB", "--store", S3],
        ["resume", "--store", S3],
        ["demo", "--keep", S3],
        ["reindex", S3],
        ["ingest", "edges.csv", "--store", "store", "--cluster", S3],
        ["reindex", "nightly.yaml"],
        ["reindex", "sources.yaml"],
    ],
)
def test_every_job_refuses_them(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("edges.csv").write_text("source,target\n1,2\n")
    Path("nightly.yaml").write_text(json.dumps({"store": S3, "sources": ["edges.csv"]}))
    hdfs = {"store": "store", "sources": ["hdfs://node/edges.csv"]}
    Path("sources.yaml").write_text(json.dumps(hdfs))
    before = sorted(tmp_path.iterdir())
    assert main([*words, "--json"]) == 2
    told = capsys.readouterr()
    assert re.search("no (s3|hdfs): addresses", json.loads(told.out)["error"])
    assert sorted(tmp_path.iterdir()) == before, "nothing may be left"


def test_outputs_and_calls_refuse_them(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = (tmp_path / "store").as_uri()
    run = figrl.embed([(1, 2), (2, 3), (3, 1), (3, 4)], dim=2, store=store, client=client)
    assert Path("store").is_dir()
    calls = [
        lambda: figrl.ingest([(1, 2)], store=S3),
        lambda: figrl.embed(store=S3),
        lambda: figrl.open_store(S3),
        lambda: figrl.fold_in(run, [(9, 1)], out=S3, client=client),
        lambda: figrl.find_clusters(store, 2, out=S3, client=client),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="s3: addresses"):
            call()
    assert main(["export", "--store", store, "--out", "gs://b/v.parquet"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    main(["export", "--store", store, "--out", (tmp_path / "v.parquet").as_uri()])
    assert Path("v.parquet").exists()
