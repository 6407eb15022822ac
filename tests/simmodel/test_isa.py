"""Every instruction answers for itself: engine, cycles, traffic, effect on bytes, text.

`CASES` holds at least one example of every class with an independent, plain computation of what it
writes; a class without an example fails. Loops taken as one wide instruction must write what their
iterations write one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from handmade import at, machine
from hypothesis import given, settings
from hypothesis import strategies as st

import simmodel.isa as isa
from simmodel.arch.dtype import NUMPY
from simmodel.isa.forms import absent, forms
from simmodel.isa.functions import BINARY, REDUCE, UNARY
from simmodel.isa.region import Address, Operand
from simmodel.program.assembly import parse_items, print_item
from simmodel.program.expand import expand
from simmodel.program.substitute import map_operands

Memory = dict[str, np.ndarray]
Reals = Callable[..., np.ndarray]
SIZE = 1 << 15


def memory(seed: int = 0) -> Memory:
    """Random bytes in every memory; the floats among them are written by the cases."""
    random = np.random.default_rng(seed)
    return {
        role: random.integers(0, 256, SIZE, dtype=np.uint8)
        for role in ("dram", "local", "accumulators", "shared")
    }


def look(bytes_: Memory, operand: Operand, variables: dict[str, int] | None = None) -> np.ndarray:
    return np.ndarray(
        operand.shape,
        NUMPY[operand.dtype],
        bytes_[operand.memory],
        operand.address.at(variables or {}),
        operand.strides,
    )


@dataclass(frozen=True)
class Case:
    """An instruction, its cycles on the test machine, the bytes it moves, and its result."""

    instruction: isa.Instruction
    cycles: int
    traffic: int
    result: Reals | None = None
    """From the raw values of its reads to the raw values of dst."""


def int8(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), -128, 127).astype(np.int8)


def sliding(a: np.ndarray, w: np.ndarray, stride: int, depthwise: bool) -> np.ndarray:
    """A convolution, element by element."""
    kh, kw = w.shape[:2]
    rows, cols = (a.shape[0] - kh) // stride + 1, (a.shape[1] - kw) // stride + 1
    out = np.zeros((rows, cols, w.shape[-1]), np.int64)
    for y in range(rows):
        for x in range(cols):
            for i in range(kh):
                for j in range(kw):
                    pixel = a[y * stride + i, x * stride + j].astype(np.int64)
                    weights = w[i, j].astype(np.int64)
                    out[y, x] += pixel * weights if depthwise else pixel @ weights
    return out


def product(a: np.ndarray, w: np.ndarray, *extra: np.ndarray) -> np.ndarray:
    return a.astype(np.int64) @ w.astype(np.int64) + sum(e.astype(np.int64) for e in extra)


def bordered(a: np.ndarray) -> np.ndarray:
    return np.pad(a, ((1, 1), (2, 1)), constant_values=-7)


def requantized(a: np.ndarray, w: np.ndarray, b: np.ndarray, m: np.ndarray) -> np.ndarray:
    sums = (a.astype(int) + 5) @ w.astype(int) + b
    steps = np.clip(sums.astype(np.float32) * m, 0, 300) / np.float32(4)
    return np.clip(np.rint(steps) + 3, -128, 127).astype(np.int8)


SMALL = at("accumulators", 0, (1, 2, 2, 6), "int32")
FACTORS = at("local", 4096, (6,), "fp32")
IMAGE, IMAGES = at("local", 0, (7, 5, 4)), at("local", 0, (2, 7, 5, 4))

CASES = [
    # What they do stands in test_narrow: their index may not be anything.
    Case(
        isa.Gather(
            engine="load", dst=at("local", 0, (3, 6)), src=at("dram", 0, (10, 6), strides=(16, 1)),
            index=at("dram", 512, (3,), "int32"),
        ),
        12, 3 * 64 + 32 + 64,
    ),
    Case(
        isa.Scatter(
            engine="store", dst=at("dram", 0, (10, 6), strides=(16, 1)), src=at("local", 0, (3, 6)),
            index=at("local", 512, (3,), "int64"),
        ),
        12, 3 * 64 + 32 + 32,
    ),
    Case(
        isa.Copy(
            engine="load", dst=at("local", 0, (4, 6)), src=at("dram", 64, (4, 6), strides=(16, 1)),
        ),
        4, 32 + 4 * 64, lambda a: a,  # one run of each row per cycle
    ),
    Case(
        isa.Copy(
            engine="load", dst=at("local", 0, (5, 7)), src=at("dram", 64, (3, 4)), before=(1, 2),
            fill=-7.0,
        ),
        5, 48 + 64, bordered,
    ),
    Case(
        isa.Fill(engine="load", dst=at("local", 32, (4, 8)), value=5.0), 2, 32,
        lambda: np.full((4, 8), 5, np.int8),
    ),
    Case(
        isa.Tile(
            engine="matrix", dst=SMALL, a=at("local", 0, (1, 2, 2, 8)), w=at("local", 64, (8, 6)),
            partial=SMALL,
        ),
        1, 32 + 48 + 96 + 96, product,
    ),
    Case(
        isa.Gemm(
            engine="matrix", dst=at("local", 2048, (1, 2, 2, 6), scale=4.0, zero=3),
            a=at("local", 0, (1, 2, 2, 8), zero=-5), w=at("local", 64, (8, 6)),
            bias=at("local", 1024, (6,), "int32"), multiplier=FACTORS, low=0.0, high=300.0,
        ),
        1, 32 + 48 + 32 + 32 + 32,
        requantized,
    ),
    Case(
        isa.Conv(
            engine="matrix", dst=at("accumulators", 0, (2, 3, 2, 6), "int32"), a=IMAGES,
            w=at("local", 1024, (3, 3, 4, 6)), stride=(2, 2),
        ),
        10, 288 + 216 + 288, lambda a, w: np.stack([sliding(image, w, 2, False) for image in a]),
    ),
    Case(  # 2 x 3 x 2 tiles, the last ones in part empty: two blocks of rows for each product
        isa.WinogradConv(
            engine="matrix", dst=at("accumulators", 0, (2, 5, 3, 6), "int32"), a=IMAGES,
            w=at("local", 1024, (3, 3, 4, 6)),
        ),
        32, 288 + 216 + 720, lambda a, w: np.stack([sliding(image, w, 1, False) for image in a]),
    ),
    Case(
        isa.DepthwiseConv(
            engine="matrix", dst=at("accumulators", 0, (2, 5, 3, 4), "int32"), a=IMAGES,
            w=at("local", 1024, (3, 3, 4)),
        ),
        8, 288 + 36 + 480, lambda a, w: np.stack([sliding(image, w, 1, True) for image in a]),
    ),
    Case(
        isa.Splat(
            engine="vector", dst=at("local", 512, (2, 3, 20), strides=(256, 32, 1)), value=-128.0
        ),
        12, 6 * 32, lambda: np.full((2, 3, 20), -128, np.int8),
    ),
    Case(
        isa.Unary(
            engine="vector", function="leaky_relu", a=at("local", 0, (3, 20), scale=0.5, zero=2),
            dst=at("local", 512, (3, 20), scale=0.25), parameters=(0.125,),
        ),
        4, 64 + 64,
        lambda a: int8(
            np.where(a.astype(int) >= 2, 1, 0.125) * (a.astype(np.float64) - 2) * 0.5 / 0.25
        ),
    ),
    Case(
        isa.Binary(
            engine="vector", function="add", a=at("local", 0, (3, 20), scale=0.5),
            b=at("local", 64, (3, 20), strides=(0, 1), scale=0.25), dst=at("local", 512, (3, 20)),
            low=-20.0, high=20.0,
        ),
        6, 64 + 32 + 64,
        lambda a, b: int8(np.clip(a.astype(np.float64) / 2 + b.astype(np.float64) / 4, -20, 20)),
    ),
    Case(
        isa.Ternary(
            engine="vector", function="select", a=at("local", 0, (16,)), b=at("local", 64, (16,)),
            c=at("local", 128, (16,)), dst=at("local", 192, (16,)),
        ),
        1, 64, lambda a, b, c: np.where(a != 0, b, c),
    ),
    Case(
        isa.Reduce(
            engine="vector", function="sum", a=at("local", 0, (6, 8)),
            dst=at("local", 512, (1, 8), "int32"), partial=at("local", 512, (1, 8), "int32"),
        ),
        6, 48 + 32 + 32, lambda a, p: p + a.astype(int).sum(0, keepdims=True),
    ),
    Case(
        isa.Window(
            engine="vector", function="max", a=IMAGE, kernel=(3, 3), stride=(2, 1),
            dst=at("local", 2048, (3, 3, 4)),
        ),
        81, 144 + 48,
        lambda a: np.array(
            [[a[2 * y : 2 * y + 3, x : x + 3].max((0, 1)) for x in range(3)] for y in range(3)]
        ),
    ),
    Case(
        isa.Window(
            engine="vector", function="sum", a=IMAGE, w=at("local", 1024, (3, 3, 4)), kernel=(3, 3),
            dst=at("local", 2048, (5, 3, 4), "int32"),
        ),
        135, 144 + 48 + 240, lambda a, w: sliding(a, w, 1, True),
    ),
    Case(  # 3 rows of sums, 5 values each, for 20 lanes: 3 x 5 x 2 vectors of 16
        isa.Product(
            engine="vector", a=at("local", 0, (3, 5, 1), strides=(5, 1, 0)),
            w=at("local", 64, (1, 5, 20), strides=(0, 20, 1)),
            dst=at("local", 512, (3, 1, 20), "int32"),
        ),
        # The weights twice, for 2 rows and for one; 15 values for each vector; the sums.
        30, 2 * 112 + 2 * 16 + 240,
        lambda a, w: (a.astype(int)[:, :, 0] @ w.astype(int)[0])[:, None],
    ),
    Case(  # a sum of 7 x 4 along the lanes, two vectors of them, behind what there was
        isa.Product(
            engine="vector", a=at("local", 0, (7, 4)), w=at("local", 64, (7, 4), strides=(8, 2)),
            dst=at("local", 512, (1, 1), "int32"), partial=at("local", 512, (1, 1), "int32"),
        ),
        2, 32 + 16 * 28 + 16 + 16,
        lambda a, w, p: p + (a.astype(int) * w.astype(int)).sum(),
    ),
    Case(isa.ScalarNop(count=7), 7, 0),
    Case(
        isa.ScalarUnary(function="neg", a=at("local", 0, (3, 5)), dst=at("local", 512, (3, 5))),
        15 * 2, 2 * 16, lambda a: int8(-a.astype(int)),
    ),
    Case(
        isa.ScalarBinary(
            function="mul", a=at("local", 0, (10,)), b=at("local", 64, (10,)),
            dst=at("local", 512, (10,), "int32"),
        ),
        10 * 4, 16 + 16 + 48, lambda a, b: a.astype(int) * b,
    ),
    Case(
        isa.ScalarTernary(
            function="select", a=at("local", 0, (8,)), b=at("local", 64, (8,)),
            c=at("local", 128, (8,)), dst=at("local", 512, (8,)),
        ),
        8 * 2, 4 * 16, lambda a, b, c: np.where(a != 0, b, c),
    ),
    Case(
        isa.ScalarReduce(
            function="max", a=at("local", 0, (4, 6)), dst=at("local", 512, (4, 1)),
        ),
        24 * 2, 32 + 16, lambda a: a.max(1, keepdims=True),
    ),
    Case(
        isa.HostCall(
            payload=0, inputs=(at("dram", 0, (16,)),), outputs=(at("dram", 64, (2, 8)),),
            operations=1000,
        ),
        100, 128,
    ),
    Case(isa.Sync(engine="load", waits=(("a", 2),), signals=(("b", 1), ("odd name", 3))), 0, 0),
    Case(isa.Arrive(engine="store", barrier="all"), 0, 0),
    Case(isa.Await(engine="load", barrier="all"), 0, 0),
    Case(isa.Claim(engine="load", dst=at("local", 0, (16,)), waits=(("full", 1),)), 0, 0),
]  # fmt: skip

IDS = [f"{i}-{case.instruction.MNEMONIC}" for i, case in enumerate(CASES)]


def test_every_instruction_has_a_case() -> None:
    assert {type(case.instruction) for case in CASES} == set(isa.INSTRUCTIONS.values())
    assert all(name == kind.MNEMONIC for name, kind in isa.INSTRUCTIONS.items())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_engine_cycles_traffic_and_text(case: Case) -> None:
    instruction, arch = case.instruction, machine()
    assert instruction.engine in (*arch.engines(), "host")
    assert instruction.unencodable(arch) is None
    assert instruction.cycles(arch) == case.cycles
    assert instruction.startup(arch) >= 0
    flows = instruction.traffic(arch)
    assert sum(flow.bytes for flow in flows) == case.traffic
    # What is claimed moves with another core's instruction.
    own = () if isinstance(instruction, isa.Claim) else instruction.writes()
    assert {f.operand for f in flows if f.write} == set(own)
    assert parse_items(print_item(instruction)) == (instruction,)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_prototype_answers_for_all_that_are_elsewhere(case: Case) -> None:
    here, arch = case.instruction, machine()
    moved = map_operands(here, lambda o: replace(o, address=o.address.plus(64)))
    assert isinstance(moved, type(here))
    there = replace(moved, waits=(("t", 1),), origin=3)
    kind = there.prototype
    assert kind is here.prototype is kind.prototype
    assert replace(here, engine="other").prototype is not kind
    assert (kind.cycles(arch), kind.startup(arch)) == (here.cycles(arch), here.startup(arch))
    assert (kind.overlap(arch), kind.breaches) == (here.overlap(arch), here.breaches)

    def moves(instruction: isa.Instruction) -> list[tuple[int, bool, float]]:
        places = [id(operand) for operand in instruction.operands()]
        flows = instruction.traffic(arch)
        return [(places.index(id(f.operand)), f.write, f.load(arch)) for f in flows]

    assert moves(kind) == moves(there)


@pytest.mark.parametrize("case", [c for c in CASES if c.result], ids=lambda c: type(c.instruction))
def test_effect(case: Case) -> None:
    bytes_ = memory()
    look(bytes_, FACTORS)[...] = np.linspace(0.001, 0.02, 6)
    instruction = case.instruction
    for operand in instruction.reads():
        if operand.dtype == "int32":
            look(bytes_, operand)[...] //= 2**12
    inputs = [look(bytes_, operand).copy() for operand in instruction.reads()]
    untouched = {role: data.copy() for role, data in bytes_.items()}
    assert case.result is not None
    expected = case.result(*inputs)
    instruction.execute(lambda operand: look(bytes_, operand))
    (dst,) = instruction.writes()
    assert look(bytes_, dst).tolist() == np.asarray(expected).tolist()
    look(untouched, dst)[...] = look(bytes_, dst)
    assert all((untouched[role] == bytes_[role]).all() for role in bytes_), "wrote elsewhere"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 1}, "2 dimensions"),
        ({"max_extent": 8, "rank": 2}, "extent 9"),
        ({"types": ["int32"]}, "no int8"),
        ({"writes": ["accumulators"]}, "does not write local"),
    ],
)
def test_what_a_splat_cannot_be(changes: dict[str, Any], message: str) -> None:
    splat = isa.Splat(engine="vector", dst=at("local", 0, (4, 9), strides=(16, 1)))
    vector = machine().vector.model_copy(update=changes)
    reason = splat.unencodable(machine().model_copy(update={"vector": vector}))
    assert reason is not None
    assert message in reason


@pytest.mark.parametrize(
    ("shape", "rank", "cycles"),
    [
        ((24,), 2, 3 * 2),  # 3 rows of 8, each 2 vectors of 5 lanes
        ((3, 8), 2, 3 * 2),  # which is the same
        ((24,), 1, None),
        ((20,), 2, 4 * 1),  # 4 rows of 5: 8 would leave a rest
        ((11,), 2, 11 * 1),  # which falls into nothing else
    ],
)
def test_a_long_row_is_walked_as_rows(
    shape: tuple[int, ...], rank: int, cycles: int | None
) -> None:
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    splat = isa.Splat(engine="vector", dst=at("local", 0, shape, strides=strides))
    changes = {"rank": rank, "max_extent": 8, "lanes": 5}
    arch = machine().model_copy(update={"vector": machine().vector.model_copy(update=changes)})
    assert (splat.unencodable(arch) is None) == (cycles is not None)
    assert cycles is None or splat.cycles(arch) == cycles


def test_rounding_needs_the_type_that_it_rounds_to() -> None:
    rounding = isa.Unary(
        engine="vector", function="round_fp16", dst=at("local", 64, (8,), "fp32"),
        a=at("local", 0, (8,), "fp32"),
    )  # fmt: skip
    for types, reason in ((["fp32"], "no fp16 in vector.types"), (["fp32", "fp16"], None)):
        vector = machine().vector.model_copy(update={"types": types})
        other = machine().model_copy(update={"vector": vector})
        assert absent(forms()[rounding.form], other) == reason
    x = np.array([1 + 2.0**-12, 70_000], np.float32)
    with np.errstate(over="ignore"):
        assert UNARY["round_fp16"].apply(x).tolist() == [1, np.inf]
    assert UNARY["round_bf16"].apply(x).tolist() == [1, 70_144]


@pytest.mark.parametrize("name", [n for t in (UNARY, BINARY) for n in t if not t[n].bits])
def test_functions_are_finite_and_fp32(name: str) -> None:
    x = np.linspace(0.125, 3, 24, dtype=np.float32)
    if name in ("asin", "acos", "atanh", "acosh"):  # where these are defined
        x = x + np.float32(1) if name == "acosh" else x / np.float32(4)
    function = UNARY.get(name) or BINARY[name]
    others = [0.5] * len(function.parameters) if name in UNARY else [x[::-1]]
    result = function.apply(x, *others)
    assert result.dtype == np.float32 and np.isfinite(result).all()


@pytest.mark.parametrize("name", REDUCE)
def test_reductions_in_parts_give_the_whole(name: str) -> None:
    bytes_ = memory()
    whole = at("local", 0, (4, 6), scale=1 / 64)
    dst = at("local", 1024, (1, 6), "fp32")
    first = replace(whole, shape=(2, 6))
    second = replace(first, address=Address(12))
    view = lambda operand: look(bytes_, operand)  # noqa: E731
    isa.Reduce(engine="vector", function=name, a=whole, dst=dst).execute(view)
    expected = look(bytes_, dst).copy()
    isa.Reduce(engine="vector", function=name, a=first, dst=dst).execute(view)
    isa.Reduce(engine="vector", function=name, a=second, dst=dst, partial=dst).execute(view)
    assert np.allclose(look(bytes_, dst), expected, rtol=1e-6)


# Bulk form: one wide instruction against its iterations.

BASES = [
    case.instruction
    for case in CASES
    if case.result is not None and all(o.dtype != "fp32" for o in case.instruction.reads())
]


@st.composite
def loop_nests(draw: st.DrawFn) -> isa.Loop:
    """One or two loops around an instruction, each operand moved by each loop or not."""
    instruction = draw(st.sampled_from(BASES))
    names = draw(st.sampled_from([("i",), ("i", "j")]))
    changes: dict[str, Any] = {}
    moves: dict[tuple[str, int, str], tuple[tuple[str, int], ...]] = {}
    for name in vars(instruction):
        operand = getattr(instruction, name)
        if not isinstance(operand, Operand):
            continue
        # Operands at one place (partial and dst) move together.
        key = operand.memory, operand.address.base, operand.dtype
        if key not in moves:
            step = st.sampled_from([0, 0, 1, 2, 24, 240]).map(lambda n, o=operand: n * o.itemsize)
            moves[key] = tuple((variable, draw(step)) for variable in names)
        changes[name] = replace(operand, address=replace(operand.address, terms=moves[key]))
    item: Any = replace(instruction, **changes)
    for variable in reversed(names):
        item = isa.Loop(variable, draw(st.integers(1, 4)), (item,))
    return item


def one_by_one(item: Any, bytes_: Memory, variables: dict[str, int]) -> None:
    if not isinstance(item, isa.Loop):
        item.execute(lambda operand: look(bytes_, operand, variables))
        return
    for value in range(item.count):
        for inner in item.body:
            one_by_one(inner, bytes_, {**variables, item.variable: value})


def in_bulk(item: isa.Loop, bytes_: Memory) -> bool:
    """Execute the expansion; whether any site stands for several iterations."""
    expansion = expand((item,))
    pairs = zip(expansion.order.tolist(), expansion.occurrence.tolist(), strict=True)
    for index, turn in pairs:
        site = expansion.sites[index]
        at_ = {id(o): int(a[turn]) for o, a in zip(site.operands, site.addresses, strict=True)}
        site.wide.execute(
            lambda o, at_=at_: np.ndarray(
                o.shape, NUMPY[o.dtype], bytes_[o.memory], at_[id(o)], o.strides
            )
        )
    return any(site.times > 1 for site in expansion.sites)


@settings(max_examples=400)
@given(loop_nests(), st.integers(0, 3))
def test_wide_instructions_write_what_their_iterations_write(item: isa.Loop, seed: int) -> None:
    single, bulk = memory(seed), memory(seed)
    for bytes_ in (single, bulk):
        bytes_["accumulators"].view(np.int32)[...] //= 2**12
    one_by_one(item, single, {})
    in_bulk(item, bulk)
    assert all((single[role] == bulk[role]).all() for role in single), print_item(item)


def test_common_loops_are_taken_in_bulk() -> None:
    """The property above would hold if nothing were ever widened; these must be."""
    rows = {"t": 8}
    tile = isa.Tile(
        engine="matrix", a=at("local", 0, (1, 2, 2, 8), terms={"k": 8}, strides=(128, 64, 32, 1)),
        w=at("local", 1024, (8, 6), terms={"k": 48}), dst=SMALL, partial=SMALL,
    )  # fmt: skip
    move = isa.Copy(
        engine="load", dst=at("local", 0, (8,), terms=rows), src=at("dram", 0, (8,), terms=rows)
    )
    assert in_bulk(isa.Loop("k", 4, (tile,)), memory())
    assert in_bulk(isa.Loop("t", 4, (move,)), memory())
