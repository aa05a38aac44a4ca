"""Servers that the tests of a session share, and the same edges in every format."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from figrl_jobs.main import main
from tests.jobs.conftest import Outcome
from tests.remote.servers import s3_server, web_server


@pytest.fixture(scope="session", autouse=True)
def _no_credentials_of_this_machine():
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) or name.lower().endswith("_proxy"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def s3(tmp_path_factory, _no_credentials_of_this_machine):
    """A server of S3 with a bucket."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def web(tmp_path):
    """A server of HTTP with an empty folder."""
    folder = tmp_path / "www"
    folder.mkdir()
    with web_server(folder) as server:
        yield server


@pytest.fixture
def figrl(client, s3, tmp_path, capsys):
    """Run a command line on the shared cluster, whose file says how URLs are reached."""

    def run(*words, storage=None):
        file = tmp_path / "cluster.yaml"
        content = {"scheduler": client.scheduler.address, "storage": storage or {"s3": s3.entry()}}
        file.write_text(yaml.safe_dump(content))
        code = main([*map(str, words), "--cluster", str(file)])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def pairs():
    """Some thousand edges."""
    rng = np.random.default_rng(7)
    found = rng.integers(0, 900, (6000, 2))
    return found[found[:, 0] != found[:, 1]]


@pytest.fixture(scope="session")
def edge_files(pairs, tmp_path_factory):
    """The same edges, by the ending of the file."""
    folder = tmp_path_factory.mktemp("edges")
    table = pa.table(
        {"source": pairs[:, 0], "note": ["x" * 20] * len(pairs), "target": pairs[:, 1]}
    )
    pq.write_table(table, folder / "edges.parquet", row_group_size=1500)
    lines = [f"{a},{b}" for a, b in pairs.tolist()]
    csv = "\n".join(["source,target", *lines, ""]).encode()
    text = b"# pairs\n" + "\n".join(lines).replace(",", "\t").encode()
    objects = (json.dumps({"source": a, "target": b}) for a, b in pairs.tolist())
    contents = {
        "csv": csv,
        "csv.gz": gzip.compress(csv),
        "tsv": csv.replace(b",", b"\t"),
        "txt": text,
        "txt.gz": gzip.compress(text),
        "jsonl": "\n".join(objects).encode(),
    }
    for suffix, content in contents.items():
        (folder / f"edges.{suffix}").write_bytes(content)
    return {suffix: folder / f"edges.{suffix}" for suffix in ("parquet", *contents)}
