"""Hook of MkDocs: the pages of the site that are made from other files and from the code.

README is its first page and the notebook a page of it; the reference is made from the option
models, from the help of the command and, by mkdocstrings, from the docstrings of what `figrl`
offers. Formulas become MathML, so that a page needs no script from elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pygments.formatters import HtmlFormatter

import figrl
from figrl.config import section_model
from figrl.engine.cluster_file import ClusterConfig
from figrl.learn.spec import PRESETS
from figrl.nightly.config import ReindexConfig
from figrl_jobs.main import figrl as command

ROOT = Path(__file__).parents[2]
SHOWN_AS_THEY_ARE = ("cluster.yaml", "LICENSE")
"""Files outside docs/ that pages link to."""

_MATH = re.compile(r"^```math\n(.*?)^```$|\$`([^`\n]+)`\$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    made = {
        "index.md": readme(),
        "tutorial.md": notebook(ROOT / "docs" / "tutorial.ipynb"),
        "reference/commands.md": commands_page(),
        "reference/configuration.md": configuration_page(),
        "reference/python.md": python_page(),
        "code.css": HtmlFormatter(style="default").get_style_defs(".highlight"),
    }
    for name in SHOWN_AS_THEY_ARE:
        made[name] = (ROOT / name).read_text(encoding="utf-8")
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Make of GitHub's Markdown what MkDocs reads: links, marks of blocks, formulas."""
    names = "|".join(map(re.escape, SHOWN_AS_THEY_ARE))
    markdown = re.sub(rf"\]\(\.\./({names})\)", r"](\1)", markdown)
    markdown = markdown.replace("](tutorial.ipynb)", "](tutorial.md)")
    markdown = re.sub(r"^( *```\w+) no-run$", r"\1", markdown, flags=re.MULTILINE)
    return _MATH.sub(lambda found: _stashed(found[1] or found[2], block=bool(found[1])), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Put the formulas where their marks are."""
    html = re.sub(r"<p>(MATHblock[0-9a-f]+END)</p>", r'<div class="formula">\1</div>', html)
    return re.sub(
        r"MATH(inline|block)([0-9a-f]+)END",
        lambda found: str(convert(bytes.fromhex(found[2]).decode(), display=found[1])),
        html,
    )


def _stashed(formula: str, *, block: bool) -> str:
    """A word that Markdown leaves alone."""
    return f"MATH{'block' if block else 'inline'}{formula.strip().encode().hex()}END"


def readme() -> str:
    """README with the links of a page in docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\(docs/", "](", text)


def notebook(path: Path) -> str:
    """A notebook as Markdown, without outputs."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """The help of every job."""
    context = click.Context(
        command, info_name="figrl", terminal_width=100, **command.context_settings
    )
    parts = ["# Commands", "What `figrl --help` and `figrl JOB --help` say.", "## figrl"]
    parts.append(_block(command.get_help(context)))
    for name in command.list_commands(context):
        job = command.get_command(context, name)
        assert job is not None
        inner = click.Context(job, info_name=name, parent=context, terminal_width=100)
        parts += [f"## figrl {name}", _block(job.get_help(inner))]
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    # What click keeps of marks that forbid to wrap a paragraph is no text.
    return f"```text\n{text.replace(chr(8), '')}\n```"


def configuration_page() -> str:
    """Keys of the configuration files, and what the presets stand for."""
    parts = [
        "# Configuration",
        "Keys of the YAML files, with their defaults. A key of `ingest` and `embed` is an option "
        "of the job of that name too, with `-` for `_`, and an argument of the call from Python.",
        "## figrl reindex",
        *_section(ReindexConfig),
        "## Cluster files",
        "Exactly one section is given: `figrl JOB --cluster FILE`.",
        *_section(ClusterConfig),
        "## Presets",
        _table(
            ("option", *PRESETS),
            [(f"`{n}`", *(_value(p[n]) for p in PRESETS.values())) for n in PRESETS["paper"]],
        ),
        "A `width` below 1 is for each dimension.",
    ]
    return "\n\n".join(parts) + "\n"


def _section(model: type[BaseModel], place: str = "") -> Iterator[str]:
    """A table of the keys of a model, then those of its sections."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if place:
        yield f"### {place}"
    rows = [
        (f"`{key}`", _kind(field), _default(field), field.description or "")
        for key, field in fields.items()
    ]
    yield _table(("key", "value", "default", "meaning"), rows)
    for name, key in zip(model.model_fields, fields, strict=True):
        inner = section_model(model, name)
        if inner is not None:
            yield from _section(inner, f"{place}.{key}".lstrip("."))


def _kind(field: FieldInfo) -> str:
    annotation = field.annotation
    choices = [one for one in get_args(annotation) if one is not type(None)] or [annotation]
    if all(isinstance(one, str) for one in choices):
        return ", ".join(f"`{one}`" for one in choices)
    names = []
    for one in choices:
        if isinstance(one, type):
            section = issubclass(one, BaseModel)
            names.append("section" if section else _KINDS.get(one.__name__, one.__name__))
        else:
            names.append("list" if "tuple" in str(one) or one is ... else "text")
    return " or ".join(dict.fromkeys(names))


_KINDS = {"str": "text", "int": "integer", "float": "number", "bool": "`true` or `false`"}


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return ""
    return "required" if field.default is PydanticUndefined else _value(field.default)


def _value(value: Any) -> str:
    return "" if value is None or value == () else f"`{json.dumps(value)}`".replace('"', "")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def python_page() -> str:
    """All that `figrl` offers, for mkdocstrings."""
    parts = ["# Python", "All of it is imported from `figrl`."]
    parts += [f"::: figrl.{name}" for name in sorted(figrl.__all__, key=str.lower)]
    return "\n\n".join(parts) + "\n"
