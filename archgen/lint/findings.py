"""All rules asked about one machine, and where in its file each answer belongs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from archgen.lint.of_chip import CHECKS as CHIP
from archgen.lint.of_control import CHECKS as CONTROL
from archgen.lint.of_engines import CHECKS as ENGINES
from archgen.lint.of_least import CHECKS as LEAST
from archgen.lint.of_memories import CHECKS as MEMORIES
from archgen.lint.of_ports import CHECKS as PORTS
from archgen.lint.of_scale import CHECKS as SCALE
from archgen.lint.rules import RULES, SEVERITIES, Rule
from archgen.lint.subject import Check, Sight, Subject
from archgen.schema.mistakes import Position, dotted
from archgen.schema.tree import Table, position
from simmodel.arch import Arch

CHECKS: dict[str, Check] = {**CHIP, **PORTS, **MEMORIES, **ENGINES, **CONTROL, **SCALE, **LEAST}
"""The function of each rule."""
_ORDER = list(SEVERITIES)


@dataclass(frozen=True)
class Finding:
    """One thing about a machine that is beyond a rule's limit."""

    name: str
    """Of the rule."""
    rule: Rule
    arch: str
    at: Position
    sight: Sight

    @property
    def path(self) -> str:
        """The field, dotted."""
        return dotted(self.sight.path)

    def __str__(self) -> str:
        said = f"{self.path}: {self.sight.figure}; {self.sight.usual}"
        return f"{self.at}: {self.rule.severity}: {said} [{self.name}]"

    def record(self) -> dict[str, Any]:
        """Everything about it, as JSON takes it."""
        return {
            "rule": self.name,
            "severity": self.rule.severity,
            "arch": self.arch,
            "file": self.at.file,
            "line": self.at.line,
            "column": self.at.column,
            "field": self.path,
            "figure": self.sight.figure,
            "usual": self.sight.usual,
            "chip": self.sight.chip,
            "limit": self.rule.threshold,
            "source": self.rule.source,
        }


def findings(arch: Arch, ignored: Collection[str] = ()) -> list[Finding]:
    """What is implausible about `arch`, the worst first; places are its name alone.

    A memory is told once: what is too large for a wafer is not told to be too large for a mask.
    """
    subject = Subject.of(arch)
    found = [
        Finding(name, rule, arch.name, Position(arch.name), sight)
        for name, rule in RULES.items()
        if name not in ignored
        for sight in CHECKS[name](subject, rule.limit)
    ]
    if any(each.name == "area-wafer" for each in found):
        found = [each for each in found if each.name != "area-reticle"]
    return sorted(found, key=lambda each: _ORDER.index(each.rule.severity))


def located(found: Finding, tree: Table) -> Finding:
    """`found` at its place in the file of `tree`."""
    at = position(tree, found.sight.path)
    return Finding(found.name, found.rule, found.arch, at, found.sight)
