"""Functions that one vector instruction computes one after another, values between them in the
lanes: cycles worked out by hand, and the same bytes as two instructions make.
"""

from __future__ import annotations

import numpy as np
import pytest
from blocks import conv
from machines import changed, machine
from networks import Checked, Net, check, feeds_of

from compiler.api import CompileOptions
from compiler.options import Stages
from compiler.target.start_sums import FACTORS, LARGEST, StartSums, as_digits
from compiler.tensor_ir.nest import Storage, Tensor
from simmodel.arch.base import CHAINS
from simmodel.execute import execute
from simmodel.isa.functions import TERNARY

APART = machine(types=("int8",), accumulators=8192, matrix={"rate": {"int8": 1.0}})
CHAINED = changed(APART, "isa", chains=("add_mul",))


def vector_cycles(found: Checked) -> int:
    return sum(each.busy for each in found.trace.engines if each.engine == "vector")


def test_bias_and_scale_of_sums_take_one_pass() -> None:
    """16 channels of 8 x 8 pixels on 16 lanes are 64 vectors. The input is quantized, sums get bias
    and scale, and the result is made real: 4 passes apart, 3 chained, without 1024 values of fp32
    that go to local memory and come from there.
    """
    net = Net(quantized=True)
    network = net.model(conv(net, net.input(1, 16, 8, 8), 16, (1, 1)))
    apart, chained = check(network, APART, "int8"), check(network, CHAINED, "int8")
    assert [vector_cycles(apart), vector_cycles(chained)] == [4 * 64, 3 * 64]
    assert apart.trace.traffic["local.write"] - chained.trace.traffic["local.write"] == 1024 * 4
    assert chained.trace.cycles < apart.trace.cycles
    x = {"x0": np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype("f4")}
    ((name, made),) = execute(chained.compiled.program, x, CHAINED).items()
    np.testing.assert_array_equal(made, execute(apart.compiled.program, x, APART)[name])


@pytest.mark.parametrize("grain", ["gemm", "tile"])
def test_sums_start_from_their_bias(grain: str) -> None:
    """A pass of 64 vectors less, 2 instructions more that lay the factors of the digits. The row of
    16 columns is made once, of 4 digits each."""
    net = Net(quantized=True)
    network = net.model(conv(net, net.input(1, 16, 8, 8), 16, (1, 1)))
    arch = changed(APART, "matrix", granularity=grain)
    without = CompileOptions(stages=Stages(starts=StartSums(enabled=False)))
    begun, apart = check(network, arch, "int8"), check(network, arch, "int8", without)
    assert [vector_cycles(apart), vector_cycles(begun)] == [4 * 64, 3 * 64 + 2]
    assert begun.trace.macs - apart.trace.macs == 16 * 4
    x = feeds_of(network)
    ((name, made),) = execute(begun.compiled.program, x, arch).items()
    np.testing.assert_array_equal(made, execute(apart.compiled.program, x, arch)[name])


def test_a_residual_reads_sums_that_start_from_their_bias() -> None:
    """1 024 sums are 64 vectors: one pass adds the residual to what is in the accumulators, behind
    one instruction that lays the factors of the bias's two fp16 digits. Apart, the bias is a pass
    of its own, whose real results go through local memory."""
    net = Net()
    block = net.op("Add", conv(net, net.input(1, 16, 8, 8), 16, (1, 1)), net.input(1, 16, 8, 8))
    network = net.model(net.op("Relu", block))
    arch = machine(types=("fp16",), accumulators=8192, matrix={"granularity": "gemm"})
    without = CompileOptions(stages=Stages(starts=StartSums(enabled=False)))
    begun, apart = check(network, arch, "fp16"), check(network, arch, "fp16", without)
    assert [vector_cycles(apart), vector_cycles(begun)] == [2 * 64, 64 + 1]
    assert begun.trace.macs - apart.trace.macs == 16 * 2
    written = [found.trace.traffic["local.write"] for found in (apart, begun)]
    assert written[0] - written[1] == 1024 * 4 - 16  # the factors take a word of a bank


@pytest.mark.parametrize("most", [LARGEST, LARGEST + 1])
def test_what_four_digits_hold(most: int) -> None:
    """1 and three times 255, each up to 127 times."""
    values = np.array([0, 1, -128, 255 * 128 + 5, most, -most])
    bias = Tensor("b", values.shape, "int32", Storage("b", 0, (1,)), digits="int8")
    digits = as_digits(values, bias).view(np.int8).reshape(-1, 4).astype(int)
    assert ((digits @ FACTORS == values) == (np.abs(values) <= 127 * (1 + 3 * 255))).all()


def test_every_chain_is_a_function() -> None:
    assert set(CHAINS) <= {*TERNARY}
