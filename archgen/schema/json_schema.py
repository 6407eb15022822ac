"""The JSON Schema of architecture files: for editors, and for saying what a value should be.

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
from archgen.schema.mistakes import Path, listed
from simmodel.arch import Arch
from simmodel.units import Bandwidth, Delay

Schema = dict[str, Any]
_REF = "#/$defs/"
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
        "then": {"$ref": f"{_REF}{_PARTIAL}Arch"},
        "else": {"$ref": f"{_REF}Arch"},
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
        found["$ref"] = found["$ref"].replace(_REF, _REF + _PARTIAL)
    return found


def at(path: Path) -> Schema:
    """The schema of the value at `path` of a file; `{}` where the schema has no such path."""
    node = arch_schema()
    for step in path:
        node = _below(resolved(node), step)
    return resolved(node)


def resolved(node: Schema) -> Schema:
    """`node` with its reference followed, and without the null of an optional value."""
    if "$ref" in node:
        return resolved(arch_schema()["$defs"][node["$ref"].removeprefix(_REF)])
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    return resolved(options[0]) if len(options) == 1 else node


def _below(node: Schema, step: str | int) -> Schema:
    for option in (node, *map(resolved, node.get("anyOf", ()))):
        more = option.get("additionalProperties")
        if isinstance(step, int) and "items" in option:
            return resolved(option["items"])
        if step in option.get("properties", {}):
            return resolved(option["properties"][step])
        if isinstance(more, dict):
            return more
    return {}


def keys(node: Schema) -> list[str]:
    """Keys that a mapping of this schema takes, where they are fixed."""
    named = list(node.get("properties", ()))
    return named or list(node.get("propertyNames", {}).get("enum", ()))


def words(node: Schema) -> list[str]:
    """Words that a value, or each item of a list, may be, where they are fixed."""
    for option in (node, node.get("items", {}), *node.get("anyOf", ())):
        if "enum" in option:
            return list(option["enum"])
    return []


def expected(node: Schema) -> str:
    """What a value of this schema looks like, in words: `a positive whole number`."""
    if "examples" in node:
        return f"a quantity such as {node['examples'][0]!r}"
    if "anyOf" in node:
        one, *more = (resolved(part) for part in node["anyOf"])
        if "enum" in one and all(words(part) == one["enum"] for part in more):
            return f"{expected(one)}, or a list of them"
        return " or ".join(dict.fromkeys(expected(resolved(part)) for part in node["anyOf"]))
    if "enum" in node:
        return listed(node["enum"])
    kind = node.get("type")
    if kind in ("integer", "number"):
        return _number(node, "whole number" if kind == "integer" else "number")
    if kind == "array":
        some = "a list" if not node.get("minItems") else "a list of at least one"
        return f"{some} of {listed(words(node))}" if words(node) else some
    if kind == "string" and "pattern" in node:
        return "a word of letters, digits, '.', '_' and '-' that starts with a letter or digit"
    return {"object": "a mapping", "boolean": "true or false", "string": "text"}.get(
        str(kind), "another value"
    )


def _number(node: Schema, noun: str) -> str:
    if "maximum" in node:
        return f"a {noun} from {node.get('minimum', 0)} to {node['maximum']}"
    if node.get("exclusiveMinimum") == 0:
        return f"a positive {noun}"
    if node.get("minimum") == 0:
        return f"a {noun} that is not negative"
    return f"a {noun}"
