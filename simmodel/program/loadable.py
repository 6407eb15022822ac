"""Loadable: a program and its data as one file: a header, a packed document, data.

    header      magic (8 bytes), version (4), checksum of all behind the header (4), bytes of the
                document packed and unpacked (8 each); little-endian
    document    JSON, packed by zlib: its program is the text of `simmodel.program.assembly`
    data        of constants, at multiples of 64 bytes of the file; zeros between

The one idea: a program has one text form, so a file holds that.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Annotated, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, ValidationError

from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.errors import UserError
from simmodel.program.assembly import ParseError, constant_data, parse_program, print_program
from simmodel.program.program import Program
from simmodel.program.relocation import PortBytes

MAGIC = b"\x89NPU\r\n\x1a\n"
VERSION = 3
ALIGNMENT = 64
EXPANDS = 32
"""Most bytes of a document per byte of a file: so a reader knows how much memory a file may
need."""
_HEADER = struct.Struct("<8sIIQQ")
_RANK, _LARGEST = 32, 2**48
"""Most dimensions of an array, and the limit of each extent."""


class LoadableError(UserError, ValueError):
    """Bytes that are no valid loadable, or a program that cannot be stored in one; with the
    reason."""


@dataclass(frozen=True)
class Loadable:
    """A program with everything needed to run it."""

    program: Program
    machine: str
    """Its machine, as JSON."""
    states: tuple[tuple[str, str], ...] = ()
    """State inputs, each with the output that it is in the next inference."""
    maker: str = ""
    """Software that wrote it."""
    ports: tuple[PortBytes, ...] = ()
    """Bytes of its inputs and outputs, for callers that relocate them."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the machine, in hex."""
        return hashlib.sha256(self.machine.encode()).hexdigest()


class _LoadableDocument(BaseModel):
    """The JSON document of a file."""

    model_config = ConfigDict(strict=True, extra="forbid")

    maker: str
    machine: str
    states: Annotated[tuple[tuple[str, str], ...], FailFast()]
    ports: Annotated[tuple[PortBytes, ...], FailFast()]
    constants: dict[str, tuple[str, tuple[int, ...], int]]
    """Element type, extents, and offset in the data."""
    program: str


def write_to(file: BinaryIO, loadable: Loadable) -> None:
    """Write a loadable to a file of its own; constants are made one after the other.

    Raises:
        LoadableError: the program has a value that no file holds; says which.
    """
    program = loadable.program
    wrong = [c.data.dtype for c in program.constants if np.dtype(c.data.dtype) not in NAMES]
    if wrong:
        raise LoadableError(f"a loadable holds no elements of {wrong[0]}")
    try:
        arrays = constant_data(program)
        text = print_program(program)
    except ValueError as mistake:
        raise LoadableError(str(mistake)) from None
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    end = 0
    for name, array in arrays.items():
        start = end + -end % ALIGNMENT
        places[name], end = (NAMES[np.dtype(array.dtype)], array.shape, start), start + array.nbytes
    document = _LoadableDocument(
        maker=loadable.maker, machine=loadable.machine, states=loadable.states,
        ports=loadable.ports, constants=places, program=text,
    ).model_dump_json().encode()  # fmt: skip
    raw = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values())
    _write_packed(file, document, (array.data for array in raw))


def _write_packed(file: BinaryIO, document: bytes, data: Iterable[bytes | memoryview]) -> None:
    text, checksum, end = zlib.compress(document, 9), 0, _HEADER.size
    file.seek(end)

    def write(part: bytes | memoryview) -> None:
        nonlocal checksum, end
        checksum, end = zlib.crc32(part, checksum), end + len(part)
        file.write(part)

    write(text)
    for part in data:
        write(bytes(-end % ALIGNMENT))
        write(part)
    write(bytes(max(0, -(-len(document) // EXPANDS) - end)))
    file.seek(0)
    file.write(_HEADER.pack(MAGIC, VERSION, checksum, len(text), len(document)))


def to_bytes(loadable: Loadable) -> bytes:
    """The file of a loadable. Raises as `write_to`."""
    file = BytesIO()
    write_to(file, loadable)
    return file.getvalue()


def packed(document: bytes, data: bytes) -> bytes:
    """The file of a document and its data."""
    file = BytesIO()
    _write_packed(file, document, [data])
    return file.getvalue()


def from_bytes(data: bytes) -> Loadable:
    """The loadable in a file; its constants are views of `data`.

    Raises:
        LoadableError: says what is wrong and what was expected.
    """
    text, begin = unpacked(data)
    try:
        found = _LoadableDocument.model_validate_json(text)
        rest = np.frombuffer(data, np.uint8)[begin:]
        arrays = {name: _array(rest, name, *place) for name, place in found.constants.items()}
        program = parse_program(found.program, arrays)
    except ParseError as mistake:
        raise LoadableError(f"program {mistake}") from None
    except ValidationError as mistake:
        first = mistake.errors(include_url=False, include_input=False)[0]
        at = " ".join(map(str, first["loc"])) or "document"
        raise LoadableError(f"{at}: {first['msg']}") from None
    return Loadable(program, found.machine, found.states, found.maker, found.ports)


def unpacked(data: bytes) -> tuple[bytes, int]:
    """The document of a file, and the offset of its data.

    Raises:
        LoadableError: it is none, is for other readers, is cut off or damaged.
    """
    if data[: len(MAGIC)] != MAGIC:
        given = data[: len(MAGIC)].hex(" ") or "nothing"
        raise LoadableError(f"no loadable: expected {MAGIC.hex(' ')}, found {given}")
    if len(data) < _HEADER.size:
        raise LoadableError(f"expected a header of {_HEADER.size} bytes, found {len(data)}")
    _, version, checksum, length, size = _HEADER.unpack_from(data)
    if version != VERSION:
        todo = "use a newer archgen" if version > VERSION else "compile the network again"
        raise LoadableError(f"format {version}, this reader knows {VERSION}: {todo}")
    if zlib.crc32(memoryview(data)[_HEADER.size :]) != checksum:
        raise LoadableError("damaged or cut off: another checksum")
    if size > EXPANDS * len(data):
        raise LoadableError(f"{len(data)} bytes stand for more than {EXPANDS} each")
    end = _HEADER.size + length
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data[_HEADER.size : end], size + 1)
    except zlib.error as mistake:
        raise LoadableError(f"document: cannot be unpacked: {mistake}") from None
    if len(text) != size or not unpacker.eof or unpacker.unused_data or end > len(data):
        raise LoadableError(f"document: expected {size} bytes in {length}, found others")
    return text, end + -end % ALIGNMENT


def _array(
    data: NDArray[np.uint8], name: str, dtype: str, shape: tuple[int, ...], offset: int
) -> NDArray[Any]:
    if dtype not in NUMPY:
        raise LoadableError(f"constant {name!r}: expected an element type, found {dtype!r}")
    if len(shape) > _RANK or not all(0 <= extent < _LARGEST for extent in shape):
        raise LoadableError(f"constant {name!r}: expected extents below {_LARGEST}")
    end = offset + math.prod(shape) * NUMPY[dtype].itemsize
    if not 0 <= offset <= end <= len(data):
        there = f"some of {len(data)} bytes of data"
        raise LoadableError(f"constant {name!r}: expected {there}, found {offset} .. {end}")
    try:
        return data[offset:end].view(NUMPY[dtype]).reshape(shape)
    except ValueError as mistake:
        raise LoadableError(f"constant {name!r}: {mistake}") from None
