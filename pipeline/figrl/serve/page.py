"""HTML pages that need nothing else: one template environment, one stylesheet."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from figrl.units import human_bytes, human_seconds


def render_page(template: str, **values: Any) -> str:
    """Fill a template of ``templates/``; all text is escaped, but for ``Markup`` such as SVG."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("figrl.serve"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["bytes"] = human_bytes
    environment.filters["duration"] = human_seconds
    style = environment.loader.get_source(environment, "style.css")[0]  # type: ignore[union-attr]
    return environment.get_template(template).render(style=Markup(style), **values)
