"""Credentials are in no file, no log, no report and no error that figrl writes."""

from __future__ import annotations

import base64
import json
import pickle
from functools import partial
from urllib.parse import quote

import dask
import pytest

from figrl.engine.cluster_file import read_cluster_config
from figrl.engine.session import Session
from figrl.engine.submitted import ENDED, read_state
from figrl.errors import ConfigError, FigrlError, without_secrets
from figrl.ingestion.listing import find_files
from figrl.nightly.config import read_reindex_config
from figrl.serve.repair import run_repair
from figrl.store.layout import store_paths
from tests.remote.servers import BUCKET, SECRET
from tests.waiting import wait_until

SIGNATURE = "SIGNEDbyAnn42"
OWN = ("cluster.yaml", "nightly.yaml")
SHOWN = [SECRET, quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode(), SIGNATURE]


def has_ended(job):
    return read_state(job).get("state") in ENDED


def leaks(folder, *texts):
    """Where a secret is written: files, and places in texts."""
    found = [str(number) for number, text in enumerate(texts) for s in SHOWN if s in text]
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in OWN:
            content = path.read_bytes()
            found += [str(path) for secret in SHOWN if secret.encode() in content]
    return found


def test_no_job_writes_them(figrl, client, s3, web, edge_files, tmp_path):
    told, store = [], tmp_path / "store"
    edges = s3.put("secrets/edges.parquet", edge_files["parquet"])
    (web.folder / "new.csv").write_text("source,target\n7000,1\n7000,2\n")
    # The signature of a URL, and a password in it.
    signed = f"http://ann:{quote(SECRET, safe='')}@{web.address}/new.csv?sig={SIGNATURE}"

    def run(*words, code=0):
        ended = figrl(*words, "--json")
        told.extend([ended.out, ended.err])
        assert ended.code == code, ended.err
        return ended.json

    def refused(*words, code):
        return run(*words, code=code)["error"]

    run("ingest", edges, "--store", store)
    run("embed", "--store", store, "--dim", 4, "--depth", 2, "--smoothing", 0)
    run("fold-in", signed, "--store", store, "--out", tmp_path / "new.parquet")
    run("fold-in", signed, "--store", store, "--publish")
    run("fold-in", signed, "--store", store, "--publish")
    run("embed", edges, "--out", tmp_path / "v.parquet", "--dim", 4, "--depth", 2)
    run("ingest", edges, "--store", store, "--weight", "nothing", code=3)
    missing = signed.replace("new.csv", "missing.csv")
    assert "/missing.csv:" in refused("ingest", missing, "--store", store, code=3)
    web.login = "nobody"
    assert "access is denied" in refused("ingest", signed, "--store", store, code=2)
    web.login = None
    with s3.checking_credentials():
        refused("ingest", f"s3://{BUCKET}/secrets", "--store", store, code=2)
    bad = s3.put("secrets/bad.csv", b"source,target\n1,2\n3\n")
    run("ingest", bad, "--store", tmp_path / "bad", "--on-bad-edges", "quarantine")
    assert f"{bad}, row 3" in refused("ingest", bad, "--store", store, code=3)
    for submitted, words in ((edges, []), (bad, ["--on-bad-edges", "quarantine"])):
        before = set(store.glob("jobs/*"))
        with dask.config.set({"figrl.storage": {"gs": {"token": SECRET}}}):
            run("submit", "ingest", submitted, "--store", store, *words)
        [job] = set(store.glob("jobs/*")) - before
        wait_until(partial(has_ended, job), "the job has ended")
        assert read_state(job)["state"] == "done"
        assert "storage" not in json.loads((job / "job.json").read_text())["settings"]
    assert "would be written" in refused("submit", "ingest", signed, "--store", store, code=2)
    logs = [str(client.get_worker_logs()), str(client.get_scheduler_logs())]
    assert leaks(tmp_path, *told, *logs) == []
    manifests = [json.loads(path.read_text()) for path in store.glob("graph/*/manifest.json")]
    assert [edges] in [manifest["sources"] for manifest in manifests]


def test_a_damaged_graph_is_made_again_from_its_url(figrl, client, s3, edge_files, tmp_path):
    url = s3.put("repair/edges.csv", edge_files["csv"])
    assert figrl("ingest", url, "--store", tmp_path / "store").code == 0
    [edges] = (tmp_path / "store").glob("graph/*/edges/*")
    content = edges.read_bytes()
    edges.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    report = run_repair(store_paths(tmp_path / "store"), Session(client, storage=s3.storage))
    assert report["damaged"] == []
    assert edges.read_bytes() == content


def test_what_travels_prints_stars(s3):
    url = s3.put("travels/e.csv", b"source,target\n1,2\n")
    found = find_files(url, s3.storage)
    for what in (s3.storage, found, found[0].bucket):
        assert SECRET not in repr(what) + str(what)
        assert pickle.loads(pickle.dumps(what)) == what


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a:b@h/x.csv is", "https://h/x.csv is"),
        ("https://h/x.csv?X-Amz-Signature=1&e=2: no", "https://h/x.csv?...: no"),
        ("'https://h/x?sig=a%2F'.", "'https://h/x?...'."),
        ("tls://host:8786 and a@b", "tls://host:8786 and a@b"),
        ("secret_access_key: abc, x", "secret_access_key: ***, x"),
        ('{"session_token": "abc"}', '{"session_token": "***"}'),
        ("s3://b/day=*/e?.csv", "s3://b/day=*/e?.csv"),
    ],
)
def test_errors_are_cleaned(text, shown):
    assert without_secrets(text) == shown
    error = pickle.loads(pickle.dumps(FigrlError(text)))
    assert (error.message, str(error)) == (shown, shown)


WRONG = [
    ({"s3": {"secret_acess_key": SECRET}}, "did you mean 'secret_access_key'?"),
    ({"s3": {"secret_access_key": [SECRET]}}, "secret_access_key: "),
    ({"s3": {"secret_access_key": True, "token": SECRET}}, "secret_access_key: "),
    ({"s3": SECRET}, "storage.s3: "),
    (SECRET, "storage"),
    ({"s3": {"account_key": SECRET}}, "'account_key' says nothing about s3://"),
    ({"s4": {"region": "x"}}, "'s4' is no scheme"),
    ({"s3": {"timeout_seconds": 0}}, "timeout_seconds"),
    ({"s3": {"endpoint": "localhost:9000"}}, "begins with https:// or http://"),
]


@pytest.mark.parametrize(("section", "words"), WRONG)
@pytest.mark.parametrize("where", ["cluster", "nightly", "config"])
def test_mistakes_in_a_section_are_told_without_its_values(tmp_path, where, section, words):
    file = tmp_path / f"{where}.yaml"
    more = {"nightly": {"store": "s", "sources": "e"}}.get(where, {})
    file.write_text(json.dumps({**more, "storage": section}))
    read = {
        "cluster": lambda: read_cluster_config(file),
        "nightly": lambda: read_reindex_config(file),
        "config": Session,
    }[where]
    settings = {"figrl.storage": section} if where == "config" else {}
    with dask.config.set(settings), pytest.raises(ConfigError) as caught:
        read()
    error: BaseException | None = caught.value
    assert words in caught.value.message
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


def test_a_file_that_is_no_yaml_is_told_of_without_its_lines(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(f"storage:\n  s3: {{secret_access_key: {SECRET}: x\n")
    with pytest.raises(ConfigError, match="line 2") as caught:
        read_cluster_config(file)
    assert SECRET not in str(caught.value)


def test_variables_of_the_environment_set_entries():
    variables = {"DASK_FIGRL__STORAGE__S3__ENDPOINT": "http://h:1"}
    with dask.config.set(dask.config.collect_env(variables)):
        assert Session().storage.access("s3://b/x").endpoint == "http://h:1"
