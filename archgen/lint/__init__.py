"""Is this machine plausible? What a file may say and nobody would build, or could not use.

`rules` is the table of what is looked at, with limits, sources and published chips; `subject` the
figures of a machine that it names. Here all rules are asked about one machine, and it is said where
in its file each answer belongs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from archgen.lint.rules import RULES, SEVERITIES, LintFinding, LintRule, beyond_limit
from archgen.lint.subject import LintedMachine
from archgen.schema.load import shipped_folder
from archgen.schema.tree import Table, dotted, position
from simmodel.arch.record import Arch

__all__ = ["RULES", "LintFinding", "LintRule", "as_argument", "brief", "findings", "located"]
_NAMED = 3
"""Machines that a line names."""


def findings(arch: Arch, ignored: Collection[str] = ()) -> list[LintFinding]:
    """What is implausible about `arch`, the worst first; places are its name alone.

    A memory is told once: what is too large for a wafer is not told to be too large for a mask.
    """
    asked = {name: rule for name, rule in RULES.items() if name not in ignored}
    found = _beyond_limits(asked, LintedMachine(arch))
    for array in arch.arrays:
        if array != "matrix":
            found += _of_array(array, arch, {n: rule for n, rule in asked.items() if rule.array})
    if any(each.name == "area-wafer" for each in found):
        found = [each for each in found if each.name != "area-reticle"]
    return sorted(found, key=lambda each: list(SEVERITIES).index(each.rule.severity))


def _beyond_limits(rules: Mapping[str, LintRule], subject: LintedMachine) -> list[LintFinding]:
    return [each for name, rule in rules.items() for each in beyond_limit(name, rule, subject)]


def _of_array(name: str, arch: Arch, rules: Mapping[str, LintRule]) -> Iterator[LintFinding]:
    """What is beyond the limits of an array beside `matrix`, at its own fields."""
    for each in _beyond_limits(rules, LintedMachine(arch.with_array(name))):
        own = each.path[0] == "matrix"
        path = ("engines", name, *each.path[1:]) if own else each.path
        yield replace(each, path=path, figure=f"{each.figure} ({name})")


def located(found: LintFinding, tree: Table) -> LintFinding:
    """`found` at its place in the file of `tree`."""
    return replace(found, at=position(tree, found.path))


def brief(found: Iterable[LintFinding], files: Mapping[str, str]) -> Iterator[str]:
    """Of what was found about many machines, a line for each field and rule, and one for the notes;
    nothing where all is well. `files`: where a machine is read, or what it is a variant of, by its
    name."""
    grouped: dict[tuple[str, str], list[LintFinding]] = {}
    for each in found:
        grouped.setdefault((each.name, dotted(each.path)), []).append(each)
    notes = [same for same in grouped.values() if same[0].rule.severity == "note"]
    for first, *others in grouped.values():
        if first.rule.severity != "note":
            archs = list(dict.fromkeys(each.arch for each in (first, *others)))
            more = f" and {len(archs) - _NAMED} more" if len(archs) > _NAMED else ""
            where = (
                f"{first.rule.severity}: {', '.join(archs[:_NAMED])}{more}: {dotted(first.path)}"
            )
            yield f"{where}: {first.figure}; {first.usual} [{first.name}]"
    if notes:
        rules = dict.fromkeys(same[0].name for same in notes)
        noted = dict.fromkeys(each.arch for same in notes for each in same)
        which = list(dict.fromkeys(as_argument(files.get(name) or name) for name in noted))
        asked = " ".join(which[:_NAMED]) + " ..." * (len(which) > _NAMED)
        many = "s" * (len(notes) != 1)
        yield f"{len(notes)} note{many} ({', '.join(rules)}): archgen lint {asked}"


def as_argument(file: str) -> str:
    """The machine in a file as a command takes it: a shipped one by its name."""
    path = Path(file)
    return path.stem if shipped_folder() in path.parents else file
