"""The table of rules: what each looks at, its limit, and where that comes from.

The one idea: what is judged is data (`rules.yaml`), down to the expression that is true beyond the
limit and the words that say it. Expressions are a part of Python's: fields of the file, figures of
`LintedMachine`, and the functions below.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from archgen.schema.source import read_packaged
from archgen.schema.tree import FilePosition, dotted
from archgen.schema.tree import Path as TreePath
from simmodel.arch.units import show_bytes

# Published chips, from `chips.yaml`: what has been built, to hold a machine against.

Positive = Annotated[float, Field(gt=0)]


class LintRecord(BaseModel):
    """A part of a table: frozen, and with no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Published(LintRecord):
    """What is published of a chip."""

    name: str
    source: str
    status: Literal["read", "derived", "recalled"]

    def cited(self) -> str:
        """Its name with where the figures are from."""
        recalled = ", recalled" if self.status == "recalled" else ""
        return f"{self.name} ({self.source}{recalled})"


class DramKind(Published):
    """The most of one kind of DRAM behind one chip."""

    most: Positive
    """GB/s."""


class Chip(Published):
    """The figures of one chip."""

    clock: Positive
    """Hz."""
    macs: Positive
    """Of int8 in a cycle, of the whole chip."""
    node: Positive | None = None
    """nm."""
    sram: Positive | None = None
    """Bytes on the chip."""
    dram: Positive | None = None
    """Bytes per second."""
    area: Positive | None = None
    """mm2."""

    @property
    def tops(self) -> float:
        """Tera-operations per second; a multiply-accumulate counts two."""
        return 2e-12 * self.macs * self.clock

    @property
    def macs_per_byte(self) -> float | None:
        """MACs for each byte of DRAM bandwidth."""
        return None if self.dram is None else self.macs * self.clock / self.dram

    @property
    def sram_per_mac(self) -> float | None:
        """Bytes on the chip for each MAC of a cycle."""
        return None if self.sram is None else self.sram / self.macs

    def figure(self, name: str, sram: float | None = None) -> float | None:
        """The figure `name`, of a chip with up to `sram` bytes on it."""
        value: float | None = getattr(self, name)
        return value if sram is None or (self.sram or 0) <= sram else None


class PublishedChips(LintRecord):
    """The whole table."""

    chips: dict[str, Chip]
    dram: dict[str, DramKind]


@cache
def published_chips() -> PublishedChips:
    """The table that comes with the package."""
    return PublishedChips.model_validate(read_packaged(Path(__file__).with_name("chips.yaml")))


Severity = Literal["error", "warning", "note"]
SEVERITIES: dict[Severity, str] = {
    "error": "nobody builds this",
    "warning": "something stands in the way, or is paid for and cannot be used",
    "note": "unusual, worth a look",
}
"""The worst first."""


class LintRule(LintRecord):
    """One thing that is looked at."""

    severity: Severity
    about: str
    """What is looked at."""
    limit: float
    measure: str
    """Of what `limit` is the number."""
    array: bool = False
    """Whether it is asked of each array of a core, as if that were the `matrix`."""
    source: str
    """Of the limit; `chips`: the published chips."""
    status: Literal["read", "derived", "recalled", "assumed"] = "derived"
    each: str = ""
    """What it is asked of, one `key` and `it` after the other; empty: of the machine, once."""
    let: dict[str, str | float] = {}
    """Names for what its expressions have in common."""
    when: str
    """True beyond the limit."""
    field: str = ""
    """The field of the file; this and what follows hold expressions in braces."""
    figure: str = ""
    """What it says, or what follows from it."""
    usual: str = ""
    """What is usual or possible."""
    chip: str = ""
    """A published chip for comparison."""

    @property
    def threshold(self) -> str:
        """The limit in words."""
        return f"{self.limit:g} {self.measure}"


RULES = {
    name: LintRule.model_validate(rule)
    for name, rule in read_packaged(Path(__file__).with_name("rules.yaml")).items()
}
"""Name -> rule, in the order of the table."""


# What a rule finds on a machine.


@dataclass(frozen=True)
class LintFinding:
    """One thing about a machine that is beyond a rule's limit."""

    name: str
    """Of the rule."""
    rule: LintRule
    arch: str
    at: FilePosition
    path: TreePath
    """The field, as in files."""
    figure: str
    usual: str
    chip: str

    def record(self) -> dict[str, Any]:
        """Everything about it, as JSON takes it."""
        rule, at = self.rule, self.at
        return {
            "rule": self.name, "severity": rule.severity, "arch": self.arch,
            "file": at.file, "line": at.line, "column": at.column,
            "field": dotted(self.path), "figure": self.figure, "usual": self.usual,
            "chip": self.chip, "limit": rule.threshold, "source": rule.source,
        }  # fmt: skip


def beyond_limit(name: str, rule: LintRule, machine: Any) -> Iterator[LintFinding]:
    """What is beyond the limit of a rule; places are the machine's name alone."""
    rows = _Names(rule, machine).value(rule.each) if rule.each else (("", None),)
    for key, it in rows.items() if isinstance(rows, Mapping) else rows:
        names = _Names(rule, machine, key=key, it=it)
        if names.value(rule.when):
            parts = names.text(rule.field).split(".")
            if machine.arch.memories.dram.on_chip and parts[:2] == ["memories", "dram"]:
                parts = ["memories", "shared"]  # which is what the file says
            path = tuple(int(part) if part.isdecimal() else part for part in parts)
            far = machine.arch.memories.far_name("dram")
            said = map(names.text, (rule.figure, rule.usual, rule.chip))
            figure, usual, chip = (each.replace("DRAM", far) for each in said)
            arch = machine.arch.name
            yield LintFinding(name, rule, arch, FilePosition(arch), path, figure, usual, chip)


class _Names(dict[str, Any]):
    """Names of a rule: its own, figures of the machine, fields of its file."""

    def __init__(self, rule: LintRule, machine: Any, **given: Any) -> None:
        super().__init__(_FUNCTIONS, limit=rule.limit, **given)
        self._rule, self._machine = rule, machine

    def __missing__(self, name: str) -> Any:
        if name in self._rule.let:
            found = self.value(str(self._rule.let[name]))
        else:
            holder = self._machine if hasattr(type(self._machine), name) else self._machine.arch
            found = getattr(holder, name)
        self[name] = found
        return found

    def value(self, expression: str) -> Any:
        return eval(_compiled(expression), {"__builtins__": {}}, self)

    def text(self, words: str) -> str:
        """Words with the values of the expressions in their braces."""
        return str(self.value(f"f'''{words}'''"))


_FUNCTIONS = {
    "ceil": math.ceil, "enumerate": enumerate, "int": int, "len": len, "max": max, "min": min,
    "round": round, "show_bytes": show_bytes, "sum": sum,
}  # fmt: skip
_LAWFUL = (
    ast.Expression, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call,
    ast.keyword, ast.Attribute, ast.Subscript, ast.Name, ast.Constant, ast.Tuple, ast.JoinedStr,
    ast.FormattedValue, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


@cache
def _compiled(expression: str) -> CodeType:
    """Raises ValueError for what is no arithmetic, comparison or name."""
    tree = ast.parse(expression, mode="eval")
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if hidden or not isinstance(node, _LAWFUL):
            raise ValueError(f"a rule cannot say {ast.unparse(node)!r}: {expression}")
    return compile(tree, "rules.yaml", "eval")
