"""README and docs: code runs, commands exist, links lead somewhere, the site builds."""

from __future__ import annotations

import copy
import itertools
import re
import subprocess
import sys
from pathlib import Path

import dask
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from figrl.engine.cluster_file import ClusterConfig, read_cluster_config
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.config import read_reindex_config
from figrl.serve.fold_in import FoldInOptions
from figrl_jobs.main import main
from tests.documents import PAGES, ROOT, blocks, check_command, commands, run_python_blocks

README = ROOT / "README.md"
TESTS = ROOT / "tests"
QUALITY = ROOT / "docs" / "quality.md"
DRAWINGS = ("", "math")
TRIED = ("python", "bash", "yaml")
SECTIONS = {
    "ingest": IngestOptions,
    "embed": EmbedOptions,
    "fold_in": FoldInOptions,
    "cluster": ClusterConfig,
}


def _name(page):
    return str(page.relative_to(ROOT))


def _pages_with(language):
    return [page for page in PAGES if blocks(page, language)]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_each_block_is_tried_or_says_that_it_is_not(page):
    for block in blocks(page):
        tried = block.language in TRIED and not block.marks
        assert tried or block.language in DRAWINGS or block.marks == ("no-run",), block.place
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))


def _tried_elsewhere():
    """Names of pages whose blocks have a test of their own."""
    tests = [file.read_text() for file in TESTS.rglob("test_*.py") if file != Path(__file__)]
    return re.findall(r"[\w-]+\.md", "".join(text for text in tests if "tests.documents" in text))


@pytest.mark.parametrize(
    "page",
    [page for page in _pages_with("python") if page.name not in _tried_elsewhere()],
    ids=_name,
)
def test_python_blocks_run(page, single, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    # What a page sets in dask.config is gone afterwards.
    monkeypatch.setattr(dask.config, "config", copy.deepcopy(dask.config.config))
    with single.as_current():
        names = run_python_blocks(page, tmp_path)
    if "run" in names:
        assert names["run"].vectors.shape == (names["run"].graph.nodes, names["run"].dim)


@pytest.mark.parametrize("page", _pages_with("bash"), ids=_name)
def test_commands_exist(page, tmp_path):
    (tmp_path / "DIR").mkdir()
    for file in ("figrl.crt", "figrl.key"):
        (tmp_path / file).touch()
    for block in blocks(page, "bash"):
        for words in commands(block):
            try:
                check_command(words, tmp_path)
            except Exception as error:
                error.add_note(f"{block.place}: {' '.join(words)}")
                raise


@pytest.mark.parametrize("page", _pages_with("yaml"), ids=_name)
def test_configurations_are_read(page, tmp_path):
    for number, block in enumerate(blocks(page, "yaml")):
        file, content = tmp_path / f"{number}.yaml", yaml.safe_load(block.text)
        file.write_text(block.text)
        if "figrl" in content:
            for section, options in content["figrl"].items():
                if section == "storage":
                    section, options = "cluster", {"storage": options}
                SECTIONS[section].model_validate(options)
        elif "sources" in content:
            assert read_reindex_config(file).sources
        else:
            assert read_cluster_config(file)


def test_the_set_up_of_readme_is_what_ci_runs():
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    for block in blocks(README, "bash")[:2]:
        assert block.text.strip() in steps


def test_the_main_path_of_readme_runs(single, tmp_path, monkeypatch):
    """The commands for the engineer, on a ring of 200 nodes with short chords."""
    monkeypatch.chdir(tmp_path)
    ends = [(node, (node + step) % 200) for node in range(200) for step in (1, 2, 5)]
    for name, pairs in (("edges", ends), ("new-edges", [(900, 3), (900, 4), (901, 77)])):
        columns = dict(zip(("source", "target"), zip(*pairs, strict=True), strict=True))
        pyarrow.csv.write_csv(pa.table(columns), f"{name}.csv")
    Path("cluster.yaml").write_text(f"scheduler: {single.scheduler.address}\n")
    ran = []
    for block in blocks(README, "bash"):
        lines = [words[1:] for words in commands(block) if words[0] == "figrl"]
        if [words[0] for words in lines][:1] != ["embed"]:
            continue
        for words in lines:
            assert main([*words, "--cluster", "cluster.yaml"]) == 0, words
            ran.append(words[0])
    assert ran == ["embed", "ingest", "embed", "export", "fold-in"]
    assert pq.read_table("vectors.parquet").num_rows == 200
    assert pq.read_table("new-vectors.parquet")["id"].to_pylist() == [900, 901]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files(page):
    """Anchors, and links within the site, are checked when it is built."""
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [
        target for target in targets if "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []


def _figures(text, title):
    """A table by rows and columns: what stands under a line that begins so."""
    lines = text[text.index(title) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[first:])
    head, _, *rows = ([cell.strip(" *`") for cell in line.split("|")[1:-1]] for line in table)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_the_figures_of_readme_are_those_of_the_benchmark():
    ours, quality = _figures(README.read_text(), "## Beside"), QUALITY.read_text()
    columns = {
        "clusters (modularity)": "**Modularity",
        "classes (micro-F1)": "**Micro-F1",
        "links (AUC)": "**AUC of held-out edges",
        "seconds": "**Seconds",
        "memory": "**Peak memory",
    }
    for column, title in columns.items():
        measured = {name: row["pubmed"] for name, row in _figures(quality, title).items()}
        shown = {name.replace(", `--preset", "").strip("`"): row for name, row in ours.items()}
        assert {name: row[column] for name, row in shown.items()} == {
            name: measured[name] for name in shown
        }


def test_the_site_builds_and_needs_no_other_host(tmp_path):
    mkdocs = Path(sys.executable).with_name("mkdocs")
    # Not --quiet, which hides broken links from --strict.
    done = subprocess.run(
        [mkdocs, "build", "-f", ".mkdocs.yml", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    site = tmp_path / "site"
    html = {file.relative_to(site): file.read_text() for file in site.rglob("*.html")}
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"(?:https?:)?//|<link[^>]*href=\"(?:https?:)?//"
    )
    assert [name for name, text in html.items() if loads.search(text)] == []
    styles = "".join(file.read_text() for file in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*|@import", styles) == []
    commands_page = html[Path("reference/commands.html")]
    assert "--on-bad-edges" in commands_page
    assert "largest_residual" in html[Path("reference/configuration.html")]
    assert "fit_transform" in html[Path("reference/python.html")]
    assert "<math" in html[Path("concepts.html")]
    assert "```" not in "".join(html.values())
