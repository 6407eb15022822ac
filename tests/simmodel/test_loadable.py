"""Loadables: what is written comes back the same, and what is no loadable is refused in words."""

from __future__ import annotations

import dataclasses
import json
import random
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from handmade import at, constant, pipeline, program, random_programs, relay
from hypothesis import given, settings
from hypothesis import strategies as st
from loadable_mutants import Base, base_of, judged, mutant
from test_asm import items, rich, same

from simmodel import isa
from simmodel.isa import Copy, Item, Loop
from simmodel.isa.region import Address, Operand, Ring
from simmodel.program.assembly import print_program
from simmodel.program.loadable import (
    Loadable,
    LoadableError,
    from_bytes,
    packed,
    to_bytes,
    unpacked,
)
from simmodel.program.program import Port, Program
from simmodel.program.relocation import PlaceError, PortBytes, ports_of, relocate

PORTS = (PortBytes("x", "dram", 64, 96, True), PortBytes("y", "dram", 4096, 2, False))


def loadable(base: Program) -> bytes:
    states = (("cache", "cache out"),)
    return to_bytes(Loadable(base, '{"name": "test"}', states, "test 1", PORTS))


@pytest.mark.parametrize("base", [pipeline(), pipeline("interlock"), relay(3), rich(), program()])
def test_programs_come_back(base: Program) -> None:
    again = from_bytes(loadable(base))
    assert same(again.program, base) and print_program(again.program) == print_program(base)
    assert again.machine == '{"name": "test"}' and again.maker == "test 1"
    assert again.states == (("cache", "cache out"),) and again.ports == PORTS


@given(random_programs(), st.lists(items, max_size=3).map(tuple))
@settings(max_examples=15)
def test_random_programs_come_back(base: Program, more: tuple[Item, ...]) -> None:
    base = replace(base, cores=(*base.cores, more), tokens=(*base.tokens, {"t": 3}))
    assert same(from_bytes(loadable(base)).program, base)


BASES = [base_of(loadable(base)) for base in (pipeline(), relay(2), rich())]


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from(BASES))
def test_a_damaged_file_is_refused_or_read(seed: int, base: Base) -> None:
    assert judged(base, *mutant(base, random.Random(seed))) in ("refused", "same", "another")


def test_the_header_is_as_documented() -> None:
    document, rest = b'{"maker": "me"}', b"data"
    data = packed(document, rest)
    assert data[:12] == bytes.fromhex("894e50550d0a1a0a 03000000")
    assert data[12:16] == zlib.crc32(data[32:]).to_bytes(4, "little")
    assert data[16:32] == struct.pack("<QQ", len(zlib.compress(document, 9)), len(document))
    assert zlib.decompress(data[32:64]) == document and data[64:] == rest


def test_data_is_aligned_and_not_copied() -> None:
    base = program(constants=tuple(constant(f"c{n}", 64 * n, np.ones(n, "f4")) for n in (3, 5)))
    for each in from_bytes(loadable(base)).program.constants:
        assert not each.data.flags.owndata and not each.data.flags.writeable


def refused(data: bytes, match: str) -> None:
    with pytest.raises(LoadableError, match=match):
        from_bytes(data)


def test_damage_is_refused_in_words() -> None:
    good = loadable(pipeline())
    refused(b"PK\x03\x04", "^no loadable: expected 89 4e 50 55 .* found 50 4b 03 04")
    refused(good[:20], "expected a header of 32 bytes, found 20")
    refused(good[:-1], "damaged or cut off: another checksum")
    refused(good[:8] + b"\x04" + good[9:], "format 4, this reader knows 3: use a newer archgen")
    refused(good[:8] + b"\x02" + good[9:], "format 2, .*: compile the network again")
    refused(good[:40] + b"x" + good[41:], "damaged or cut off: another checksum")
    refused(good[:16] + b"\x01" + good[17:], "document: expected .* bytes in")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"states": [["x"]]}, "^states 0 1: Field required"),
        ({"states": 3}, "^states: Input should be a valid"),
        ({"more": 3}, "^more: Extra inputs are not permitted"),
        ({"program": "program name=x arch=y\ncore 1"}, "^program 2:6: expected core 0"),
        ({"constants": {"c": ["int9", [1], 0]}}, "^constant 'c': expected an element type"),
        ({"constants": {"c": ["int8", [-1], 0]}}, "^constant 'c': expected extents below"),
        ({"constants": {"c": ["int8", [2**40], 0]}}, "^constant 'c': expected some of"),
        ({"constants": {"c": ["int8", [1], -1]}}, "^constant 'c': expected some of"),
    ],
)
def test_documents_that_are_none_are_refused(change: dict[str, Any], match: str) -> None:
    document, _ = unpacked(loadable(program()))
    refused(packed(json.dumps(json.loads(document) | change).encode(), b""), match)


def test_a_few_bytes_do_not_stand_for_many() -> None:
    long = packed(bytes(10**6), b"")
    assert len(long) == 10**6 // 32
    more = struct.pack("<Q", 32 * len(long) + 1)
    refused(long[:24] + more + long[32:], "bytes stand for more than 32 each")


@dataclass(frozen=True, kw_only=True)
class _Own(isa.Sync):
    MNEMONIC: ClassVar[str] = "own.sync"
    before: int


@dataclass(frozen=True, kw_only=True)
class _Newer(isa.Sync):
    MNEMONIC: ClassVar[str] = "own.sync"
    before: int
    since: tuple[int, ...] = (4,)


def test_files_outlive_new_fields_and_not_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(isa.INSTRUCTIONS, "own.sync", _Own)
    old = loadable(program((_Own(engine="load", before=7),)))
    monkeypatch.setitem(isa.INSTRUCTIONS, "own.sync", _Newer)
    (read,) = from_bytes(old).program.cores[0]
    assert read == _Newer(engine="load", before=7)
    new = loadable(program((dataclasses.replace(read, since=(1, 2)),)))
    monkeypatch.setitem(isa.INSTRUCTIONS, "own.sync", _Own)
    refused(new, "expected another field of _Own, found 'since'")
    monkeypatch.delitem(isa.INSTRUCTIONS, "own.sync")
    refused(new, "program .* found 'own.sync'")


def test_what_no_file_holds_is_not_written() -> None:
    with pytest.raises(LoadableError, match="holds no elements of complex64"):
        loadable(program(constants=(constant("c", 0, np.ones(3, "c8")),)))
    with pytest.raises(LoadableError, match="has constants of the same name"):
        loadable(program(constants=(constant("c", 0, np.ones(3, "f4")),) * 2))


# Ports at addresses of the caller's: what is theirs moves, all else stays.


def port(name: str, address: int, size: int) -> Port:
    return Port(name, at("dram", address, (size,)), (size,), "int8")


def moving(base: int, *terms: tuple[str, int], ring: Ring | None = None) -> Operand:
    return replace(at("dram", 0, (64,)), address=Address(base, terms, ring))


def copied(src: Operand, dst: Operand) -> Copy:
    return Copy(engine="load", src=src, dst=dst)


LOCAL = at("local", 0, (64,))


def net(*more: Copy) -> Program:
    """x at 0 .. 256 is read in four turns, y at 256 .. 384 written in a ring of two."""
    body = (
        copied(moving(192, ("t", -64)), LOCAL),
        copied(LOCAL, moving(256, ring=Ring(2, 64, 0, (("t", 1),)))),
    )
    base = program(
        (Loop("t", 4, body), *more), constants=(constant("w", 512, np.zeros(64, np.int8)),)
    )
    return replace(base, inputs=(port("x", 0, 256),), outputs=(port("y", 256, 128),))


def test_what_is_of_a_port_moves_with_it_and_nothing_else() -> None:
    base = net(copied(at("dram", 512, (64,)), LOCAL))
    assert ports_of(base) == (
        PortBytes("x", "dram", 0, 256, True), PortBytes("y", "dram", 256, 128, True),
    )  # fmt: skip
    moved = relocate(base, {"x": 4096})
    (loop, weights) = moved.cores[0]
    assert isinstance(loop, Loop) and weights == base.cores[0][1]
    read, written = loop.body
    assert isinstance(read, Copy) and read.src == moving(4096 + 192, ("t", -64))
    assert written == base.cores[0][0].body[1]  # type: ignore[union-attr]
    assert [each.operand.address.base for each in (*moved.inputs, *moved.outputs)] == [4096, 256]
    assert relocate(moved, {"x": 0}).cores == base.cores


def test_ports_may_change_places() -> None:
    swapped = relocate(net(), {"x": 128, "y": 0})
    assert [(each.base, each.size) for each in ports_of(swapped)] == [(128, 256), (0, 128)]
    assert relocate(swapped, {"x": 0, "y": 256}).cores == net().cores


def test_ports_in_one_place_move_together() -> None:
    base = replace(net(), inputs=(port("x", 0, 256), port("before", 256, 128)))
    assert ports_of(relocate(base, {"y": 1024}))[1].base == 1024
    with pytest.raises(PlaceError, match="y: before and y lie in one place, which is asked to"):
        relocate(base, {"before": 1024, "y": 2048})


def test_a_port_that_a_command_reaches_across_stays() -> None:
    base = net(copied(at("dram", 224, (64,)), LOCAL))
    assert [each.movable for each in ports_of(base)] == [False, False]
    with pytest.raises(PlaceError, match="x stays where it is: a command reaches from its bytes"):
        relocate(base, {"x": 4096})


def test_every_reason_is_listed() -> None:
    with pytest.raises(PlaceError) as caught:
        relocate(net(), {"z": 0, "x": -1})
    assert str(caught.value).splitlines() == [
        "there is no port 'z'; there are x, y",
        "x: expected an address from 0 on, found -1",
    ]
    with pytest.raises(PlaceError) as caught:
        relocate(net(copied(at("dram", 1024, (64,)), LOCAL)), {"x": 448, "y": 1000})
    assert str(caught.value).splitlines() == [
        "x: bytes 0x1c0 .. 0x2c0 are those of constant w, 0x200 .. 0x240; "
        "all from 0x480 on are free",
        "y: bytes 0x3e8 .. 0x468 are those of what lies between layers, 0x400 .. 0x440; "
        "all from 0x480 on are free",
    ]
