"""What servers refuse: told with the URL and a remedy, and with the exit code of its kind."""

from __future__ import annotations

import os
import sys

import pytest

from figrl.engine.session import Session
from figrl.engine.stage import Silent
from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.inputs import read_input
from figrl.ingestion.listing import find_files
from figrl.ingestion.opening import open_bytes
from figrl.ingestion.options import IngestOptions
from figrl.store.access import Access, Storage
from tests.remote.servers import BUCKET, SECRET, free_port

CSV = b"source,target\n1,2\n2,3\n"
LOGIN = "Basic YW5uOnB3ZA=="


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("s3://no-such-bucket/edges.csv", 3, "there is no such bucket"),
        ("s3://no-such-bucket/*.csv", 3, "there is no such bucket"),
        (f"s3://{BUCKET}/nothing.csv", 3, "there is no edge file here"),
        (f"s3://{BUCKET}/nothing/*.csv", 3, "there is no edge file here"),
        (f"s3://{BUCKET}/refusals/m.mtx", 3, "read from a local file: copy it first"),
        (f"s3://{BUCKET}/refusals/e.xlsx", 3, "files that end in '.xlsx' are not read"),
        (f"s3://{BUCKET}/refusals/empty.csv", 3, "the file is empty"),
        ("s3:///edges.csv", 2, "no name of a bucket"),
        ("http://", 2, "no name of a server"),
        ("hdfs://node/edges.csv", 2, "is not on a file system"),
    ],
)
def test_what_is_not_there(figrl, s3, tmp_path, url, code, words):
    for name in ("m.mtx", "e.xlsx", "empty.csv"):
        s3.put(f"refusals/{name}", b"" if name == "empty.csv" else b"?")
    ended = figrl("ingest", url, "--store", tmp_path / "store", "--json")
    assert ended.code == code, ended.err
    assert words in ended.json["error"]
    assert url in ended.json["error"]
    assert not list(tmp_path.glob("store/graph/*/manifest.json"))


def test_wrong_credentials(figrl, s3, tmp_path):
    url = s3.put("denied/edges.csv", CSV)
    with s3.checking_credentials():
        for given in (url, f"s3://{BUCKET}/denied/*.csv"):
            ended = figrl("ingest", given, "--store", tmp_path / "store", "--json")
            assert ended.code == 2
            assert f"{given}: access is denied" in ended.json["error"]
            assert "storage" in ended.json["error"]
            assert SECRET not in ended.out + ended.err
    assert figrl("ingest", url, "--store", tmp_path / "store").code == 0


def test_nobody_answers(figrl, s3, tmp_path):
    url = f"s3://{BUCKET}/edges.csv"
    down = {"s3": s3.entry(endpoint=f"http://127.0.0.1:{free_port()}")}
    ended = figrl("ingest", url, "--store", tmp_path / "store", "--json", storage=down)
    assert ended.code == 2
    assert f"{url}: the server does not answer" in ended.json["error"]


KEYS = [
    ("gs://b/e.csv", {"anonymous": True}),
    ("gs://b/e.csv", {"token": SECRET}),
    ("az://c/e.csv", {"account_name": "acc", "anonymous": True}),
    ("az://c/e.csv", {"account_name": "acc", "account_key": "c2VjcmV0"}),
    ("az://c/e.csv", {"account_name": "acc", "sas_token": f"?sv=1&sig={SECRET}"}),
    ("az://c/e.csv", {"account_name": "acc", "token": SECRET}),
    ("s3://b/e.csv", {"virtual_hosted": True, "access_key_id": "a", "secret_access_key": SECRET}),
]


@pytest.mark.parametrize(("url", "keys"), KEYS)
def test_the_keys_of_every_service_are_known_to_the_library(url, keys):
    """Where nobody answers: they are looked at before."""
    entry = Access(endpoint=f"http://127.0.0.1:{free_port()}", timeout_seconds=0.5, **keys)
    with pytest.raises(ConfigError, match=f"{url}: the server does not answer") as told:
        find_files(url, Storage.of({url.partition(":")[0]: entry}))
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("url", "keys"),
    [
        ("az://c/e.csv", {}),
        ("az://c/e.csv", {"account_name": "acc", "account_key": "no base64"}),
        ("gs://b/e.csv", {"service_account": "/nowhere.json"}),
    ],
)
def test_entries_that_do_not_suffice(url, keys):
    with pytest.raises(ConfigError, match=url.removesuffix("/e.csv")):
        find_files(url, Storage.of({url.partition(":")[0]: Access(**keys)}))


def test_an_endpoint_of_the_environment_that_is_no_address(monkeypatch, capfd):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    entry = Storage.of({"s3": Access(access_key_id="a", secret_access_key="b", region="r")})
    with pytest.raises(ConfigError, match=r"s3://b/e.csv: it cannot be reached like that"):
        find_files("s3://b/e.csv", entry)


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("nothing.csv", 3, "there is no edge file here"),
        ("*.csv", 2, "do not list their files"),
        ("e.csv", 2, "access is denied"),
    ],
)
def test_servers_of_http(figrl, web, tmp_path, path, code, words):
    (web.folder / "e.csv").write_bytes(CSV)
    web.login = LOGIN if path == "e.csv" else None
    url = f"http://{web.address}/{path}"
    ended = figrl("ingest", url, "--store", tmp_path / "store", "--json")
    assert ended.code == code
    assert words in ended.json["error"]
    assert url in ended.json["error"]


def test_a_server_without_ranges(figrl, web, tmp_path):
    (web.folder / "e.csv").write_bytes(CSV)
    web.ranges = False
    url = f"http://{web.address}/e.csv"
    ended = figrl("ingest", url, "--store", tmp_path / "store", "--json")
    assert ended.code == 3
    assert f"{url}: the server does not give parts of files" in ended.json["error"]


def test_user_and_password_in_a_url_or_under_storage(web):
    (web.folder / "e.csv").write_bytes(CSV)
    web.login = LOGIN
    plain = f"http://{web.address}/e.csv"
    [file] = find_files(f"http://ann:pwd@{web.address}/e.csv")
    assert str(file) == plain
    assert "pwd" not in repr(file)
    entry = Storage.of({f"http://{web.address}": Access(user="ann", password="pwd")})
    for found in (file, *find_files(plain, entry)):
        with open_bytes(found) as stream:
            assert stream.read() == CSV
    web.login = "Bearer abc"
    [file] = find_files(plain, Storage.of({"http": Access(token="abc")}))
    assert open_bytes(file).read() == CSV
    with pytest.raises(ConfigError, match=r"^s3://bucket/e.csv: a password is in it"):
        find_files("s3://ann:pwd@bucket/e.csv")


def test_an_object_that_changes_while_it_is_read_is_named(client, s3, tmp_path):
    url = s3.put("changes/edges.csv", CSV)
    [file] = find_files(url, s3.storage)
    given = read_input(url, IngestOptions(), s3.storage)
    s3.put("changes/edges.csv", CSV.replace(b"3", b"4"))
    with pytest.raises(BadInputError, match=rf"{url}: it was changed"):
        open_bytes(file).read()
    with (
        pytest.raises(BadInputError, match=rf"{url}: it was changed"),
        given.opened(client, tmp_path / "scratch", Silent()),
    ):
        pass
    s3.delete("changes/edges.csv")
    with pytest.raises(BadInputError, match=rf"{url}: there is nothing here"):
        open_bytes(file).read()
    s3.put("changes/edges.csv", CSV)
    [same] = find_files(url, s3.storage)
    assert (same.etag, same.size_bytes) == (file.etag, len(CSV))


def test_anonymous_access_and_profiles(s3, tmp_path, monkeypatch):
    url = s3.put("open/edges.csv", CSV)
    s3.publish("open/edges.csv")
    place = {"endpoint": s3.endpoint, "region": "us-east-1"}
    found = find_files(url, Storage.of({"s3": Access(**place, anonymous=True)}))
    assert open_bytes(found[0]).read() == CSV
    hidden = s3.put("open/hidden.csv", CSV)
    with pytest.raises(ConfigError, match=f"{hidden}: access is denied") as told:
        find_files(hidden, Storage.of({"s3": Access(**place, anonymous=True)}))
    # What a traceback shows would be the original, with its addresses.
    assert told.value.__suppress_context__
    file = tmp_path / "credentials"
    file.write_text("[crawl]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    found = find_files(url, Storage.of({"s3": Access(**place, profile="crawl")}))
    assert open_bytes(found[0]).read() == CSV
    with pytest.raises(ConfigError, match="nobody"):
        find_files(url, Storage.of({"s3": Access(**place, profile="nobody")}))


def test_credentials_of_the_environment(s3, monkeypatch):
    url = s3.put("env/edges.csv", CSV)
    for name, value in s3.entry().items():
        word = {"endpoint": "ENDPOINT_URL"}.get(name, name.upper())
        monkeypatch.setenv(f"AWS_{word}", value)
    [file] = find_files(url)
    assert open_bytes(file).read() == CSV
    with s3.checking_credentials(), pytest.raises(ConfigError, match="access is denied") as told:
        find_files(url, Storage.of({f"s3://{BUCKET}": Access(anonymous=False, region="eu-west-1")}))
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(told.value)


def test_without_the_library_the_extra_is_named(monkeypatch, client, tmp_path):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"s3://never-opened.*Install figrl\[cloud\]"):
        run_ingest("s3://never-opened/e.csv", tmp_path / "s", IngestOptions(), Session(client))
