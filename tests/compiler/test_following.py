"""Parts of cores that follow a length: every core has its share of what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import archgen
from archgen.check.reference import run_node
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.program.program import Program
from simmodel.program.sizes import specialize
from simmodel.verify import verify

ROWS, WIDE = 64, 32


def compiled(folder: Path, arch: Arch, products: int) -> Program:
    """Products with a softmax of rows behind each, for 1 to ROWS rows."""
    weights, nodes, last = [], [], "x"
    for n in range(products):
        weights.append(numpy_helper.from_array((n + 2) * np.eye(WIDE, dtype="f4"), f"w{n}"))
        made = "y" if n == products - 1 else f"n{n}"
        nodes += [
            helper.make_node("MatMul", [last, f"w{n}"], [f"p{n}"]),
            helper.make_node("Softmax", [f"p{n}"], [made], axis=-1),
        ]
        last = made
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", WIDE]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
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
