"""The JSON Schema of architecture files, for editors and for saying what a value should be.

It is generated from the records in `simmodel.arch.record`, with the names that files use (`from`,
`copy`). Files that extend another may leave keys out and remove them with null.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import TaggedUnionSchema

from archgen.schema.tree import EXTENDS, Path, listed
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

# Looking into a JSON Schema: which keys stand at a path, and what a value should be, in words.

Schema = dict[str, Any]
REF = "#/$defs/"


@dataclass(frozen=True, eq=False)
class View:
    """One schema with its parts under `$defs`."""

    root: Schema

    def at(self, path: Path) -> Schema:
        """The schema of the value at `path` of a file; `{}` where the schema has no such path."""
        node = self.root
        for step in path:
            node = self._child_schema(self.resolved(node), step)
        return self.resolved(node)

    def resolved(self, node: Schema) -> Schema:
        """`node` with its reference followed, and without the null of an optional value."""
        if "$ref" in node:
            return self.resolved(self.root["$defs"][node["$ref"].removeprefix(REF)])
        options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
        return self.resolved(options[0]) if len(options) == 1 else node

    def _child_schema(self, node: Schema, step: str | int) -> Schema:
        for option in self._options(node):
            more = option.get("additionalProperties")
            if isinstance(step, int) and "items" in option:
                return self.resolved(option["items"])
            if step in option.get("properties", {}):
                return self.resolved(option["properties"][step])
            if isinstance(more, dict):
                return more
        return {}

    def _options(self, node: Schema) -> Iterator[Schema]:
        """`node` and what it may be instead, also where one of these is a choice again."""
        yield node
        for option in node.get("anyOf", ()):
            yield from self._options(self.resolved(option))

    def fitting_branch(self, node: Schema, given: Collection[str]) -> Schema:
        """Of mappings that `node` may be the one that has most of the `given` keys; else itself."""
        options = (option for option in self._options(node) if "properties" in option)
        return max(options, key=lambda o: len(o["properties"].keys() & {*given}), default=node)

    def keys(self, node: Schema, given: Collection[str] = ()) -> list[str]:
        """Keys that a mapping of this schema takes, where they are fixed."""
        named = list(self.fitting_branch(node, given).get("properties", ()))
        return named or list(node.get("propertyNames", {}).get("enum", ()))

    def holders(self, key: str) -> list[str]:
        """The mappings that take `key`, dotted, as `archs[]` for those in a list."""
        return list(dict.fromkeys(at for name, at in self.places() if name == key))

    def places(self) -> Iterator[tuple[str, str]]:
        """Every key of every mapping whose keys are fixed, and that mapping, dotted."""
        return self._key_places(self.root, "", ())

    def _key_places(
        self, node: Schema, at: str, above: tuple[int, ...]
    ) -> Iterator[tuple[str, str]]:
        for option in self._options(self.resolved(node)):
            if id(option) in above:  # a part that holds parts of its kind
                continue
            below = (*above, id(option))
            if "items" in option:
                yield from self._key_places(option["items"], f"{at}[]", below)
            for name, each in option.get("properties", {}).items():
                yield name, at
                yield from self._key_places(each, f"{at}.{name}", below)

    def words(self, node: Schema) -> list[str]:
        """Words that a value, or each item of a list, may be, where they are fixed."""
        for option in (node, node.get("items", {}), *node.get("anyOf", ())):
            if "enum" in option:
                return list(option["enum"])
        return []

    def expected(self, node: Schema) -> str:
        """What a value of this schema looks like, in words: `a positive whole number`."""
        if "examples" in node:
            return f"a quantity such as {node['examples'][0]!r}"
        if "anyOf" in node:
            one, *more = (self.resolved(part) for part in node["anyOf"])
            if "enum" in one and all(self.words(part) == one["enum"] for part in more):
                return f"{self.expected(one)}, or a list of them"
            return " or ".join(
                dict.fromkeys(self.expected(self.resolved(part)) for part in node["anyOf"])
            )
        if "enum" in node:
            return listed(node["enum"])
        kind = node.get("type")
        if kind in ("integer", "number"):
            return _number_description(node, "whole number" if kind == "integer" else "number")
        if kind == "array":
            some = "a list" if not node.get("minItems") else "a list of at least one"
            return f"{some} of {listed(self.words(node))}" if self.words(node) else some
        if kind == "string" and "pattern" in node:
            return "a word of letters, digits, '.', '_' and '-' that starts with a letter or digit"
        plain = {
            "object": "a mapping",
            "boolean": "true or false",
            "string": "text",
            "null": "null",
        }
        return plain.get(str(kind), "another value")


def _number_description(node: Schema, noun: str) -> str:
    above = node.get("exclusiveMinimum")
    if "maximum" in node and above is not None:
        return f"a {noun} above {above:g}, at most {node['maximum']:g}"
    if "maximum" in node:
        return f"a {noun} from {node.get('minimum', 0)} to {node['maximum']}"
    if above is not None:
        return f"a {noun} above {above:g}" if above else f"a positive {noun}"
    if "minimum" in node:
        least = node["minimum"]
        return f"a {noun} of at least {least:g}" if least else f"a {noun} that is not negative"
    return f"a {noun}"


_PARTIAL = "Partial"


class _Generator(GenerateJsonSchema):
    """Writes defaults that are quantities as files write them."""

    def encode_default(self, dft: Any) -> Any:
        return str(dft) if isinstance(dft, Bandwidth | Delay) else to_jsonable_python(dft)

    def tagged_union_schema(self, schema: TaggedUnionSchema) -> Schema:
        """As any other choice: what tells its branches apart is no field of its own."""
        return {"anyOf": super().tagged_union_schema(schema)["oneOf"]}


@cache
def view_of(record: type[BaseModel]) -> View:
    """The schema of a record, to be looked into."""
    return View(record.model_json_schema(by_alias=True, schema_generator=_Generator))


def arch_view() -> View:
    """That of one whole architecture."""
    return view_of(Arch)


def file_schema() -> Schema:
    """JSON Schema of an architecture file, whole or extending another."""
    whole = copy.deepcopy(arch_view().root)
    parts: Schema = whole.pop("$defs")
    parts["Memories"]["required"].remove("dram")  # shared memory may take its place
    parts["Arch"] = whole
    partial = {_PARTIAL + name: _partial(part) for name, part in copy.deepcopy(parts).items()}
    top = partial[_PARTIAL + "Arch"]
    top["required"] = ["name", EXTENDS]
    top["properties"][EXTENDS] = {"type": "string", "description": "File to lay this one over"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "archgen architecture",
        "$defs": parts | partial,
        "if": {"required": [EXTENDS]},
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
