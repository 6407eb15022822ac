"""All rules asked about one machine, and where in its file each answer belongs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from archgen.lint.products import (
    LAYER_CHANNELS,
    depthwise_lacks,
    on_array,
    on_lanes,
    slowdown,
    with_mode,
)
from archgen.lint.rules import RULES, SEVERITIES, Kind, LintRule, Sight, sights
from archgen.lint.subject import NETWORK_TYPES, LintedMachine
from archgen.schema.load import shipped_folder
from archgen.schema.tree import FilePosition, Table, dotted, position
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

# Rules that are no one expression.


def _depthwise_slow(machine: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, matrix = machine.arch, machine.arch.matrix
    if not matrix.present or matrix.depthwise:
        return
    slow = (each for each in arch.types if each in NETWORK_TYPES and slowdown(arch, each) > limit)
    for dtype in islice(slow, 1):
        native = with_mode(arch, dtype)
        figure = (
            f"a depthwise layer of {LAYER_CHANNELS} channels, 56 x 56, {dtype}, takes"
            f" {native * slowdown(arch, dtype):,.0f} cycles; with a depthwise mode the array would"
            f" take {native:,.0f}"
        )
        usual = "of use where networks have such layers (MobileNet, EfficientNet)"
        chip = "AMD DPUCZDX8G (PG338) and Arm Ethos-U (Vela) have one"
        yield Sight(("matrix", "depthwise"), figure, usual, chip)


def _depthwise_types(machine: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, lacking = machine.arch, depthwise_lacks(machine.arch, "int8")
    if "int8" not in arch.types or not arch.matrix.present or arch.matrix.depthwise or not lacking:
        return
    taken, lanes = on_array(arch, "int8"), on_lanes(arch)
    if taken > limit * lanes:
        figure = (
            f"lacks {', '.join(lacking)}: a depthwise layer of {LAYER_CHANNELS} channels, 56 x 56,"
            f" takes the array {taken:,.0f} cycles, where its {arch.vector.lanes} lanes would take"
            f" {lanes:,.0f}"
        )
        usual = "int8, int32 and fp32, or matrix.depthwise: true"
        chip = "AMD DPUCZDX8G (PG338): depthwise layers on its ALU"
        yield Sight(("vector", "types"), figure, usual, chip)


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
    "depthwise-slow": _depthwise_slow,
    "depthwise-types": _depthwise_types,
    "network-type": _network_type,
    "control-large": _control_large,
}
"""Their functions."""
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
        for sight in (sights(rule, subject) if rule.when else CHECKS[name](subject, rule.limit))
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
