"""Checks of a machine's sections `isa` and `encoding`: unknown forms, fields and names, numbers
that do not fit.

The one idea: every pattern must match a form, or a field of some command, and every number must
fit its bits, as far as the file alone tells. What a program needs beyond that is checked when it is
packed (`simmodel.program.encoding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import filter as matching
from fnmatch import fnmatchcase

from simmodel.arch.base import Path, Problem, near
from simmodel.arch.dtype import NUMPY
from simmodel.arch.record import Arch, Encoding
from simmodel.isa import INSTRUCTIONS
from simmodel.isa.forms import NEEDED, forms
from simmodel.program.command_fields import OPCODE, Code, all_fields, command_fields
from simmodel.program.encoding import FLOATS, Format

WORD = 1024
"""Most bytes of a control word."""
BITS = 64
"""Most bits of a field: no number in a program is larger."""
ELEMENTWISE = ("vector.unary.", "vector.binary.", "vector.ternary.")
"""Beginnings of the forms that engines beside the vector engine may have."""
_WIDTHS: Path = ("encoding", "widths")
Fields = Mapping[str, Code]


def instruction_problems(arch: Arch) -> Iterator[Problem]:
    """All errors in the sections `isa` and `encoding` of `arch`, and in the forms of `engines`."""
    for rule in (_forms_lacking, _forms_limited, _forms_beside, _encoding_problems):
        yield from rule(arch)


def _forms_lacking(arch: Arch) -> Iterator[Problem]:
    """Forms that no machine of this family has, or that every machine must have."""
    for index, pattern in enumerate(arch.isa.without):
        at: Path = ("isa", "without", index)
        meant = matching(forms(), pattern)
        needed = [name for name in meant if name in NEEDED]
        if needed:
            message = f"the compiler finishes results with {', '.join(needed)}; keep it"
            yield Problem(at, message)
        if not any(forms()[name].removable for name in meant):
            yield from _of_vector(at, pattern, meant)


def _forms_limited(arch: Arch) -> Iterator[Problem]:
    for pattern, limits in arch.isa.limits.items():
        at: Path = ("isa", "limits", pattern)
        yield from _of_vector(at, pattern, matching(forms(), pattern))
        if limits.rank is not None and limits.rank > arch.vector.rank:
            message = f"no more than the engine's own rank of {arch.vector.rank}"
            yield Problem((*at, "rank"), message, (("vector", "rank"),))
        most = arch.vector.max_extent
        if limits.max_extent is not None and most is not None and limits.max_extent > most:
            message = f"no more than the engine's own max_extent of {most}"
            yield Problem((*at, "max_extent"), message, (("vector", "max_extent"),))


def _forms_beside(arch: Arch) -> Iterator[Problem]:
    """Forms of engines beside the vector engine that are none, or not element by element."""
    for name, engine in arch.function_engines.items():
        for index, pattern in enumerate(engine.forms):
            meant = matching(forms(), pattern)
            at: Path = ("engines", name, "forms", index)
            other = [form for form in meant if not form.startswith(ELEMENTWISE)]
            if not meant:
                yield from _of_vector(at, pattern, meant)
            elif other:
                kinds = ", ".join(f"{kind}*" for kind in ELEMENTWISE)
                message = f"{other[0]} is not computed element by element; expected some of {kinds}"
                yield Problem(at, message)


def _of_vector(at: Path, pattern: str, meant: list[str]) -> Iterator[Problem]:
    """Patterns that match no form, or forms of engines whose own fields state their
    instructions."""
    if not meant:
        ends = [name for name in forms() if name.rpartition(".")[2] == pattern.lower()]
        meant_by = f"; did you mean {ends[0]!r}?" if ends else near(pattern, forms())
        yield Problem(at, f"no form is called {pattern!r}{meant_by} (archgen isa lists all)")
    of_elements = ("vector", "scalar")
    if meant and not any(f.engine in of_elements for n, f in forms().items() if n in meant):
        message = (
            f"{meant[0]} is no function of the vector engine; matrix.granularity, "
            "matrix.depthwise, vector.window and copy say what other engines are told"
        )
        yield Problem(at, message)


def _encoding_problems(arch: Arch) -> Iterator[Problem]:
    packing = arch.encoding
    if packing is None:
        return
    if packing.word > WORD or packing.word & packing.word - 1:
        said = f"a word of {packing.word} bytes, expected a power of two up to {WORD}"
        yield Problem(("encoding", "word"), said)
    fields, own = all_fields(), Format(arch, packing)
    for part in ("opcodes", "order"):
        for name in getattr(packing, part):
            if name not in ("loop", "end", *INSTRUCTIONS):
                said = (
                    f"there is no instruction {name!r}{near(name, ('loop', 'end', *INSTRUCTIONS))}"
                )
                yield Problem(("encoding", part, name), said)
    yield from _table(("encoding", "opcodes"), packing.opcodes, {OPCODE: own.width(OPCODE)})
    yield from _widths(packing, fields)
    for pattern, table in packing.numbers.items():
        yield from _numbers(arch, own, pattern, table, fields)
    yield from _order(packing)


def _table(at: Path, table: Mapping[str, int], widths: Mapping[str, int]) -> Iterator[Problem]:
    """Names with the number of another one, or one that its fields do not hold; fields of 0 bits
    are left out of commands."""
    path = min((path for path, bits in widths.items() if bits), key=widths.__getitem__, default="")
    for name, number in table.items():
        other = next((each for each, n in table.items() if n == number and each != name), None)
        if other is not None:
            yield Problem((*at, name), f"{number} is the number of {other} as well")
        if path and number >> widths[path]:
            said = f"{number} is more than the {widths[path]} bits of {path} hold"
            yield Problem((*at, name), said, (_WIDTHS,))


def _widths(packing: Encoding, fields: Fields) -> Iterator[Problem]:
    for pattern, bits in packing.widths.items():
        at: Path = (*_WIDTHS, pattern)
        if not matching(fields, pattern):
            yield Problem(at, _no_field(pattern, fields))
            continue
        if bits > BITS:
            yield Problem(at, f"{bits} bits, expected at most {BITS}")
        decided = _first_match(pattern, packing.widths, fields)
        if OPCODE in decided and not bits:
            yield Problem(at, "every command has an opcode, expected at least 1 bit")
        real = [path for path in decided if fields[path] == Code.FLOAT]
        if real and bits not in (0, *FLOATS):
            expected = f"expected {', '.join(map(str, FLOATS))} bits or 0"
            yield Problem(at, f"{_field_subject(real)} a float, {expected}")


def _numbers(
    arch: Arch, own: Format, pattern: str, table: Mapping[str, int], fields: Fields
) -> Iterator[Problem]:
    """Errors in the numbers of the names in some fields."""
    at: Path = ("encoding", "numbers", pattern)
    meant = matching(fields, pattern)
    named = [path for path in meant if fields[path] == Code.TEXT]
    if not meant:
        yield Problem(at, _no_field(pattern, fields))
    elif named == [OPCODE]:
        yield Problem(at, "numbers of opcodes are stated in encoding.opcodes")
    elif not named:
        yield Problem(at, f"{_field_subject(meant)} a number, no name")
    else:
        yield from _table(at, table, {path: own.width(path) for path in named})
        names = own.names.items()  # of tokens and loops any name may occur
        valid = [next((n for f, n in names if fnmatchcase(path, f)), None) for path in named]
        yield from _strangers(at, table, valid)
        decided = _first_match(pattern, arch.encoding.numbers if arch.encoding else {}, fields)
        memories = {path for path in fields if path.endswith(".memory")}
        missing = [name for name in arch.memories.roles() if name not in table]
        if missing and memories <= set(decided):
            said = f"{', '.join(missing)} of the machine without a number"
            yield Problem(at, f"{said}, expected one for each memory", (("memories",),))


def _strangers(
    at: Path, table: Mapping[str, int], known: Iterable[tuple[str, ...] | None]
) -> Iterator[Problem]:
    """Numbers of names that no field contains."""
    there: dict[str, None] = {}
    for names in known:
        if names is None:
            return
        there |= dict.fromkeys(names)
    few = f"; there are {', '.join(there)}" if len(there) <= len(NUMPY) else ""
    for name in table:
        if name not in there:
            said = f"nothing that is packed there is called {name!r}{near(name, there) or few}"
            yield Problem((*at, name), said)


def _order(packing: Encoding) -> Iterator[Problem]:
    for mnemonic, patterns in packing.order.items():
        if mnemonic not in ("loop", "end", *INSTRUCTIONS):
            continue
        fields, placed = command_fields(mnemonic), set[str]()
        for index, pattern in enumerate(patterns):
            at: Path = ("encoding", "order", mnemonic, index)
            meant = set(matching(fields, pattern))
            if not meant:
                yield Problem(at, _no_field(pattern, fields, f"{mnemonic} has"))
            elif meant <= placed:
                yield Problem(at, f"{pattern!r} stands here already")
            placed |= meant


def _first_match(pattern: str, patterns: Iterable[str], fields: Fields) -> list[str]:
    """Fields for which `pattern` is the first of `patterns` that matches."""
    first = ((path, next((p for p in patterns if fnmatchcase(path, p)), "")) for path in fields)
    return [path for path, each in first if each == pattern]


def _no_field(pattern: str, fields: Fields, who: str = "commands have") -> str:
    if any(path.startswith(f"{pattern}.") for path in fields):
        return f"{who} no field {pattern!r}; its parts are {pattern}.*"
    tails = {f"*.{path.split('.', n)[-1]}": None for path in fields for n in (1, 2, 3)}
    if f"*.{pattern}" in tails:
        return f"{who} no field {pattern!r}; did you mean '*.{pattern}'?"
    heads = {f"{path.rsplit('.', 1)[0]}.*": None for path in fields if "." in path}
    return f"{who} no field {pattern!r}{near(pattern, (*fields, *tails, *heads))}"


def _field_subject(paths: list[str]) -> str:
    """Some fields, as the subject of a sentence."""
    return f"{paths[0]} is" if len(paths) == 1 else f"{paths[0]} (and {len(paths) - 1} more) is"
