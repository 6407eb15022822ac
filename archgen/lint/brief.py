"""What is implausible about many machines, each thing once.

The one idea: machines of a sweep share most of their fields, so what is said of all is said once,
with how many it holds for. Notes are said where they are about layers that the networks have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from archgen.lint.findings import Finding
from archgen.lint.rules import Kind

_NAMED = 3


def brief(found: Iterable[Finding], kinds: Callable[[], Collection[Kind]] = tuple) -> Iterator[str]:
    """A line for each field and rule; nothing where all is well. `kinds` tells which layers the
    networks have; it is asked where that decides."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for each in found:
        matters = each.rule.layers is not None and each.rule.layers in kinds()
        if each.rule.severity != "note" or matters:
            grouped.setdefault((each.name, each.path), []).append(each)
    for same in grouped.values():
        first, names = same[0], list(dict.fromkeys(found.arch for found in same))
        where = f"{first.rule.severity}: {_named(names)}: {first.path}"
        yield f"{where}: {first.sight.figure}; {first.sight.usual} [{first.name}]"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
