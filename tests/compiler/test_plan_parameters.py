"""Parameters of a layer (bias, multipliers) are loaded once where they are small beside weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import pytest
from machines import machine
from networks import Net, check

from simmodel.isa import Copy, Item, Loop
from simmodel.program.program import Program

DEEP, WIDE = 64, 128
"""Channels in and out of the product: 32 KiB of weights, 512 bytes of bias."""


def biased() -> onnx.ModelProto:
    net = Net()
    weights, bias = net.weight(WIDE, DEEP, 1, 1), net.weight(WIDE)
    return net.model(net.op("Conv", net.input(1, DEEP, 4, 4), weights, bias))


def copies(items: Sequence[Item], times: int = 1) -> Iterator[tuple[Copy, int]]:
    """Each copy, and how often it happens."""
    for item in items:
        if isinstance(item, Loop):
            yield from copies(item.body, times * item.count)
        elif isinstance(item, Copy):
            yield item, times


def loads(program: Program, size: int) -> list[int]:
    """Of each core, loads of the constant of `size` bytes."""
    (home,) = (c for c in program.constants if c.data.nbytes == size)
    return [
        sum(
            times
            for copy, times in copies(core)
            if copy.src.memory == "dram" and 0 <= copy.src.address.base - home.address < size
        )
        for core in program.cores
    ]


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("cores", [1, 2])
def test_a_bias_is_loaded_once_beside_streamed_weights(cores: int, sync: str) -> None:
    """Weights come in pieces, since 16 KiB do not hold them; the bias, 1/64 of them, at once."""
    arch = machine(cores=cores, sync=sync, local={"size": 16384})
    program = check(biased(), arch, "fp32").compiled.program
    assert max(loads(program, 4 * WIDE * DEEP)) > 1
    assert loads(program, 4 * WIDE) == [1] * cores


@pytest.mark.parametrize("latency", [20, 500])
def test_the_price_counts_one_load(latency: int) -> None:
    """Three loads more would be 1 500 cycles of the longer latency."""
    made = check(biased(), machine(local={"size": 16384}, latency=latency), "fp32")
    expected = sum(step.schedule.estimate.total for step in made.compiled.decisions)
    assert expected == pytest.approx(made.trace.cycles, rel=0.05)
