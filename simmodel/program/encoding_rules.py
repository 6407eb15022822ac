"""Checks of a machine's section `encoding`: unknown fields and names, numbers that do not fit.

The one idea: every pattern must match a field of some command, and every number must fit its bits,
as far as the file alone tells. What a program needs beyond that is checked when it is packed
(`simmodel.program.encoding`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from simmodel.arch.base import Path, Problem, near
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch, Encoding
from simmodel.isa import HOST, INSTRUCTIONS
from simmodel.program.command_fields import Code
from simmodel.program.encoding import (
    FLOATS,
    NAMES,
    OPCODE,
    ROLES,
    Fields,
    Format,
    all_fields,
    command_fields,
    functions,
)

WORD = 1024
"""Most bytes of a control word."""
BITS = 64
"""Most bits of a field: no number in a program is larger."""
_WIDTHS = ("encoding", "widths")


def encoding_problems(arch: Arch) -> Iterator[Problem]:
    """All errors in the encoding of `arch`."""
    packing = arch.encoding
    if packing is None:
        return
    if packing.word > WORD or packing.word & packing.word - 1:
        said = f"a word of {packing.word} bytes, expected a power of two up to {WORD}"
        yield Problem(("encoding", "word"), said)
    fields = all_fields()
    yield from _instructions(packing)
    yield from _opcodes(arch, packing)
    yield from _widths(arch, packing, fields)
    yield from _check_name_tables(arch, packing, fields)
    yield from _order(packing)


def _instructions(packing: Encoding) -> Iterator[Problem]:
    known = ("loop", "end", *INSTRUCTIONS)
    for part in ("opcodes", "order"):
        for name in getattr(packing, part):
            if name not in known:
                said = f"there is no instruction {name!r}{near(name, known)}"
                yield Problem(("encoding", part, name), said)


def _opcodes(arch: Arch, packing: Encoding) -> Iterator[Problem]:
    at: Path = ("encoding", "opcodes")
    yield from _distinct(at, packing.opcodes)
    bits = Format(arch, packing).width(OPCODE)
    for name, number in packing.opcodes.items():
        if bits and number >> bits:
            said = f"{number} is more than the {bits} bits of {OPCODE} hold"
            yield Problem((*at, name), said, ((*_WIDTHS, OPCODE),))


def _distinct(at: Path, table: Mapping[str, int]) -> Iterator[Problem]:
    """Names with the number of another one."""
    times = Counter(table.values())
    for name, number in table.items():
        if times[number] > 1:
            other = next(each for each, n in table.items() if n == number and each != name)
            yield Problem((*at, name), f"{number} is the number of {other} as well")


def _widths(arch: Arch, packing: Encoding, fields: Fields) -> Iterator[Problem]:
    decides = _deciding(packing.widths, fields)
    for pattern, bits in packing.widths.items():
        at: Path = (*_WIDTHS, pattern)
        if not any(fnmatchcase(path, pattern) for path in fields):
            yield Problem(at, _no_field(pattern, fields))
            continue
        if bits > BITS:
            yield Problem(at, f"{bits} bits, expected at most {BITS}")
        decided = [path for path, each in decides.items() if each == pattern]
        if OPCODE in decided and not bits:
            yield Problem(at, "every command has an opcode, expected at least 1 bit")
        real = [path for path in decided if fields[path] == Code.FLOAT]
        if real and bits not in (0, *FLOATS):
            said = (
                f"{_field_subject(real)} a float, expected {', '.join(map(str, FLOATS))} bits or 0"
            )
            yield Problem(at, said)


def _check_name_tables(arch: Arch, packing: Encoding, fields: Fields) -> Iterator[Problem]:
    format_ = Format(arch, packing)
    decides = _deciding(packing.numbers, fields)
    for pattern, table in packing.numbers.items():
        at: Path = ("encoding", "numbers", pattern)
        meant = [path for path in fields if fnmatchcase(path, pattern)]
        named = [path for path in meant if fields[path] in NAMES]
        if not meant:
            yield Problem(at, _no_field(pattern, fields))
        elif named == [OPCODE]:
            yield Problem(at, "numbers of opcodes are stated in encoding.opcodes")
        elif not named:
            yield Problem(at, f"{_field_subject(meant)} a number, no name")
        else:
            yield from _distinct(at, table)
            yield from _strangers(at, table, [_valid_names(arch, path) for path in named])
            yield from _narrow(at, table, {path: format_.width(path) for path in named})
            decided = {path for path in named if decides[path] == pattern}
            yield from _lacking(arch, at, table, fields, decided)


def _valid_names(arch: Arch, path: str) -> tuple[str, ...] | None:
    """Names that may occur in a field; None: any, as of tokens and loops."""
    if path == "engine":
        return (*arch.engines(), HOST)
    if path == "function":
        return functions()
    if path.endswith(".memory"):
        return ROLES
    return tuple(NUMPY) if path.endswith(".dtype") else None


def _strangers(
    at: Path, table: Mapping[str, int], known: Iterable[tuple[str, ...] | None]
) -> Iterator[Problem]:
    """Numbers of names that no field contains."""
    there: dict[str, None] = {}
    for names in known:
        if names is None:
            return
        there |= dict.fromkeys(names)
    for name in table:
        if name not in there:
            few = f"; there are {', '.join(there)}" if len(there) <= len(NUMPY) else ""
            said = f"nothing that is packed there is called {name!r}"
            yield Problem((*at, name), said + (near(name, there) or few))


def _narrow(at: Path, table: Mapping[str, int], widths: Mapping[str, int]) -> Iterator[Problem]:
    """Numbers that do not fit in their fields; fields of 0 bits are left out of commands."""
    path = min((path for path, bits in widths.items() if bits), key=widths.__getitem__, default="")
    for name, number in table.items():
        if path and number >> widths[path]:
            said = f"{number} is more than the {widths[path]} bits of {path} hold"
            yield Problem((*at, name), said, (_WIDTHS,))


def _lacking(
    arch: Arch, at: Path, table: Mapping[str, int], fields: Fields, decided: set[str]
) -> Iterator[Problem]:
    """Memories of the machine without a number, if no other table numbers them."""
    memories = {path for path in fields if path.endswith(".memory")}
    if not memories or not memories <= decided:
        return
    missing = [name for name in ("dram", *arch.memories.on_chip()) if name not in table]
    if missing:
        said = f"{', '.join(missing)} of the machine without a number, expected one for each memory"
        yield Problem(at, said, (("memories",),))


def _order(packing: Encoding) -> Iterator[Problem]:
    for mnemonic, patterns in packing.order.items():
        if mnemonic not in ("loop", "end", *INSTRUCTIONS):
            continue
        fields, placed = command_fields(mnemonic), set[str]()
        for index, pattern in enumerate(patterns):
            at: Path = ("encoding", "order", mnemonic, index)
            meant = {path for path in fields if fnmatchcase(path, pattern)}
            if not meant:
                yield Problem(at, _no_field(pattern, fields, f"{mnemonic} has"))
            elif meant <= placed:
                yield Problem(at, f"{pattern!r} stands here already")
            placed |= meant


def _deciding(patterns: Iterable[str], fields: Fields) -> dict[str, str]:
    """The pattern that applies to each field, the first match; '' if none matches."""
    return {
        path: next((each for each in patterns if fnmatchcase(path, each)), "") for path in fields
    }


def _no_field(pattern: str, fields: Fields, who: str = "commands have") -> str:
    inner = [path for path in fields if path.startswith(f"{pattern}.")]
    if inner:
        return f"{who} no field {pattern!r}; its parts are {pattern}.*"
    tails = {f"*.{path.split('.', n)[-1]}": None for path in fields for n in (1, 2, 3)}
    if f"*.{pattern}" in tails:
        return f"{who} no field {pattern!r}; did you mean '*.{pattern}'?"
    heads = {f"{path.rsplit('.', 1)[0]}.*": None for path in fields if "." in path}
    return f"{who} no field {pattern!r}{near(pattern, (*fields, *tails, *heads))}"


def _field_subject(paths: list[str]) -> str:
    """Some fields, as the subject of a sentence."""
    if len(paths) == 1:
        return f"{paths[0]} is"
    return f"{paths[0]} (and {len(paths) - 1} more) is"
