"""Programs as text and as bytes: what is written comes back the same, mistakes in a text are
pointed at, and what is no loadable is refused in words."""

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
from handmade import at, constant, machine, pipeline, program, random_programs, relay
from hypothesis import given, settings
from hypothesis import strategies as st
from loadable_mutants import Base, base_of, judged, mutant

from simmodel import isa
from simmodel.arch.dtype import NUMPY
from simmodel.isa import Conv, Copy, HostCall, Instruction, Item, Loop, Reduce, Sync, Unary, Window
from simmodel.isa.region import Address, Limit, Operand, Ring
from simmodel.program.assembly import (
    ParseError,
    constant_data,
    parse_items,
    parse_program,
    print_item,
)
from simmodel.program.assembly import print_program as printed
from simmodel.program.loadable import (
    Loadable,
    LoadableError,
    from_bytes,
    packed,
    to_bytes,
    unpacked,
)
from simmodel.program.program import Buffer, Origin, Port, Program
from simmodel.program.relocation import PlaceError, PortBytes, ports_of, relocate
from simmodel.verify import verify

names = st.one_of(
    st.sampled_from(["i", "tile_3", "x.y", "ring", "loop", "wait", "signal", "inf", "none"]),
    st.text(max_size=6),
)
numbers = st.integers(-(2**40), 2**40)
terms = st.lists(st.tuples(names, numbers), max_size=3).map(tuple)
rings = st.builds(Ring, st.integers(1, 9), numbers, numbers, terms)
floats = st.floats(allow_nan=False)


@st.composite
def operands(draw: st.DrawFn) -> Operand:
    shape = tuple(draw(st.lists(st.integers(1, 99), max_size=4)))
    operand = at(
        draw(st.sampled_from(["dram", "local", "shared", "weights", "accumulators"])), 0, shape,
        draw(st.sampled_from(list(NUMPY))), scale=draw(st.none() | floats),
        zero=draw(st.integers(-128, 127)),
        cores=tuple(draw(st.lists(st.integers(0, 31), max_size=3))),
    )  # fmt: skip
    address = Address(draw(numbers), draw(terms), draw(st.none() | rings))
    if draw(st.booleans()):
        strides = st.lists(st.integers(-99, 99), min_size=len(shape), max_size=len(shape))
        operand = replace(operand, strides=tuple(draw(strides)))
    axes = st.none() | st.sampled_from(range(len(shape))) if shape else st.none()
    limits = st.lists(st.builds(Limit, axes, numbers, terms), max_size=2).map(tuple)
    return replace(operand, address=address, limits=draw(limits))


uses = st.lists(st.tuples(names, st.integers(0, 99)), max_size=3).map(tuple)
common: dict[str, Any] = {"waits": uses, "signals": uses, "origin": st.integers(0, 99)}
pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
maybe = st.none() | operands()
unary: dict[str, Any] = {"engine": names, "function": names, "a": operands(), "dst": operands()}
instructions: st.SearchStrategy[Instruction] = st.one_of(
    st.builds(Sync, engine=names, **common),
    st.builds(
        Conv, engine=names, dst=operands(), a=operands(), w=operands(), partial=maybe, bias=maybe,
        multiplier=maybe, low=floats, high=floats, stride=pairs, dilation=pairs, **common,
    ),
    st.builds(Unary, parameters=st.lists(floats, max_size=3).map(tuple), **unary, **common),
    st.builds(
        HostCall, engine=names, payload=st.integers(0, 9),
        inputs=st.lists(operands(), max_size=3).map(tuple),
        outputs=st.lists(operands(), max_size=3).map(tuple), **common,
    ),
    st.builds(Window, kernel=pairs, **unary),
    st.builds(Reduce, **unary),
)  # fmt: skip
items: st.SearchStrategy[Item] = st.recursive(
    instructions,
    lambda inner: st.builds(
        Loop, names, st.integers(-1, 2**40), st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(items)
def test_items_come_back(item: Item) -> None:
    assert parse_items(print_item(item)) == (item,)


def same(one: Program, two: Program) -> bool:
    """Equality of programs; arrays of constants are compared by type and value."""
    for a, b in zip(one.constants, two.constants, strict=True):
        if (a.name, a.address, a.used, a.data.dtype) != (b.name, b.address, b.used, b.data.dtype):
            return False
        if a.data.tobytes() != b.data.tobytes() or a.data.shape != b.data.shape:
            return False
    return replace(one, constants=()) == replace(two, constants=())


def rich() -> Program:
    """Every record of a program."""
    base = pipeline()
    return replace(
        base,
        name='odd "name"\n; not a comment',
        constants=(*base.constants, constant("b f", 64, np.ones((2, 3), NUMPY["bf16"]))),
        barriers={"all": 2, "a b": 1},
        buffers=(Buffer("x", "local", 0, 64, 0, 1, 2), Buffer("d", "dram", 64, 9)),
        origins=(Origin("conv/1:0", 0, "Conv"), Origin("añb\u2028c", 3, "Add")),
        payloads=(b"", bytes(range(256))),
        macs=12345678901,
    )


PORTS = (PortBytes("x", "dram", 64, 96, True), PortBytes("y", "dram", 4096, 2, False))


def loadable(base: Program) -> bytes:
    states = (("cache", "cache out"),)
    return to_bytes(Loadable(base, '{"name": "test"}', states, "test 1", PORTS))


@pytest.mark.parametrize("base", [pipeline(), pipeline("interlock"), relay(3), rich(), program()])
def test_programs_come_back(base: Program) -> None:
    text, loaded = printed(base), from_bytes(loadable(base))
    for again in (parse_program(text, constant_data(base)), loaded.program):
        assert same(again, base) and printed(again) == text
    assert loaded.machine == '{"name": "test"}' and loaded.maker == "test 1"
    assert loaded.states == (("cache", "cache out"),) and loaded.ports == PORTS


@settings(max_examples=60)
@given(random_programs(), st.lists(items, max_size=3).map(tuple))
def test_random_programs_come_back(base: Program, more: tuple[Item, ...]) -> None:
    base = replace(base, cores=(*base.cores, more), tokens=(*base.tokens, {"t": 3}))
    assert same(parse_program(printed(base)), base)
    assert same(from_bytes(loadable(base)).program, base)


def test_constants_survive_an_archive(tmp_path: Any) -> None:
    base = rich()
    np.savez(tmp_path / "constants.npz", **constant_data(base))
    with np.load(tmp_path / "constants.npz") as archive:
        assert same(parse_program(printed(base), dict(archive)), base)


def test_changed_constants_are_refused() -> None:
    base = pipeline()
    data = constant_data(base)
    data["w"] = data["w"] + np.int8(1)
    with pytest.raises(ParseError, match=r"expected int8\[16, 8\] with hash"):
        parse_program(printed(base), data)
    with pytest.raises(ParseError, match="a constant whose data is given"):
        parse_program(printed(base))


BY_HAND = """
; copies 4 rows of 16 bytes, one at a time, with two buffers
program name=hand arch=test
origin node="the copy" group=0 kind=Copy
input name=x operand=dram[0]:int8[64] shape=(64) dtype=int8
output name=y operand=dram[0x1000]:int8[64] shape=(64) dtype=int8
core 0
    token full 0
    token free 2
    loop i 4
        copy load dst=local[ring(2, 16, i)]:int8[16] src=dram[16*i]:int8[16] wait free 1 signal full 1
        copy store dst=dram[0x1000 + 16*i]:int8[16] src=local[ring(2, 16, i)]:int8[16] wait full 1 signal free 1 ; back
"""  # noqa: E501


def test_a_program_written_by_hand_passes_the_verifier() -> None:
    program = parse_program(BY_HAND)
    verify(program, machine())
    assert sum(stream.issued for stream in program.expanded) == 8


def test_text_is_readable() -> None:
    operand = at(
        "local", 0x1A00, (8, 16), terms={"i": 512}, ring=Ring(2, 4096, 1, (("j", 1),)),
        scale=0.05, zero=3, cores=(1,), strides=(32, 1),
    )  # fmt: skip
    item = Unary(engine="vector", function="move", a=operand, dst=at("local", 0, (8, 16)))
    assert print_item(replace(item, waits=(("full", 1), ("free", 2)), origin=12)) == (
        "vector.unary vector function=move dst=local[0x0]:int8[8,16] "
        "a=local[0x1a00 + 512*i + ring(2, 4096, j + 1)]:int8[8,16]/{32,1}*0.05+3@1 "
        "wait full 1, free 2 !12"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fly load", r"1:1: expected loop, copy"),
        ("copy", r"1:5: expected an engine, found 'end of line'"),
        ("copy load", r"1:10: expected dst=, src= for Copy"),
        ("copy load dst=5", r"1:15: expected Operand for dst, found '5'"),
        ("copy load speed=5", r"1:11: expected another field of Copy, found 'speed'"),
        ("copy load dst=local[0]:int3[4]", r"1:24: expected one of bool, int8"),
        ("copy load dst=local[0]:int8[4", r"1:30: expected ',', found 'end of line'"),
        ("copy load dst=local[0 1]:int8[4]", r"1:23: expected '\+', '-' or '\]', found '1'"),
        ("copy load dst=local[0]:int8[4]/{1,2}", r"1:24: expected 1 extents|1:24: expected 2 ext"),
        (f"copy load dst=local[0]:int8[4]*0x{'f' * 280}", r"1:32: expected at most 250 digits"),
        ("copy load dst=local[1.5]:int8[4]", r"1:21: expected a number, a loop variable"),
        ("copy load $", r"1:11: expected the end of the line, found '\$'"),
        ('copy load "open', r"1:11: expected the end of the line"),
        ("sync load wait a", r"1:17: expected a count"),
        ("sync load wait a 1 2", r"1:20: expected the end of the line"),
        ("loop i\n  sync load", r"1:7: expected a count"),
        ("loop i 2\n  sync load\n    sync load", r"3:5: expected an indentation of 2 spaces"),
    ],
)  # fmt: skip
def test_mistakes_are_pointed_at(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_items(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"1:1: expected a program"),
        ("core 0", r"1:1: expected 'program'"),
        ("program name=x", r"1:15: expected arch= for Header"),
        ("program name=x arch=y\nflag 3", r"2:1: expected register, origin, tile, buffer"),
        ("program name=x arch=y\ncore 1", r"2:6: expected core 0"),
        ("program name=x arch=y\ntoken a 1", r"2:7: expected a core before"),
        ('program name=x arch=y\npayload "%"', r"2:9: expected a payload in base64"),
        ("program name=x arch=y\nbuffer name=b", r"2:14: expected memory=, address=, size="),
    ],
)
def test_mistakes_in_programs_are_pointed_at(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_program(text)


# Loadables.

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
