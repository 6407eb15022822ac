"""All rules asked about one machine, and where in its file each answer belongs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from archgen.lint.rules import RULES, SEVERITIES, LintRule, Sight, sights
from archgen.lint.subject import NETWORK_TYPES, LintedMachine
from archgen.schema.load import shipped_folder
from archgen.schema.tree import FilePosition, Table, dotted, position
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

# Rules that are no one expression.


def _network_type(machine: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = machine.arch
    others = [name for name in arch.types if name in NETWORK_TYPES]
    for place, dtype in enumerate(arch.types):
        if not arch.matrix.present or (dtype in NETWORK_TYPES) >= limit:
            continue
        asked = f"--dtype {dtype}" if place else "no --dtype"
        figure = (
            f"networks are quantized to int8 or stay real, none becomes {dtype}: the array runs no"
            f" product of a study that asks for {asked}; what is real and what neither the array"
            " nor the lanes have is the host's"
        )
        held = f"{others[0]} first" if others else f"one of {', '.join(NETWORK_TYPES)} here"
        usual = f"{held}, {dtype} in matrix.rate alone; a rate below 1 says that it is slower"
        yield Sight(("types", place), figure, usual, machine.nearest)


def _control_large(machine: LintedMachine, limit: float) -> Iterator[Sight]:
    front, engines = machine.arch.front_end, machine.arch.engines()
    deepest = max(engines, key=front.depth)
    if front.depth(deepest) > limit:
        figure = f"{front.depth(deepest):,} for {deepest}"
        yield Sight(("front_end", "queue_depth"), figure, "2 to 64", "Gemmini: 8 and 2")
    if front.sync == "tokens" and front.tokens > _TOKENS * limit:
        chip = "AWS NeuronCore v2: 256"
        yield Sight(("front_end", "tokens"), f"{front.tokens:,}", "16 to 256", chip)
    if front.loop_buffer is not None and front.loop_buffer > _KEPT * limit:
        chip = "NVIDIA V100 (Jia et al., 2018, recalled): 12 KiB of instructions in each part"
        usual = "256 B to 64 KiB"
        yield Sight(("front_end", "loop_buffer"), show_bytes(front.loop_buffer), usual, chip)


_TOKENS = 4
"""Tokens for each entry of a queue, where both are at their limit."""
_KEPT = 1024
"""Bytes of a loop buffer for the same."""
CHECKS: dict[str, Callable[[LintedMachine, float], Iterator[Sight]]] = {
    "network-type": _network_type,
    "control-large": _control_large,
}
"""Their functions."""
_NAMED = 3
"""Machines that a line names."""


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
    subject = LintedMachine(arch)
    found = [
        LintFinding(name, rule, arch.name, FilePosition(arch.name), sight)
        for name, rule in RULES.items()
        if name not in ignored
        for sight in (sights(rule, subject) if rule.when else CHECKS[name](subject, rule.limit))
    ]
    if any(each.name == "area-wafer" for each in found):
        found = [each for each in found if each.name != "area-reticle"]
    return sorted(found, key=lambda each: list(SEVERITIES).index(each.rule.severity))


def located(found: LintFinding, tree: Table) -> LintFinding:
    """`found` at its place in the file of `tree`."""
    return replace(found, at=position(tree, found.sight.path))


def brief(found: Iterable[LintFinding], files: Mapping[str, str]) -> Iterator[str]:
    """Of what was found about many machines, a line for each field and rule, and one for the notes;
    nothing where all is well. `files`: where a machine is read, or what it is a variant of, by its
    name."""
    grouped: dict[tuple[str, str], list[LintFinding]] = {}
    for each in found:
        grouped.setdefault((each.name, each.path), []).append(each)
    notes = [same for same in grouped.values() if same[0].rule.severity == "note"]
    for first, *others in grouped.values():
        if first.rule.severity != "note":
            archs = list(dict.fromkeys(each.arch for each in (first, *others)))
            more = f" and {len(archs) - _NAMED} more" if len(archs) > _NAMED else ""
            where = f"{first.rule.severity}: {', '.join(archs[:_NAMED])}{more}: {first.path}"
            yield f"{where}: {first.sight.figure}; {first.sight.usual} [{first.name}]"
    if notes:
        rules = dict.fromkeys(same[0].name for same in notes)
        noted = dict.fromkeys(each.arch for same in notes for each in same)
        which = list(dict.fromkeys(_spelled(name, files.get(name, name)) for name in noted))
        asked = " ".join(which[:_NAMED]) + " ..." * (len(which) > _NAMED)
        many = "s" * (len(notes) != 1)
        yield f"{len(notes)} note{many} ({', '.join(rules)}): archgen lint {asked}"


def _spelled(name: str, file: str) -> str:
    """A machine as a command takes it: a shipped one by its name."""
    path = Path(file)
    return path.stem if path.parent == shipped_folder() else file or name
