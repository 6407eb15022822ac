"""Assembly: what is printed parses back to the same, and mistakes are pointed at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import at, constant, machine, pipeline, program, random_programs, relay
from hypothesis import given, settings
from hypothesis import strategies as st

from simmodel.arch.dtype import NUMPY
from simmodel.isa import Conv, HostCall, Instruction, Item, Loop, Reduce, Sync, Unary, Window
from simmodel.isa.region import Address, Limit, Operand, Ring
from simmodel.program.assembly import (
    ParseError,
    constant_data,
    parse_items,
    parse_program,
    print_item,
)
from simmodel.program.assembly import print_program as printed
from simmodel.program.program import Buffer, Origin, Program
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
        draw(st.sampled_from(["dram", "local", "shared", "weights", "accumulators"])),
        0,
        shape,
        draw(st.sampled_from(list(NUMPY))),
        scale=draw(st.none() | floats),
        zero=draw(st.integers(-128, 127)),
        cores=tuple(draw(st.lists(st.integers(0, 31), max_size=3))),
    )
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


@pytest.mark.parametrize("base", [pipeline(), pipeline("interlock"), relay(3), rich(), program()])
def test_programs_come_back(base: Program) -> None:
    text = printed(base)
    again = parse_program(text, constant_data(base))
    assert same(again, base) and printed(again) == text


@settings(max_examples=60)
@given(random_programs(), st.lists(items, max_size=3).map(tuple))
def test_random_programs_come_back(base: Program, more: tuple[Item, ...]) -> None:
    base = replace(base, cores=(*base.cores, more), tokens=(*base.tokens, {"t": 3}))
    assert same(parse_program(printed(base)), base)


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
