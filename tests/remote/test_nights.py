"""Nights whose sources are behind URLs: nothing is done until an object is another one."""

from __future__ import annotations

import json

import numpy as np
import yaml

from tests.remote.servers import BUCKET, SECRET


def csv(pairs):
    return b"source,target\n" + "".join(f"{a},{b}\n" for a, b in pairs.tolist()).encode()


def test_a_night_follows_the_objects_of_its_sources(figrl, s3, tmp_path):
    rng = np.random.default_rng(3)
    days = [rng.integers(0, 120, (900, 2)) for _ in range(3)]
    for number, pairs in enumerate(days[:2], 1):
        s3.put(f"nights/date=2026-11-{number:02d}/part.csv", csv(pairs))
    s3.put("nights/date=2026-11-01/other.tmp.csv", b"no edges")
    config = {
        "store": "store",
        "sources": {"path": f"s3://{BUCKET}/nights", "exclude": ["*.tmp.csv"]},
        "window": {"days": 2},
        "storage": {f"s3://{BUCKET}": s3.entry()},
        "embed": {"dim": 6, "depth": 2, "smoothing": 0},
        "gates": {},
    }
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(config))

    def night(code=0):
        # What the file says goes before what the cluster file says.
        wrong = {f"s3://{BUCKET}": {"endpoint": "http://127.0.0.1:9"}}
        ended = figrl("reindex", file, "--json", storage=wrong)
        assert ended.code == code, ended.err
        assert SECRET not in ended.out + ended.err
        return ended.json

    first = night()
    assert not first["nothing_to_do"]
    assert night()["nothing_to_do"]
    # Written again, the same bytes have the same etag.
    s3.put("nights/date=2026-11-02/part.csv", csv(days[1]))
    again = night()
    assert again["nothing_to_do"]
    assert again["run"] == first["run"]
    s3.put("nights/date=2026-11-03/part.csv", csv(days[2]))
    second = night()
    assert not second["nothing_to_do"]
    assert second["run"] != first["run"]
    manifest = tmp_path / "store" / "graph" / second["graph"] / "manifest.json"
    assert json.loads(manifest.read_text())["sources"] == [
        f"s3://{BUCKET}/nights/date=2026-11-{day}/part.csv" for day in ("02", "03")
    ]
    for path in (tmp_path / "store").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    s3.delete("nights/date=2026-11-02/part.csv")
    s3.delete("nights/date=2026-11-01/part.csv")
    s3.delete("nights/date=2026-11-03/part.csv")
    told = night(code=3)["error"]
    assert f"s3://{BUCKET}/nights: none of its files matches" in told


def test_sources_that_are_not_there_make_no_store(figrl, tmp_path):
    file = tmp_path / "nightly.yaml"
    file.write_text(json.dumps({"store": "store", "sources": f"s3://{BUCKET}/none/*.csv"}))
    ended = figrl("reindex", file, "--json")
    assert ended.code == 3
    assert f"s3://{BUCKET}/none/*.csv: there is no edge file here" in ended.json["error"]
    assert not (tmp_path / "store").exists()
