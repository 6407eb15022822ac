"""Programs for lengths that are known when they run: what is left of them, and that it is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from handmade import ROWS, TILES, K, at, machine, pipeline, pipeline_answer, port
from hypothesis import given
from hypothesis import strategies as st

from simmodel.execute import execute
from simmodel.isa import Claim, HostCall, Item, Loop
from simmodel.isa.region import Address, Limit, Operand, Register, Ring
from simmodel.machine.run import simulate
from simmodel.program.assembly import parse_items, parse_program, print_item, print_program
from simmodel.program.program import Probe, Program, TensorSlice
from simmodel.program.sizes import LengthError, lengths_of, specialize, specialize_probe
from simmodel.program.substitute import operands_of
from simmodel.verify import findings, verify

MOST = TILES * ROWS


def limited(item: Item) -> Item:
    """A tile's instructions with rows of the tile up to the register `n`."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(map(limited, item.body)))
    terms = (("n", 1), ("t", -ROWS))
    changes: dict[str, Any] = {
        field.name: replace(value, limits=(Limit(0, MOST, terms),))
        for field in fields(item)
        if isinstance(value := getattr(item, field.name), Operand) and value.shape[0] == ROWS
    }
    return replace(item, **changes)


def rows_at_run_time(sync: str = "tokens") -> Program:
    """`pipeline` for 1 to MOST rows."""
    whole = pipeline(sync)

    def short(port: Any) -> Any:
        limits = (Limit(0, MOST, (("n", 1),)),)
        return replace(port, operand=replace(port.operand, limits=limits))

    return replace(
        whole,
        cores=tuple(tuple(map(limited, stream)) for stream in whole.cores),
        inputs=tuple(map(short, whole.inputs)),
        outputs=tuple(map(short, whole.outputs)),
        registers=(Register("n", 1, MOST),),
    )


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("rows", range(1, MOST + 1))
def test_every_length_is_verified_and_right(rows: int, sync: str) -> None:
    made, arch = specialize(rows_at_run_time(sync), {"n": rows}), machine(sync)
    verify(made, arch)
    x = np.random.default_rng(rows).integers(-128, 128, (rows, K)).astype(np.int8)
    found = execute(made, {"x": x}, arch)["y"]
    assert np.array_equal(found, pipeline_answer(x))


def test_the_most_is_the_program_itself() -> None:
    assert print_program(specialize(rows_at_run_time(), {"n": MOST})) == print_program(pipeline())


def test_time_follows_the_length() -> None:
    whole, arch = rows_at_run_time(), machine()
    cycles = [simulate(specialize(whole, {"n": rows}), arch).cycles for rows in (4, 8, 12, MOST)]
    assert cycles == sorted(set(cycles))
    assert cycles[-1] == simulate(pipeline(), arch).cycles


def test_a_call_of_the_host_takes_what_there_is() -> None:
    rows, moved = (Limit(0, 8, (("n", 1),)),), Address(0x100, (("n", 32),))
    call = HostCall(
        payload=0, operations=800,
        inputs=(Operand("dram", Address(0), (8, 4), (16, 4), "fp32", limits=rows),),
        outputs=(Operand("dram", moved, (8, 4), (16, 4), "fp32", limits=rows),),
    )  # fmt: skip
    whole = replace(rows_at_run_time(), cores=((call,),), registers=(Register("n", 1, 8),))
    ((made,),) = specialize(whole, {"n": 6}).cores
    assert print_item(made).strip() == (
        "host.call host payload=0 inputs=(dram[0x0]:fp32[6,4]) outputs=(dram[0xc0]:fp32[6,4]) "
        "operations=600"
    )


STREAM = """\
loop t 8
  vector.unary vector function=relu dst=local[0x400 + 128*t]:int8[8,16]?{0: 64 + seq + -8*t} \
a=local[0x0 + 128*t]:int8[8,16]?{0: 64 + seq + -8*t} wait full 1 signal free 1
copy.fill load dst=local[0x800 + 16*seq]:int8[16]?{none: 8 + seq}
"""
LEFT = {
    64: """\
loop t 8
  vector.unary vector function=relu dst=local[0x400 + 128*t]:int8[8,16] \
a=local[0x0 + 128*t]:int8[8,16] wait full 1 signal free 1
copy.fill load dst=local[0x800]:int8[16]""",
    61: """\
loop t 7
  vector.unary vector function=relu dst=local[0x400 + 128*t]:int8[8,16] \
a=local[0x0 + 128*t]:int8[8,16] wait full 1 signal free 1
vector.unary vector function=relu dst=local[0x780]:int8[5,16] a=local[0x380]:int8[5,16] \
wait full 1 signal free 1
copy.fill load dst=local[0x7d0]:int8[16]""",
    16: """\
loop t 2
  vector.unary vector function=relu dst=local[0x400 + 128*t]:int8[8,16] \
a=local[0x0 + 128*t]:int8[8,16] wait full 1 signal free 1
loop t 6
  sync vector wait full 1 signal free 1""",
}


def empty(stream: tuple[Item, ...]) -> Program:
    """A program of `stream` alone, with a register of 1 to 64."""
    return Program(
        name="text", arch="test", cores=(stream,), tokens=({"full": 0},), barriers={}, constants=(),
        buffers=(), inputs=(), outputs=(), origins=(), registers=(Register("seq", 1, 64),),
    )  # fmt: skip


@pytest.mark.parametrize("length", LEFT)
def test_what_is_left(length: int) -> None:
    made = specialize(empty(parse_items(STREAM)), {"seq": length})
    assert "\n".join(map(print_item, made.cores[0])) == LEFT[length]


SUM = """\
matrix.tile matrix dst=accumulators[0x0]:int32[1,1,1,4] a=local[0x2]:int8[1,1,1,2]?{3: 2 + k} \
w=weights[0x8]:int8[2,4]?{0: 2 + k}
matrix.tile matrix dst=local[0x40]:int8[1,1,1,4] a=local[0x0]:int8[1,1,1,2]?{3: 4 + k} \
w=weights[0x0]:int8[2,4]?{0: 4 + k} partial=accumulators[0x0]:int32[1,1,1,4]?{none: 2 + k}
"""
SUMMED = {
    3: """\
matrix.tile matrix dst=accumulators[0x0]:int32[1,1,1,4] a=local[0x2]:int8[1,1,1,1]/{2,2,2,1} \
w=weights[0x8]:int8[1,4]
matrix.tile matrix dst=local[0x40]:int8[1,1,1,4] a=local[0x0]:int8[1,1,1,2] \
w=weights[0x0]:int8[2,4] partial=accumulators[0x0]:int32[1,1,1,4]""",
    2: """\
sync.claim matrix dst=local[0x2]:int8[1,1,1,2]
sync.claim matrix dst=weights[0x8]:int8[2,4]
sync.claim matrix dst=accumulators[0x0]:int32[1,1,1,4]
matrix.tile matrix dst=local[0x40]:int8[1,1,1,4] a=local[0x0]:int8[1,1,1,2] \
w=weights[0x0]:int8[2,4]""",
}


@pytest.mark.parametrize("length", SUMMED)
def test_a_sum_starts_where_what_it_would_go_on_from_is_not_there(length: int) -> None:
    whole = replace(empty(parse_items(SUM)), registers=(Register("k", 1, 4),))
    made = specialize(whole, {"k": length}).cores[0]
    assert "\n".join(map(print_item, made)) == SUMMED[length]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(1, 48))
def test_nested_loops_leave_what_every_turn_leaves(
    outer: int, inner: int, size: int, length: int
) -> None:
    """A row cut inside of tiles: what is left covers the positions below the length, each once."""
    most = outer * inner * size
    length = min(length, most)
    step = inner * size
    text = (
        f"loop a {outer}\n  loop b {inner}\n    copy.fill load dst=local[{step}*a + {size}*b]:"
        f"int8[{size}]?{{0: {most} + seq + -{step}*a + -{size}*b}}\n"
    )
    whole = replace(empty(parse_items(text)), registers=(Register("seq", 1, most),))
    touched = [
        int(start) + offset
        for core in specialize(whole, {"seq": length}).expanded
        for site in core.sites
        if not isinstance(site.instruction, Claim)
        for start in site.addresses[0]
        for offset in _offsets(site.operands[0])
    ]
    assert sorted(touched) == list(range(length))


def _offsets(operand: Operand) -> list[int]:
    positions = np.indices(operand.shape).reshape(len(operand.shape), -1).T
    return [int(offset) for offset in positions @ np.array(operand.strides)]


def test_a_core_begins_behind_the_shares_of_others() -> None:
    """Of 64 rows two cores have 32 each; of 37 the first has 19, so the second begins 13 rows
    earlier and has 18."""
    text = 'copy.fill load dst=local[0x200 + 16*"seq/2"]:int8[32,16]?{0: 32 + seq + -1*"seq/2"}\n'
    half = Register("seq/2", 1, 32, 2, 0, (("seq", 1),))
    whole = empty(parse_items(text))
    whole = replace(whole, registers=(*whole.registers, half))
    made = specialize(whole, {"seq": 37}).cores[0]
    assert [print_item(item) for item in made] == ["copy.fill load dst=local[0x130]:int8[18,16]"]
    assert parse_program(print_program(whole)).registers == whole.registers
    with pytest.raises(LengthError, match="no length of the program, which has seq;"):
        specialize(whole, {"seq/2": 1})


def test_lengths_that_a_program_has_not() -> None:
    whole = replace(rows_at_run_time(), registers=(Register("n", 1, MOST), Register("m", 2, 4)))
    with pytest.raises(LengthError) as error:
        specialize(whole, {"n": MOST + 1, "k": 3})
    assert str(error.value) == (
        "k is no length of the program, which has n, m; n is 25, expected 1 .. 24; "
        "m is not given, expected 2 .. 4"
    )


def two_lengths() -> Program:
    """Inputs x[n, 4], past[2 m, 4] and mask[n + 2 m]."""

    def short(name: str, shape: tuple[int, ...], *terms: tuple[str, int]) -> Any:
        most = at("dram", 0, shape, limits=(Limit(0, shape[0], terms),))
        return port(name, most)

    return replace(
        empty(()),
        inputs=(
            short("mask", (24,), ("n", 1), ("m", 2)),
            short("x", (8, 4), ("n", 1)),
            short("past", (16, 4), ("m", 2)),
        ),
        registers=(Register("n", 1, 8), Register("m", 0, 8)),
    )


def test_lengths_follow_from_the_shapes_of_inputs() -> None:
    shapes = {"x": (3, 4), "past": (10, 4), "mask": (13,)}
    assert lengths_of(two_lengths(), shapes) == {"n": 3, "m": 5}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"x": (3, 4), "past": (10, 4), "mask": (12,)},
            "dimension 0 of mask is 12, expected 13: n is 3 by dimension 0 of x, "
            "m is 5 by dimension 0 of past",
        ),
        (
            {"x": (3, 4), "past": (9, 4), "mask": (12,)},
            "dimension 0 of past is 9, expected 16 less a multiple of 2; "
            "dimension 0 of mask is 12, expected 19 less a multiple of 2",
        ),
        ({"x": (3, 4)}, "no input says what m is"),
        (
            {"x": (3, 4), "pst": (10, 4)},
            "no input says what m is; 'pst' is no input, expected mask, x, past",
        ),
    ],
)
def test_shapes_that_fit_no_lengths(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(LengthError) as error:
        lengths_of(two_lengths(), shapes)
    assert str(error.value) == message


def test_a_probe_lies_where_its_lengths_say() -> None:
    row = TensorSlice(at("dram", 640, (1, 8), terms={"n": 8}))
    probe = Probe("row", 0, (1, 8), "int8", (row,))
    made = specialize_probe(probe, (Register("n", 1, 8),), {"n": 5})
    assert made.slices[0].operand.address == Address(640 - 3 * 8)


# What a program leaves open makes sense for every length, or is refused before it is settled.

N = Register("n", 1, MOST)


def said(made: Program) -> list[str]:
    return [f"[{each.rule}] {each.message}" for each in findings(made, machine())]


@pytest.mark.parametrize(
    ("registers", "expected"),
    [
        ((N, N), "[register] register 'n' is there 2 times, expected once"),
        ((Register("", 1, 2),), "[register] a register has no name"),
        ((Register("n", 0, MOST),),
         f"[register] register 'n' has low=0 high={MOST}, expected 1 <= low <= high < 2147483648"),
        ((Register("n", -5, MOST),), f"[register] register 'n' has low=-5 high={MOST}"),
        ((Register("n", 1, 10**20),), f"[register] register 'n' has low=1 high={10**20}"),
        ((Register("n", 1, MOST, 2),), "[register] register 'n' has parts or a base, which are of"),
        ((N, Register("m", 1, 8, 2, 0, (("k", 1),))),
         "[register] register 'm' is a share of 'k', which is no length; there are 'n'"),
        ((N, Register("m", 1, 8, 0, 0, (("n", 1),))), "[register] register 'm' has parts=0"),
        ((N, Register("m", 1, MOST, 2, 0, (("n", 1),))),
         f"[register] register 'm' has high={MOST}, expected {MOST // 2}, its share of the most"),
        ((Register("n", 1, MOST - 1),),
         f"[port] input 'x': dimension 0 has {MOST} positions at the most, but register n has "
         f"high={MOST - 1}"),
        ((Register("n", 1, 2 * MOST),),
         f"[port] input 'x': dimension 0 has {MOST} positions at the most, but register n has "
         f"high={2 * MOST}"),
        ((Register("k", 1, MOST),),
         "[port] input 'x': no loop around it counts 'n', and no register is called so"),
        ((), "[limit] it has limits, which only programs with registers have"),
    ],
)  # fmt: skip
def test_registers_are_what_the_program_is_made_for(
    registers: tuple[Register, ...], expected: str
) -> None:
    found = said(replace(rows_at_run_time(), registers=registers))
    assert any(each.startswith(expected) for each in found), found


def changed(item: Item, change: Callable[[Operand], Operand]) -> Item:
    """`item` with other operands where they have limits."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(changed(inner, change) for inner in item.body))
    new: dict[str, Any] = {n: change(o) for n, o in operands_of(item).items() if o.limits}
    return replace(item, **new)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda o: replace(o, limits=(Limit(0, 4, (("zzz", 1),)),)),
         "[limit] no loop around it counts 'zzz', and no register is called so"),
        (lambda o: replace(o, limits=(Limit(7, 4, (("n", 1),)),)),
         "[limit] dimension 7 has a limit, the operand has"),
        (lambda o: replace(o, address=Address(0, (("zzz", 1),))),
         "[loop] no loop around it counts 'zzz'"),
        (lambda o: replace(o, address=Address(0, (), Ring(0, 4, 0, (("n", 1),)))),
         "[shape] a ring of 0 slots, expected at least 1"),
    ],
)  # fmt: skip
def test_what_names_a_length_names_one(change: Callable[[Operand], Operand], expected: str) -> None:
    made = rows_at_run_time()
    cores = tuple(tuple(changed(item, change) for item in stream) for stream in made.cores)
    assert any(each.startswith(expected) for each in said(replace(made, cores=cores)))


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (("q", 10**12), "[loop] it has limits inside of 10000000000"),
        (("n", 2), "[loop] loop n has the name of a register"),
        (("q", 0), "[loop] loop q runs 0 times"),
    ],
)
def test_loops_around_limits_are_few_and_have_names_of_their_own(
    loop: tuple[str, int], expected: str
) -> None:
    made = rows_at_run_time()
    cores = tuple(tuple(Loop(*loop, (item,)) for item in stream) for stream in made.cores)
    assert any(each.startswith(expected) for each in said(replace(made, cores=cores)))
