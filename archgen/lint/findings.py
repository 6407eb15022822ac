"""All rules asked about one machine, and where in its file each answer belongs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archgen.lint.chip_rules import CHIP_CHECKS as CHIP
from archgen.lint.chip_rules import SCALE_CHECKS as SCALE
from archgen.lint.control_rules import CONTROL_CHECKS as CONTROL
from archgen.lint.control_rules import MINIMUM_CHECKS as LEAST
from archgen.lint.engine_rules import CHECKS as ENGINES
from archgen.lint.memory_rules import MEMORY_CHECKS as MEMORIES
from archgen.lint.memory_rules import PORT_CHECKS as PORTS
from archgen.lint.rules import RULES, SEVERITIES, Kind, LintRule
from archgen.lint.subject import Check, LintedMachine, Sight
from archgen.schema.extends import shipped_folder
from archgen.schema.tree import FilePosition, Table, dotted, position
from simmodel.arch.record import Arch

CHECKS: dict[str, Check] = {**CHIP, **PORTS, **MEMORIES, **ENGINES, **CONTROL, **SCALE, **LEAST}
"""The function of each rule."""
_ORDER = list(SEVERITIES)


@dataclass(frozen=True)
class LintFinding:
    """One thing about a machine that is beyond a rule's limit."""

    name: str
    """Of the rule."""
    rule: LintRule
    arch: str
    at: FilePosition
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


def findings(arch: Arch, ignored: Collection[str] = ()) -> list[LintFinding]:
    """What is implausible about `arch`, the worst first; places are its name alone.

    A memory is told once: what is too large for a wafer is not told to be too large for a mask.
    """
    subject = LintedMachine.of(arch)
    found = [
        LintFinding(name, rule, arch.name, FilePosition(arch.name), sight)
        for name, rule in RULES.items()
        if name not in ignored
        for sight in CHECKS[name](subject, rule.limit)
    ]
    if any(each.name == "area-wafer" for each in found):
        found = [each for each in found if each.name != "area-reticle"]
    return sorted(found, key=lambda each: _ORDER.index(each.rule.severity))


def located(found: LintFinding, tree: Table) -> LintFinding:
    """`found` at its place in the file of `tree`."""
    at = position(tree, found.sight.path)
    return LintFinding(found.name, found.rule, found.arch, at, found.sight)


# What is implausible about many machines, each thing once.

_NAMED = 3


def brief(
    found: Iterable[LintFinding],
    files: Mapping[str, str],
    kinds: Callable[[], Collection[Kind]] = tuple,
) -> Iterator[str]:
    """A line for each field and rule, and one for the notes that are left; nothing where all is
    well.

    Args:
        found: about all machines.
        files: of a machine by name, where it is read or what it is a variant of.
        kinds: tells which layers the networks have; it is asked where that decides.
    """
    grouped: dict[tuple[str, str], list[LintFinding]] = {}
    notes: list[LintFinding] = []
    for each in found:
        matters = each.rule.layers is not None and each.rule.layers in kinds()
        if each.rule.severity == "note" and not matters:
            notes.append(each)
        else:
            grouped.setdefault((each.name, each.path), []).append(each)
    for same in grouped.values():
        first, names = same[0], list(dict.fromkeys(found.arch for found in same))
        where = f"{first.rule.severity}: {_machine_names(names)}: {first.path}"
        yield f"{where}: {first.sight.figure}; {first.sight.usual} [{first.name}]"

    if notes:
        yield _counted(notes, files)


def _counted(notes: list[LintFinding], files: Mapping[str, str]) -> str:
    """How many there are, of which rules, and what says them."""
    count = len({(each.name, each.path) for each in notes})
    rules = dict.fromkeys(each.name for each in notes)
    asked = [_spelled(name, files.get(name, name)) for name in {n.arch: 0 for n in notes}]
    which = list(dict.fromkeys(asked))
    more = " ..." if len(which) > _NAMED else ""
    return (
        f"{count} note{'s' * (count != 1)} ({', '.join(rules)}): "
        f"archgen lint {' '.join(which[:_NAMED])}{more}"
    )


def _spelled(name: str, file: str) -> str:
    """A machine as a command takes it: a shipped one by its name."""
    path = Path(file)
    return path.stem if path.parent == shipped_folder() else file or name


def _machine_names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
