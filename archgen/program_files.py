"""Loadables as files: written for a machine, read with it, and given what they need.

The one idea: a file is read once, checked wholly (its bytes, its machine, its program), and what
comes of it is a program and a machine like any others.
"""

from __future__ import annotations

import errno
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from archgen.process.files import write_atomically, write_text
from archgen.schema.tree import guess
from archgen.studies.schedule_transfer import fields_of
from simmodel.arch.dtype import NAMES, NUMPY, Array
from simmodel.arch.lazy_array import AnyArray
from simmodel.arch.record import Arch
from simmodel.arch_rules import problems
from simmodel.errors import PROGRAM, UserError, expect
from simmodel.isa.region import Register
from simmodel.program.assembly import ParseError, constant_data, parse_program, print_program
from simmodel.program.loadable import MAGIC, Loadable, LoadableError, from_bytes, to_bytes, write_to
from simmodel.program.program import Port, Program, expect_run
from simmodel.program.relocation import PlaceError, PortBytes, ports_of, relocate
from simmodel.verify import VerifyError, verify

# Assembly in files: the text, and beside it an .npz with its constants, which the text names.


class AssemblyError(UserError, ValueError):
    """A file that is no assembly, or whose constants are missing or others."""


def constants_beside(path: Path) -> Path:
    """Where the constants of the assembly in `path` are written."""
    return path.with_name(f"{path.name}.npz")


def write_assembly(program: Program, path: str | PathLike[str]) -> None:
    """Writes `program` as text to `path`, its constants to `<path>.npz`.

    Raises OSError where a file cannot be written.
    """
    expect("program", program, Program, PROGRAM)
    target = Path(path)
    beside = constants_beside(target)
    if program.constants:
        data = constant_data(program)
        members = {_member(name): values for name, values in data.items()}
        write_atomically(beside, lambda temporary: save_arrays(temporary, members))
    write_text(target, print_program(program, beside.name if program.constants else ""))


def read_assembly(path: str | PathLike[str]) -> Program:
    """The program in the text file `path`, with its constants from the file that the text names.

    It can be verified, executed and simulated like the one that was written.

    Raises:
        AssemblyError: with path, line and column, and what is wrong with the text or its constants.
        OSError: the text cannot be read.
    """
    source = Path(path)
    named: list[Path] = []

    def opened(name: str) -> Mapping[str, NDArray[Any]]:
        named.append(source.parent / name)
        return _read_constant_archive(named[-1])

    try:
        return parse_program(_regular(source).read_text(encoding="utf-8-sig"), opened=opened)
    except UnicodeDecodeError:
        raise AssemblyError(f"{source}: is neither a loadable nor text of assembly") from None
    except ParseError as mistake:
        raise AssemblyError(f"{source}:{mistake}{_hint(str(mistake), named)}") from None


def _hint(said: str, named: Sequence[Path]) -> str:
    """What a mistake about a constant comes from."""
    if not re.search(r"expected (a constant whose data|.* with hash)", said):
        return ""
    if named:
        return f"; {named[-1]} holds others: it was not written with this text"
    line = 'constants "FILE.npz"'
    return f"; no line `{line}` says where the data is: `archgen compile -o FILE` writes both"


def save_arrays(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Writes an .npz file of `arrays`. Raises OSError."""
    # numpy's own `savez` takes names as keywords, and an array may be called `file`.
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values, order="C"), allow_pickle=False)


def _read_constant_archive(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name; AssemblyError where there is none to be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                json.loads(f'"{member.removesuffix(".npy")}"'): _read_npz_member(archive, member)
                for member in archive.namelist()
            }
    except FileNotFoundError:
        said = "has the constants of this program and is not there: the two files go together"
        raise AssemblyError(f"{path}: {said}") from None
    except Exception as mistake:  # what a damaged archive ends in has no kind of its own
        said = f"is no whole archive of constants ({type(mistake).__name__}: {mistake})"
        raise AssemblyError(f"{path}: {said}") from None


def _read_npz_member(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with archive.open(member) as file:
        found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def escapes_folder(name: str) -> bool:
    """Whether a file called `name` would lie outside the folder that an archive is unpacked in."""
    return ".." in re.split(r"[/\\]", name)


def _member(name: str) -> str:
    spelled = json.dumps(name)[1:-1]
    return spelled.replace("/", r"\u002f") if escapes_folder(name) else spelled


SUFFIX = ".npu"
"""What files of loadables end in."""
_SHOWN = 5
"""Most differences of machines that are listed."""


@dataclass(frozen=True)
class Loaded:
    """What a loadable holds."""

    program: Program = field(repr=False)
    arch: Arch = field(repr=False)
    """The machine that it is for."""
    states: Mapping[str, str]
    """Inputs that are a state, each with the output that it is in the next inference."""
    fingerprint: str
    """SHA-256 of the machine, in hex."""
    ports: tuple[PortBytes, ...] = ()
    """Where inputs and outputs lie, as the file says."""


class NotThisMachine(UserError, ValueError):
    """A loadable is for another machine; the message has the fields that differ."""


class WrongInputs(UserError, ValueError):
    """Inputs that do not match those of a loadable, one line for each that does not."""


def _loadable(program: Program, arch: Arch, states: Mapping[str, str] | None) -> Loadable:
    maker, handed = f"archgen {version('archgen')}", tuple((states or {}).items())
    return Loadable(program, _machine_json(arch), handed, maker, ports_of(program))


def encoded(program: Program, arch: Arch, states: Mapping[str, str] | None = None) -> bytes:
    """The loadable of a program that was verified for `arch`. `states`: inputs that are a state,
    each with the output that it is in the next inference."""
    return to_bytes(_loadable(program, arch, states))


def save(
    path: str | PathLike[str], program: Program, arch: Arch, states: Mapping[str, str] | None = None
) -> None:
    """Write a program as a file that runs alone; arguments as `encoded`.

    Raises:
        LoadableError: the verifier refuses it on `arch`, or states are none of its inputs and
            outputs.
        OSError: the file cannot be written.
    """
    expect_run(program, arch)
    try:
        _verified(Loaded(program, arch, dict(states or {}), ""), fspath(path))
    except LoadableError as wrong:
        raise LoadableError(f"not written for {arch.name}: {wrong}") from None
    write(path, program, arch, states)


def write(
    path: str | PathLike[str], program: Program, arch: Arch, states: Mapping[str, str] | None = None
) -> None:
    """The same for a program that has been verified for `arch`. Raises OSError."""
    made = _loadable(program, arch, states)

    def write_file(temporary: Path) -> None:
        with temporary.open("wb") as file:
            write_to(file, made)

    write_atomically(Path(path), write_file)


def load(path: str | PathLike[str], place: Mapping[str, int] | None = None) -> Loaded:
    """Read a loadable and verify its program.

    Args:
        path: the file.
        place: inputs and outputs by name, with the addresses in DRAM at which they shall lie;
            default: where the file has them.

    Raises:
        LoadableError: it is none, is damaged, or holds a program that the verifier refuses.
        PlaceError: a port cannot lie where it is asked to.
        OSError: it cannot be read.
    """
    name, loaded = fspath(path), read(path)
    _verified(loaded, name)
    if loaded.ports != ports_of(loaded.program):
        said = "ports: expected where the inputs and outputs lie, found other places"
        raise LoadableError(f"{name}: {said}")
    if not place:
        return loaded
    program = relocate(loaded.program, place)
    moved = replace(loaded, program=program, ports=ports_of(program))
    try:
        _verified(moved, name)
    except LoadableError as wrong:
        raise PlaceError(f"with its ports so placed, {wrong}") from None
    return moved


def _verified(loaded: Loaded, name: str) -> None:
    try:
        verify(loaded.program, loaded.arch)
    except VerifyError as wrong:
        raise LoadableError(f"{name}: {wrong}") from None
    strange = list(_wrong_states(loaded.program, loaded.states))
    if strange:
        raise LoadableError("\n".join(f"{name}: states: {said}" for said in strange))


def _wrong_states(program: Program, states: Mapping[str, str]) -> Iterator[str]:
    """Pairs that are no input and the output that it is in the next inference."""
    inputs, outputs = ({p.name: p for p in of} for of in (program.inputs, program.outputs))
    for given, made in states.items():
        for what, name, there in (("input", given, inputs), ("output", made, outputs)):
            if name not in there:
                near = guess(name, there) or f"; there are {', '.join(there) or 'none'}"
                yield f"there is no {what} {name!r}{near}"
        if given not in inputs or made not in outputs:
            continue
        before, after = inputs[given], outputs[made]
        if (before.dtype, len(before.shape)) != (after.dtype, len(after.shape)):
            pair = " and ".join(type_and_shape(p.dtype, p.shape) for p in (before, after))
            yield f"{given!r} cannot be {made!r} in the next inference: they are {pair}"


def _regular(path: Path) -> Path:
    """`path`. Raises OSError where it is a device or a pipe, whose end may never come."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def read(path: str | PathLike[str]) -> Loaded:
    """Read a loadable without a look at what its program does. Raises as `load`."""
    name = fspath(path)
    try:
        found = from_bytes(_regular(Path(path)).read_bytes())
        arch = _machine(found)
        return Loaded(found.program, arch, dict(found.states), found.fingerprint, found.ports)
    except LoadableError as wrong:
        raise LoadableError(f"{name}: {wrong}") from None


def is_loadable(path: str | PathLike[str]) -> bool:
    """Whether a file is a loadable, by its first bytes or its name. Raises OSError."""
    with Path(path).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC or named_loadable(path)


def named_loadable(path: str | PathLike[str]) -> bool:
    """Whether a file is called as loadables are, in whatever case."""
    return Path(path).suffix.lower() == SUFFIX


def load_assembly(
    program: Program, arch: Arch, name: str, place: Mapping[str, int] | None = None
) -> Loaded:
    """What assembly in the file `name` holds, as a loadable for `arch`, with ports placed as by
    `load`; it knows of no states.

    Raises:
        AssemblyError: the verifier refuses it.
        PlaceError: a port cannot lie where it is asked to.
    """
    other = "" if program.arch == arch.name else f", but the text is for {program.arch}"
    try:
        verify(program, arch)
        if place:
            program = relocate(program, place)
            verify(program, arch)
    except VerifyError as wrong:
        raise AssemblyError(f"{name}: on {arch.name}{other}: {wrong}") from None
    return Loaded(program, arch, {}, Loadable(program, _machine_json(arch)).fingerprint)


def _machine_json(arch: Arch) -> str:
    """A machine as it stands in a file."""
    # What has its default is left out: some fields may not be stated beside others.
    return arch.model_dump_json(by_alias=True, exclude_defaults=True)


def _machine(found: Loadable) -> Arch:
    try:
        arch = Arch.model_validate_json(found.machine)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        at = ".".join(map(str, first["loc"])) or "all of it"
        raise LoadableError(f"machine: {at}: {first['msg']}") from None
    for problem in problems(arch):
        at = ".".join(map(str, problem.path))
        raise LoadableError(f"machine: {at}: {problem.message}")
    return arch


def same_machine(loaded: Loaded, arch: Arch, name: str) -> None:
    """Nothing, where `arch`, called `name`, is the machine of a loadable but for what no cycle
    depends on.

    Raises:
        NotThisMachine: it is another one.
    """
    theirs, ours = fields_of(loaded.arch), fields_of(arch)
    differ = [
        f"{path}: {theirs.get(path, 'none')} there, {ours.get(path, 'none')} in {name}"
        for path in sorted({*theirs, *ours})
        if theirs.get(path) != ours.get(path)
    ]
    if not differ:
        return
    more = f"\nand {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
    raise NotThisMachine(
        f"compiled for {loaded.arch.name}, fingerprint {loaded.fingerprint[:16]}, which is another "
        f"machine than {name}; compile it again for {name}\n" + "\n".join(differ[:_SHOWN]) + more
    )


def checked_inputs(program: Program, given: Mapping[str, Array]) -> dict[str, Array]:
    """`given`, by the names of the inputs of `program`, in their element types.

    Raises:
        WrongInputs: with all that is missing, unknown, or of another shape or type.
    """
    ports = {port.name: port for port in program.inputs}
    found = {name: _typed(array, ports[name]) for name, array in given.items() if name in ports}
    wrong = [line for port in program.inputs for line in _input_mistakes(port, found)]
    for name in given:
        if name not in ports:
            near = guess(name, ports) or f"; there are {', '.join(ports) or 'none'}"
            wrong.append(f"input {name!r}: there is none of this name{near}")
    if wrong:
        raise WrongInputs("\n".join(wrong))
    return found


def _input_mistakes(port: Port, found: Mapping[str, Array]) -> Iterator[str]:
    expected = type_and_shape(port.dtype, port.shape)
    if port.name not in found:
        yield f"input {port.name!r}: is missing, expected {expected}"
        return
    array = found[port.name]
    if array.shape != port.shape or array.dtype != NUMPY[port.dtype]:
        given = type_and_shape(NAMES.get(array.dtype, str(array.dtype)), array.shape)
        yield f"input {port.name!r}: expected {expected}, found {given}"


def _typed(array: Array, port: Port) -> Array:
    """`array`; archives forget the types that numpy does not have."""
    forgotten = array.dtype.kind == "V" and array.dtype.itemsize == NUMPY[port.dtype].itemsize
    return array.view(NUMPY[port.dtype]) if forgotten else array


def type_and_shape(dtype: str, shape: tuple[int, ...]) -> str:
    """`fp32[1,3,224,224]`."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def type_and_ranges(port: Port, registers: Iterable[Register]) -> str:
    """`fp32[batch 1..4, sequence 1..8, 64]`: where it is open from what to what each dimension."""
    known = {register.name: register for register in registers}
    shape = list(map(str, port.shape))
    for limit in reversed(port.operand.limits):
        if limit.axis is None or not limit.terms or len(shape) != len(port.operand.shape):
            continue
        least = limit.base + sum(f * (known[n].low - known[n].high) for n, f in limit.terms)
        name, factor = limit.terms[0]
        alone = limit.terms[1:] == () and (factor, known[name].high) == (1, limit.base)
        shape[limit.axis] = (f"{name} " if alone else "") + f"{least}..{limit.base}"
    return f"{port.dtype}[{', '.join(shape)}]" if known else type_and_shape(port.dtype, port.shape)
