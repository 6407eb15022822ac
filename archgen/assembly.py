"""Assembly in files: the text, and beside it an .npz with its constants, which the text names.

The one idea: a text that was written can be read back by its path alone, as the same program. In
the archive names are spelled as JSON spells them, so that a constant may have any.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archgen.files import write_atomically, write_text
from simmodel.asm import ParseError, constant_data, parse_program, print_program
from simmodel.program import Program


class AssemblyError(ValueError):
    """A file that is no assembly, or whose constants are missing or others."""


def constants_beside(path: Path) -> Path:
    """Where the constants of the assembly in `path` are written."""
    return path.with_name(f"{path.name}.npz")


def write_assembly(program: Program, path: str | PathLike[str]) -> None:
    """Writes `program` as text to `path`, its constants to `<path>.npz`.

    Raises OSError where a file cannot be written.
    """
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
        return _loaded(named[-1])

    try:
        return parse_program(source.read_text(encoding="utf-8-sig"), opened=opened)
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


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes an .npz file of `arrays`. Raises OSError."""
    # numpy's own `savez` takes names as keywords, and an array may be called `file`.
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values, order="C"), allow_pickle=False)


def _loaded(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name; AssemblyError where there is none to be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {_name(member): _array(archive, member) for member in archive.namelist()}
    except FileNotFoundError:
        said = "has the constants of this program and is not there: the two files go together"
        raise AssemblyError(f"{path}: {said}") from None
    except Exception as mistake:  # what a damaged archive ends in has no kind of its own
        said = f"is no whole archive of constants ({type(mistake).__name__}: {mistake})"
        raise AssemblyError(f"{path}: {said}") from None


def _array(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with archive.open(member) as file:
        found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def leads_out(name: str) -> bool:
    """Whether a file called `name` would lie outside the folder that an archive is unpacked in."""
    return ".." in re.split(r"[/\\]", name)


def _member(name: str) -> str:
    spelled = json.dumps(name)[1:-1]
    return spelled.replace("/", r"\u002f") if leads_out(name) else spelled


def _name(member: str) -> str:
    return str(json.loads(f'"{member.removesuffix(".npy")}"'))
