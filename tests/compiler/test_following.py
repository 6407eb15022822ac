"""Parts of cores that follow a length, what a split of the upper edge costs lengths below it, and
which of several programs for a range is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import model
from onnx import helper

import archgen
from archgen.check.reference import run_node
from compiler.schedule.tiling.objective import charge
from compiler.search.symbolic_sizes import over_lengths
from compiler.tensor_ir.nest import Storage, Tensor, row_major
from compiler.tensor_ir.registers import Count
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa.region import Register
from simmodel.program.program import Program
from simmodel.program.sizes import specialize
from simmodel.verify import verify

ROWS, WIDE = 64, 32


def compiled(folder: Path, arch: Arch, products: int) -> Program:
    """Products with a softmax of rows behind each, for 1 to ROWS rows."""
    weights, nodes, last = {}, [], "x"
    for n in range(products):
        weights[f"w{n}"] = (n + 2) * np.eye(WIDE, dtype="f4")
        made = "y" if n == products - 1 else f"n{n}"
        nodes += [
            helper.make_node("MatMul", [last, f"w{n}"], [f"p{n}"]),
            helper.make_node("Softmax", [f"p{n}"], [made], axis=-1),
        ]
        last = made
    path = folder / "net.onnx"
    onnx.save(model(nodes, {"x": ["rows", WIDE]}, {"y": ["rows", WIDE]}, weights), path)
    family = archgen.load_family(path, dims={"rows": (1, ROWS)})
    return archgen.compile_model(family, arch, effort=0)


def stored(program: Program) -> list[int]:
    """By core, rows that it stores."""
    return [
        sum(
            operand.elements
            for site in core.order.tolist()
            for operand in core.sites[site].wide.writes()
            if operand.memory == "dram"
        )
        // WIDE
        for core in program.expanded
    ]


@pytest.mark.parametrize(
    ("name", "products", "cores"),
    [("tpu-v3-like", 1, 2), ("tpu-v3-like", 3, 2), ("ascend-310-like", 2, 8)],
)
def test_each_core_has_its_share_of_any_length(
    tmp_path: Path, name: str, products: int, cores: int
) -> None:
    arch = archgen.load_arch(name)
    program = compiled(tmp_path, arch, products)
    assert [each.name for each in program.registers] == ["rows", f"rows/{cores}"]
    for rows in (1, 17, 40, ROWS):
        made = specialize(program, {"rows": rows})
        verify(made, arch)
        most = -(-rows // cores)
        assert stored(made) == [max(0, min(most, rows - most * core)) for core in range(cores)]
        x = np.random.default_rng(rows).normal(size=(rows, WIDE)).astype("f4")
        right = x
        for n in range(products):
            powers = np.exp((n + 2) * right)
            right = powers / powers.sum(-1, keepdims=True)
        found = execute(made, {"x": x}, arch, run_node)["y"]
        np.testing.assert_allclose(found, right, atol=0.02)


def test_rows_of_a_constant_follow_the_share(tmp_path: Path) -> None:
    """What is added to the scores of all heads stays on chip, by each core its own rows."""
    heads, most, wide, keys = 16, 512, 32, 96
    rng = np.random.default_rng(0)
    table = rng.normal(size=(most, keys)).astype("f4")
    nodes = [
        helper.make_node("Shape", ["q"], ["rows"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "rows", "zero"], ["t"]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "t"], ["a"]),
        helper.make_node("Softmax", ["a"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs = {"q": [heads, "rows", wide], "k": [heads, wide, keys], "v": [heads, keys, wide]}
    weights = {"table": table, "zero": np.array([0])}
    path = tmp_path / "net.onnx"
    onnx.save(model(nodes, inputs, {"y": [heads, "rows", wide]}, weights), path)
    arch = archgen.load_arch("ascend-310-like")
    family = archgen.load_family(path, dims={"rows": (1, most)})
    program = archgen.compile_model(family, arch, effort=0)
    assert [each.name for each in program.registers] == ["rows", "rows/2"]
    for rows in (17, 257):
        made = specialize(program, {"rows": rows})
        verify(made, arch)
        shapes = (heads, rows, wide), (heads, wide, keys), (heads, keys, wide)
        q, k, v = (rng.normal(size=shape).astype("f4") for shape in shapes)
        powers = np.exp(q @ k + table[:rows])
        right = powers / powers.sum(-1, keepdims=True) @ v
        found = execute(made, {"q": q, "k": k, "v": v}, arch, run_node)["y"]
        np.testing.assert_allclose(found, right, atol=0.03)


BATCH = Count(0, (("batch", 1),))


def result(shape: tuple[int, ...], *counts: Count | None) -> Tensor:
    return Tensor("y", shape, "int8", Storage("y", 0, row_major(shape)), counts=counts)


def parts(most: int, among: int, width: int) -> list[tuple[tuple[int, int], ...]]:
    size = -(-most // among)
    starts = range(0, most, size)
    return [((start, min(size, most - start)), (0, width)) for start in starts]


def test_cores_with_a_sample_each_are_idle_at_most_lengths() -> None:
    # Of 1 to 8 samples eight cores could do eight each time: 64 for 36.
    assert charge(result((8, 4), BATCH, None), parts(8, 8, 4), 1.0) == 64 / 36
    assert charge(result((8, 4), BATCH, None), parts(8, 8, 4), 0.05) == 1.05


def test_other_splits_cost_nothing() -> None:
    by_rows = [((0, 8), (start, 1)) for start in range(4)]
    assert charge(result((8, 4), BATCH, None), by_rows, 1.0) == 1
    assert charge(result((8, 4)), parts(8, 8, 4), 1.0) == 1


@given(most=st.integers(1, 600), among=st.integers(1, 32))
def test_the_charge_is_the_mean_over_all_lengths(most: int, among: int) -> None:
    own = parts(most, among, 1)
    cores = len(own)
    seeming = sum(cores * math.ceil(n / cores) for n in range(1, most + 1))
    expected = seeming / sum(range(1, most + 1))
    assert charge(result((most, 1), BATCH, None), own, 99.0) == pytest.approx(expected)


SAMPLES = Register("batch", 1, 8)


@dataclass(frozen=True)
class Made:
    """A program and its cycles at 8, 4 and 1."""

    name: str
    cycles: tuple[int, int, int]
    registers: tuple[Register, ...] = (SAMPLES,)

    @property
    def program(self) -> Program:
        nothing = ((),) * 5
        return Program(self.name, "machine", ((),), ({},), {}, *nothing, registers=self.registers)


def chosen(*tried: Made, allowed: float = 0.05) -> str:
    """The name of what is taken; short runs are in the order in which they are asked for."""
    asked: dict[str, list[int]] = {each.name: [*each.cycles[1:]] for each in tried}

    def cycles(program: Program) -> int:
        assert not program.registers
        return asked[program.name].pop(0)

    return over_lengths(tried, lambda m: m.cycles[0], lambda m: m.program, cycles, allowed).name


SPLIT = Made("a sample each", (254, 214, 202))
BY_ROWS = Made("rows each", (259, 174, 131))


def test_a_little_more_at_the_edge_for_much_less_below() -> None:
    assert chosen(SPLIT, BY_ROWS) == "rows each"


def test_not_more_than_is_allowed() -> None:
    assert chosen(SPLIT, BY_ROWS, allowed=0.01) == "a sample each"


def test_a_program_of_one_length_is_the_quickest() -> None:
    fixed = [Made(each.name, each.cycles, registers=()) for each in (SPLIT, BY_ROWS)]
    assert chosen(*fixed) == "a sample each"
