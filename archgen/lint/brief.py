"""What is implausible about many machines, each thing once.

The one idea: machines of a sweep share most of their fields, so what is said of all is said once,
with how many it holds for. Notes are said where they are about layers that the networks have, and
else counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from archgen.lint.findings import Finding
from archgen.lint.rules import Kind
from archgen.schema.shipped import shipped_folder

_NAMED = 3


def brief(
    found: Iterable[Finding],
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
    grouped: dict[tuple[str, str], list[Finding]] = {}
    notes: list[Finding] = []
    for each in found:
        matters = each.rule.layers is not None and each.rule.layers in kinds()
        if each.rule.severity == "note" and not matters:
            notes.append(each)
        else:
            grouped.setdefault((each.name, each.path), []).append(each)
    for same in grouped.values():
        first, names = same[0], list(dict.fromkeys(found.arch for found in same))
        where = f"{first.rule.severity}: {_named(names)}: {first.path}"
        yield f"{where}: {first.sight.figure}; {first.sight.usual} [{first.name}]"

    if notes:
        yield _counted(notes, files)


def _counted(notes: list[Finding], files: Mapping[str, str]) -> str:
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


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
