"""The JSON Schema of architecture files, for editors and for saying what a value should be.

It is generated from the records in `simmodel.arch`, with the names that files use (`from`, `copy`).
Files that extend another may leave keys out and remove them with null.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from archgen.schema.extends import KEY
from archgen.schema.view import REF, Schema, View
from simmodel.arch import Arch
from simmodel.units import Bandwidth, Delay

_PARTIAL = "Partial"


class _Generator(GenerateJsonSchema):
    """Writes defaults that are quantities as files write them."""

    def encode_default(self, dft: Any) -> Any:
        return str(dft) if isinstance(dft, Bandwidth | Delay) else to_jsonable_python(dft)


@cache
def arch_schema() -> Schema:
    """JSON Schema of one whole architecture, with its parts under `$defs`."""
    return Arch.model_json_schema(by_alias=True, schema_generator=_Generator)


def file_schema() -> Schema:
    """JSON Schema of an architecture file, whole or extending another."""
    whole = copy.deepcopy(arch_schema())
    parts: Schema = whole.pop("$defs")
    parts["Arch"] = whole
    partial = {_PARTIAL + name: _partial(part) for name, part in copy.deepcopy(parts).items()}
    top = partial[_PARTIAL + "Arch"]
    top["required"] = ["name", KEY]
    top["properties"][KEY] = {"type": "string", "description": "File to lay this one over"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "archgen architecture",
        "$defs": parts | partial,
        "if": {"required": [KEY]},
        "then": {"$ref": f"{REF}{_PARTIAL}Arch"},
        "else": {"$ref": f"{REF}Arch"},
    }


def _partial(part: Schema) -> Schema:
    """`part` with nothing required, null allowed, and references to other partial parts."""
    part.pop("required", None)
    renamed: Schema = _renamed(part)
    for key, value in renamed.get("properties", {}).items():
        if key != "name":
            renamed["properties"][key] = {"anyOf": [value, {"type": "null"}]}
    return renamed


def _renamed(node: Any) -> Any:
    if isinstance(node, list):
        return [_renamed(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _renamed(value) for key, value in node.items()}
    if "$ref" in found:
        found["$ref"] = found["$ref"].replace(REF, REF + _PARTIAL)
    return found


@cache
def arch_view() -> View:
    """The schema of one whole architecture, to be looked into."""
    return View(arch_schema())
