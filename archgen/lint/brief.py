"""Errors and warnings about many machines, each thing once.

The one idea: machines of a sweep share most of their fields, so what is said of all is said once,
with how many it holds for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from archgen.lint.findings import Finding, findings
from simmodel.arch import Arch

_NAMED = 3


def brief(archs: Iterable[Arch]) -> Iterator[str]:
    """A line for each field and rule; nothing where all is well."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for arch in archs:
        for found in findings(arch):
            if found.rule.severity != "note":
                grouped.setdefault((found.name, found.path), []).append(found)
    for same in grouped.values():
        first, names = same[0], list(dict.fromkeys(found.arch for found in same))
        where = f"{first.rule.severity}: {_named(names)}: {first.path}"
        yield f"{where}: {first.sight.figure}; {first.sight.usual} [{first.name}]"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
