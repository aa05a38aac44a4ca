"""Manifests against an OpenAPI schema of Kubernetes; unknown fields are errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def problems(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """What a schema does not allow in a value."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{place} is no number and no text"
        return
    wanted = _TYPES.get(schema.get("type", ""), object)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        yield f"{place} is no {schema['type']}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from problems(item, schema["items"], f"{place}[{number}]")
    elif isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield from (
            f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value
        )
        others = schema.get("additionalProperties")
        for name, inner in value.items():
            found = schema.get("properties", {}).get(name, others)
            if found is None:
                yield f"{place}.{name} is unknown"
            else:
                yield from problems(inner, found, f"{place}.{name}")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place} is none of {schema['enum']}"
