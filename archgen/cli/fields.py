"""The fields of a file format, part by part, from its JSON Schema.

The one idea: the records that files are read into are the format, so a table of fields is a walk
over their schema; parts that stand in several places (memories) are told once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from archgen.schema.view import REF, Schema, View
from simmodel.units import show_bytes


@dataclass(frozen=True)
class Field:
    """One key of a file."""

    name: str
    value: str
    """What it takes, in words."""
    default: str
    meaning: str
    required: bool


@dataclass(frozen=True)
class Part:
    """A mapping of a file; `title` are the paths where it stands."""

    title: str
    about: str
    fields: tuple[Field, ...]


def parts(view: View) -> list[Part]:
    """Every mapping with fixed keys, outer ones first."""
    places: dict[str, list[str]] = {}
    schemas: dict[str, Schema] = {}
    for path, known, schema in _walk(view, "", view.root):
        places.setdefault(known, []).append(path)
        schemas[known] = schema
    return [
        Part(
            ", ".join(dict.fromkeys(places[known])),
            " ".join(str(schema.get("description", "")).split()),
            tuple(_fields(view, schema)),
        )
        for known, schema in schemas.items()
    ]


def _walk(view: View, path: str, schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Path, name in the schema, and schema of each mapping below and with `schema`."""
    yield path, str(schema.get("title", path)), schema
    for key, node in schema.get("properties", {}).items():
        below = f"{path}.{key}" if path else key
        for suffix, inner in _mappings(view, node):
            yield from _walk(view, below + suffix, inner)


def _mappings(view: View, node: Schema) -> Iterator[tuple[str, Schema]]:
    """Mappings with fixed keys that a value may hold, with what their paths end in."""
    if "$ref" in node:
        inner = view.root["$defs"][node["$ref"].removeprefix(REF)]
        if "properties" in inner:
            yield "", inner
        return
    for option in node.get("anyOf", ()):
        yield from _mappings(view, option)
    if isinstance(more := node.get("additionalProperties"), dict):
        yield from ((f".<name>{end}", inner) for end, inner in _mappings(view, more))
    if "items" in node:
        yield from _mappings(view, node["items"])


def _fields(view: View, schema: Schema) -> Iterator[Field]:
    required = schema.get("required", ())
    for key, node in schema.get("properties", {}).items():
        inner = node if "examples" in node else view.resolved(node)
        own = inner.get("description", "") if inner.get("type") != "object" else ""
        yield Field(
            key,
            view.expected(inner).removesuffix(" or another value"),
            _default(node.get("default"), inner.get("examples", [""])[0]),
            " ".join(str(node.get("description") or own).split()),
            key in required,
        )


def _default(value: Any, example: str) -> str:
    """A default as a file would say it; nothing where a mapping or nothing is the default."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value == "" or isinstance(value, dict):
        return ""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]" if value else ""
    if isinstance(value, str):
        return _LONG.sub(lambda found: f"{float(found[0]):.6g}", value)
    unit = example.partition(" ")[2]
    return _IN_UNITS.get(unit, "{:g}".format)(value)


_IN_UNITS: dict[str, Callable[[float], str]] = {
    "KiB": show_bytes,
    "nm": lambda value: f"{value:g} nm",
    "GOPS": lambda value: f"{value / 1e9:g} GOPS",
}
"""How a default in base units is written, by the unit of the field's example."""
_LONG = re.compile(r"\d+\.\d{7,}")
"""A decimal fraction that binary could not hold exactly."""
