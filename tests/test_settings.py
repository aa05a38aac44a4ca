"""Options set in ``dask.config``: what is given counts first, then the setting, then defaults."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import typing

import dask
import pytest

import figrl
from figrl.api import calls
from figrl.config import make_options
from figrl.engine.cluster_file import ClusterConfig, read_cluster_config
from figrl.errors import ConfigError
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.nightly.config import read_reindex_config
from figrl.serve.fold_in import FoldInOptions
from figrl.settings import settings, with_settings
from figrl_jobs import embed as embed_job
from figrl_jobs import fold_in as fold_in_job
from figrl_jobs import ingest as ingest_job
from figrl_jobs.main import main
from tests.waiting import wait_until

MODELS = {IngestOptions: "ingest", EmbedOptions: "embed", FoldInOptions: "fold_in"}
FIELDS = [(model, name) for model in MODELS for name in model.model_fields]
# Options that are checked together with others.
WITH = {"time": {"half_life": "30d"}, "half_life": {"time": "at"}}
WITH["as_of"] = WITH["time"] | WITH["half_life"]
TEXTS = {"half_life": "30d", "as_of": "2026-01-01"}


def another_value(model, name):
    """A value of a field that is allowed and is not its default."""
    field = model.model_fields[name]
    kinds = [field.annotation, *typing.get_args(field.annotation)]
    for kind in kinds:
        if typing.get_origin(kind) is typing.Literal:
            return next(v for v in reversed(typing.get_args(kind)) if v != field.default)
    if name in TEXTS:
        return TEXTS[name]
    values = {bool: not field.default, float: 0.5, int: 2, str: "column"}
    return next(value for kind, value in values.items() if kind in kinds)


def setting(section, name, value):
    """``dask.config`` with one option, set as a variable of the environment sets it."""
    return dask.config.set(
        dask.config.collect_env({f"DASK_FIGRL__{section.upper()}__{name.upper()}": str(value)})
    )


@pytest.fixture
def asked(monkeypatch):
    """Options that calls and jobs come to, in place of the work."""
    found = []

    def keep(*arguments, **_):
        found.extend(a for a in arguments if type(a) in MODELS)
        raise InterruptedError

    for place, work in (
        (calls, ("ingest_into", "embed_graph", "fold_into")),
        (ingest_job, ("run_ingest",)),
        (embed_job, ("embed_store",)),
        (fold_in_job, ("run_fold_in",)),
    ):
        for name in work:
            monkeypatch.setattr(place, name, keep)
    monkeypatch.setattr(calls, "known_graph", lambda *_: ("store", None))
    for job in (embed_job, fold_in_job):
        monkeypatch.setattr(job, "existing_store", lambda _: None)
    monkeypatch.setattr("figrl_jobs.options.connect", lambda *_: dask.config.set({}))
    monkeypatch.setattr("figrl_jobs.options.describe_place", lambda *_: "here")
    return found


def call(section, **options):
    """Call from Python, up to the work."""
    arguments = {"ingest": ["e.csv"], "embed": ["store"], "fold_in": ["store", "e.csv"]}
    with pytest.raises(InterruptedError):
        getattr(figrl, section)(*arguments[section], **options)


def command(section, **options):
    """Run the command, up to the work."""
    words = [] if section == "embed" else ["e.csv"]
    out = ["--out", "vectors.parquet"] if section == "fold_in" else []
    for name, value in options.items():
        word = name.replace("_", "-")
        flag = [f"--{word}" if value else f"--no-{word}"]
        out += flag if isinstance(value, bool) else [f"--{word}", str(value)]
    main([section.replace("_", "-"), *words, "--store", "store", *out])


@pytest.mark.parametrize(
    ("model", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part)
)
@pytest.mark.parametrize("way", [call, command], ids=["call", "command"])
def test_every_option_is_settable_and_what_is_given_counts_first(asked, way, model, name):
    section, other = MODELS[model], another_value(model, name)
    default = model.model_fields[name].default
    more = WITH.get(name, {})
    with setting(section, name, other):
        way(section, **more)
        if default is not None:
            way(section, **{name: default})
        if name == "keep_sketch":
            default = False
    way(section)
    set_, *given, unset = [getattr(options, name) for options in asked]
    assert set_ == getattr(make_options(model, {name: other, **more}), name)
    assert set_ != default
    assert given == [default] * len(given)
    assert unset == default


@pytest.mark.parametrize("model", MODELS, ids=MODELS.values())
def test_calls_have_every_option_as_a_keyword(model):
    parameters = inspect.signature(getattr(figrl, MODELS[model])).parameters
    kinds = {name: parameters[name].kind for name in model.model_fields}
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}


def test_a_variable_of_the_environment_reaches_the_command():
    words = [sys.executable, "-m", "figrl_jobs", "plan", "--nodes", "1e5", "--edges", "1e6"]
    variables = {"DASK_FIGRL__EMBED__DIM": "48", "DASK_FIGRL__CLUSTER__LOCAL__WORKERS": "3"}
    done = subprocess.run(
        [*words, "--json"], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    assert (report["dim"], report["workers"]) == (48, 3)


# Settings of embed, what is given, and the values that count.
PRESETS = [
    ({"preset": "fast"}, {}, {"depth": 3, "smoothing": 5}),
    ({"preset": "fast", "depth": 6}, {}, {"depth": 6, "smoothing": 5}),
    ({"preset": "fast"}, {"depth": 6}, {"depth": 6, "smoothing": 5}),
    ({"depth": 6, "dim": 32}, {"preset": "fast"}, {"depth": 3, "dim": 32}),
    ({"depth": 6}, {"preset": "accurate"}, {"depth": 8}),
    ({"representation": "product", "sketch-size": 900}, {"preset": "paper"}, {"depth": 1}),
    ({"width": 256}, {"sketch_size": 1024}, {"width": 128}),
    ({"sketch_size": 1024}, {"width": 256}, {"width": 256}),
    ({"keep-sketch": True, "depth": 6}, {"seed": 1}, {"depth": 6, "seed": 1}),
    ({"dim": None}, {}, {"dim": 128}),
    ({"dim": 32}, {"dim": None}, {"dim": 32}),
]


@pytest.mark.parametrize(("chosen", "given", "expected"), PRESETS)
def test_a_preset_that_is_given_decides_what_it_decides(chosen, given, expected):
    with dask.config.set({"figrl.embed": chosen}):
        spec = make_spec(with_settings(EmbedOptions, given), nodes=10_000, mean_degree=10.0)
    assert {name: getattr(spec, name) for name in expected} == expected
    if given.get("preset") == "paper":
        assert spec.is_paper


# Settings, and words of the error.
WRONG = [
    ({"figrl.embed.dmi": 3}, "no key 'figrl.embed.dmi'; did you mean 'dim'?"),
    ({"figrl.embd.dim": 3}, "no section 'figrl.embd'; did you mean 'embed'?"),
    ({"figrl.embed.dim": "many"}, "figrl.embed.dim is 'many'"),
    ({"figrl.embed.dim": True}, "figrl.embed.dim is True"),
    ({"figrl.embed.smoothing": 1000}, "figrl.embed.smoothing is 1000: has to be auto"),
    ({"figrl.embed": 3}, "figrl.embed is 3"),
    ({"figrl": [3]}, r"figrl is \[3\]"),
    ({"figrl.cluster.local.wrkers": 3}, "no key 'figrl.cluster.local.wrkers'"),
    ({"figrl.cluster.scheduler": "nowhere"}, "figrl.cluster.scheduler is 'nowhere'"),
    ({"figrl.cluster": {"local": {}, "scheduler": "tcp://a:1"}}, "figrl.cluster: give exactly one"),
]


@pytest.mark.parametrize(("chosen", "words"), WRONG)
def test_errors_name_the_key(chosen, words):
    read = read_cluster_config if "figrl.cluster" in words else lambda: settings(EmbedOptions, {})
    with dask.config.set(chosen), pytest.raises(ConfigError, match=words):
        read()


def test_null_for_a_weight_is_refused_because_it_may_mean_two_things():
    with (
        setting("ingest", "weight", "none"),
        pytest.raises(ConfigError, match=r"figrl\.ingest\.weight"),
    ):
        settings(IngestOptions, {})
    with setting("ingest", "weight", "'none'"):
        assert settings(IngestOptions, {}) == {"weight": "none"}


def test_errors_of_values_that_do_not_fit_name_where_they_were_set(capsys, tmp_path):
    words = ["plan", "--nodes", "100", "--edges", "300"]
    with dask.config.set({"figrl.embed.dim": 500}):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert "--dim is 500" in told
        assert "Set by dask.config: --dim (figrl.embed.dim)." in told
        assert main([*words, "--dim", "400"]) == 2
        assert "dask.config" not in capsys.readouterr().err
    with (
        dask.config.set({"figrl.ingest.time": "at"}),
        pytest.raises(ConfigError, match=r"Set by dask.config: time \(figrl.ingest.time\)"),
    ):
        figrl.ingest([(1, 2)], store=tmp_path / "store")


def test_the_cluster_of_the_settings_counts_where_no_file_is_named(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("local: {workers: 2}\n")
    with dask.config.set({"figrl.cluster": {"local": {"threads-per-worker": 3}}}):
        assert read_cluster_config().local.threads_per_worker == 3
        assert read_cluster_config(file).local.threads_per_worker is None
    custom = {"custom": {"class": "a.B", "arguments": {"worker-extra": 1}}}
    with dask.config.set({"figrl.cluster": custom}):
        assert read_cluster_config().custom.arguments == {"worker-extra": 1}
    assert read_cluster_config() == ClusterConfig()


def test_a_night_takes_from_the_settings_what_its_file_leaves_out(tmp_path):
    file = tmp_path / "nightly.yaml"
    file.write_text("store: s\nsources: e.csv\nembed: {dim: 128, preset: fast}\n")
    with dask.config.set({"figrl.embed": {"dim": 64, "depth": 6, "seed": 5}}):
        embed = read_reindex_config(file).embed
    assert (embed.dim, embed.depth, embed.seed) == (128, None, 5)


def test_a_submitted_job_has_the_settings_of_who_submitted_it(single, tmp_path):
    cluster, edges = tmp_path / "cluster.yaml", tmp_path / "edges.csv"
    cluster.write_text(f"scheduler: {single.scheduler.address}\n")
    edges.write_text("source,target\na,b\nb,c\nc,a\n")
    store = tmp_path / "store"
    with dask.config.set({"figrl.ingest.block_rows": 2}):
        words = ["submit", "ingest", str(edges), "--store", str(store), "--cluster", str(cluster)]
        assert main(words) == 0
    wait_until(lambda: list(store.glob("jobs/*/report.json")), "the job has ended")
    [report] = store.glob("jobs/*/report.json")
    assert json.loads(report.read_text())["block_rows"] == 2
