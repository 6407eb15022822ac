"""From a file's bytes to a tree with positions, by YAML 1.2's rules for plain values.

PyYAML parses and composes; its own resolver follows YAML 1.1 (`on` is true, `12:30` is 750, `1e3`
is text), so this module brings the resolver of the YAML 1.2 core schema. No object is constructed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

import archgen.schema.tree as trees
from archgen.schema.tree import FilePosition, ListNode, Mistake, Node, ScalarNode, Table
from archgen.schema.tree import Path as TreePath

_MOST_NODES = 20_000
_DEEPEST = 100
_LARGEST = 1e18
_TAG = "tag:yaml.org,2002:"


class _CoreSchemaResolver(yaml.resolver.BaseResolver):
    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


class _Loader(_CoreSchemaResolver, yaml.SafeLoader):
    """Composes nodes in Python, which says best what is wrong with a text."""


class _Quick(_CoreSchemaResolver, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes nodes by libyaml, where PyYAML has that: ten times as fast."""


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
):
    _CoreSchemaResolver.add_implicit_resolver(
        _TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), list(_first)
    )
_CoreSchemaResolver.yaml_implicit_resolvers.setdefault("", []).append(
    (_TAG + "null", re.compile(r"\Z"))
)


@dataclass(frozen=True)
class FileType:
    """What a file holds, as messages call it."""

    root: str
    """What paths in the file start with."""
    noun: str
    telling: frozenset[str] = frozenset()
    """Keys by which a file is meant as one, some of them by mistake."""


_STUDY_KEYS = "models archs batches compiler explore sensitivity networks"
_ARCH_KEYS = "extends cores memories matrix vector"
ARCHITECTURE = FileType("arch", "architecture", frozenset(_ARCH_KEYS.split()))
STUDY = FileType("study", "study", frozenset(_STUDY_KEYS.split()))
BUDGET = FileType("budget", "budget file")


def read_tree(
    path: Path, shown: str, kind: FileType = ARCHITECTURE
) -> tuple[Table | None, list[Mistake]]:
    """The mapping in the file at `path`, which messages call `shown`, and its mistakes.

    None where the file holds no mapping that could be checked further.
    """
    try:
        raw = path.read_bytes()
    except OSError as problem:
        return None, [_file_mistake(shown, f"cannot be read: {problem.strerror}")]
    if b"\0" in raw:
        return None, [_file_mistake(shown, "is a binary file; expected YAML text")]
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = raw[: problem.start]
        column = problem.start - (before.rfind(b"\n") + 1) + 1
        at = FilePosition(shown, before.count(b"\n") + 1, column)
        byte = f"0x{raw[problem.start]:02x}"
        return None, [Mistake(at, "", f"byte {byte} is not UTF-8; save the file as UTF-8")]
    root, mistakes = _parse(text, shown, kind)
    if root is not None and kind.telling.isdisjoint(root.entries):
        for other in (ARCHITECTURE, STUDY):
            if not other.telling.isdisjoint(root.entries):
                said = f"holds {_article(other)}; expected {_article(kind)}"
                return None, [_file_mistake(shown, said)]
    return root, list(mistakes)


def read_packaged(path: Path) -> Any:
    """The values of a file that comes with the package."""
    return yaml.load(path.read_text("utf-8"), Loader=_Quick)


def _article(kind: FileType) -> str:
    return f"{'an' if kind.noun[0] in 'aeiou' else 'a'} {kind.noun}"


def _file_mistake(shown: str, message: str) -> Mistake:
    return Mistake(FilePosition(shown), "", message)


@lru_cache(maxsize=64)
def _parse(text: str, shown: str, kind: FileType) -> tuple[Table | None, Sequence[Mistake]]:
    """What a text holds, remembered: a sweep and its families name one file again and again, and
    composing its text takes most of the time that an architecture takes to load."""
    try:
        root = _composed(text)
        if root is None:
            return None, [
                _file_mistake(shown, f"is empty; expected the mapping of {_article(kind)}")
            ]
        return _Converter(shown, kind).table(root)
    except yaml.MarkedYAMLError as problem:
        return None, [_syntax(problem, shown, kind)]
    except yaml.reader.ReaderError as problem:
        before = text[: problem.position]
        at = FilePosition(shown, before.count("\n") + 1, len(before) - before.rfind("\n"))
        said = f"control character U+{ord(text[problem.position]):04X} in the text"
        return None, [Mistake(at, "", said)]
    except RecursionError:
        return None, [_file_mistake(shown, "is nested too deeply")]


def _composed(text: str) -> yaml.Node | None:
    """The nodes of `text`; raises what PyYAML's own parser says of a text that is no YAML."""
    try:
        return yaml.compose(text, Loader=_Quick)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=_Loader)


def _syntax(problem: yaml.MarkedYAMLError, shown: str, kind: FileType) -> Mistake:
    mark = problem.problem_mark or problem.context_mark
    at = (
        FilePosition(shown) if mark is None else FilePosition(shown, mark.line + 1, mark.column + 1)
    )
    said = problem.problem or str(problem)
    if "'\\t'" in said:
        said = "a tab stands where only spaces may indent"
    elif "another document" in said:
        said = f"a second document starts; expected one {kind.noun} per file"
    elif problem.context and "while" in problem.context:
        said = f"{said} {problem.context}"
    return Mistake(at, "", f"not valid YAML: {said}")


class _Converter:
    """Turns composed nodes into the tree and collects what YAML allows and we do not."""

    def __init__(self, shown: str, kind: FileType) -> None:
        self.shown = shown
        self.kind = kind
        self.mistakes: list[Mistake] = []
        self.open: list[yaml.Node] = []
        self.count = 0

    def table(self, root: yaml.Node) -> tuple[Table | None, list[Mistake]]:
        node = self.node(root, ())
        if not isinstance(node, Table):
            if not self.mistakes:
                got = (
                    "a list" if isinstance(node, ListNode) else "text"
                )  # whose it is, is not known
                self.say(root, (), f"expected the mapping of {_article(self.kind)}, got {got}")
            return None, self.mistakes
        return node, self.mistakes

    def at(self, node: yaml.Node) -> FilePosition:
        return FilePosition(self.shown, node.start_mark.line + 1, node.start_mark.column + 1)

    def say(self, node: yaml.Node, path: TreePath, message: str) -> None:
        self.mistakes.append(Mistake(self.at(node), trees.dotted(path, self.kind.root), message))

    def broken(self, node: yaml.Node, path: TreePath, message: str) -> ScalarNode:
        self.say(node, path, message)
        return ScalarNode(self.at(node), None, "", broken=True)

    def node(self, node: yaml.Node, path: TreePath) -> Node:
        """The tree below `node`, with a broken leaf and a mistake for what cannot be in one."""
        self.count += 1
        if len(self.open) > _DEEPEST:
            raise RecursionError
        if node in self.open:
            return self.broken(node, path, "an alias stands inside the value that it names")
        if self.count > _MOST_NODES:
            if self.count == _MOST_NODES + 1:
                self.say(node, path, f"aliases unfold to more than {_MOST_NODES} values")
            return ScalarNode(self.at(node), None, "", broken=True)
        if isinstance(node, yaml.ScalarNode):
            return self.leaf(node, path)
        self.open.append(node)
        read = self.row if isinstance(node, yaml.SequenceNode) else self.mapping
        found = read(node, path)
        self.open.pop()
        return found

    def row(self, node: yaml.Node, path: TreePath) -> Node:
        below = [self.node(item, (*path, index)) for index, item in enumerate(node.value)]
        return ListNode(self.at(node), tuple(below))

    def mapping(self, node: yaml.Node, path: TreePath) -> Node:
        entries: dict[str, trees.MappingEntry] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.say(key, path, "expected a word as key, got a list or mapping")
                continue
            name = str(key.value)
            if name in entries:
                first = entries[name].key_at.line
                self.say(key, path, f"key {name!r} stands here twice; first in line {first}")
                continue
            entries[name] = trees.MappingEntry(self.at(key), self.node(value, (*path, name)))
        return Table(self.at(node), entries)

    def leaf(self, node: yaml.ScalarNode, path: TreePath) -> ScalarNode:
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        try:
            value = _scalar(kind, text)
        except (KeyError, ValueError, OverflowError):
            return self.broken(
                node, path, f"no value is written {text[:40]!r} with tag {node.tag!r}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            return self.broken(node, path, f"expected a finite number, got {text}")
        if isinstance(value, int | float) and abs(value) > _LARGEST:
            return self.broken(node, path, f"{text[:20]} is out of range; at most {_LARGEST:g}")
        return ScalarNode(self.at(node), value, text)


def _scalar(kind: str, text: str) -> str | int | float | bool | None:
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return {"true": True, "false": False}[text.lower()]
    if kind == "int":
        return int(text, {"0x": 16, "0o": 8}.get(text[:2], 10))
    if kind == "float":
        return float(re.sub(r"(?i)\.(inf|nan)", r"\1", text))
    raise KeyError(kind)
