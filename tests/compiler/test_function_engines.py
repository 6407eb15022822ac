"""An engine for functions beside the vector engine: what it is given, and that both work at the
same time.

Vectors have 16 lanes and a special function takes 8 cycles for each: times are worked out by hand.
"""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from machines import machine
from networks import Net, check

from simmodel.arch.record import Arch
from simmodel.trace import Trace


def with_engine(**fields: Any) -> Arch:
    """A core with an engine of 16 lanes that takes a cycle for each vector of a function."""
    engine = {"lanes": 16, "cost": {"special": 1}, **fields}
    cube = {"rows": 8, "cols": 8, "depth": 8, "rate": {"fp16": 1.0}}
    local = {"size": 1 << 18, "banks": 16, "bank_width": 32}
    return machine(
        types=("fp16",), matrix=cube, vector={"lanes": 16}, local=local,
        engines={"functions": engine},
    )  # fmt: skip


def busy(trace: Trace) -> dict[str, int]:
    return {e.engine: e.busy for e in trace.engines if e.busy}


def tanh() -> onnx.ModelProto:
    net = Net()
    return net.model(net.op("Tanh", net.input(64, 64)))


@pytest.mark.parametrize(
    ("fields", "engine", "cycles"),
    [
        ({}, "functions", 256),
        ({"cost": {"special": 8}}, "functions", 256 * 8),  # as fast: the vector engine stays free
        ({"cost": {"special": 9}}, "vector", 256 * 8),
        ({"lanes": 1}, "vector", 256 * 8),
        ({"forms": "vector.unary.exp"}, "vector", 256 * 8),
        ({"types": ["int8", "fp32"]}, "vector", 256 * 8),
    ],
)
def test_a_function_runs_where_it_takes_fewer_cycles(
    fields: dict[str, Any], engine: str, cycles: int
) -> None:
    """64 x 64 elements are 256 vectors of 16."""
    found = busy(check(tanh(), with_engine(**fields), "fp16").trace)
    other = {"functions": "vector", "vector": "functions"}[engine]
    assert (found[engine], found.get(other, 0)) == (cycles, 0)


def test_both_work_at_the_same_time() -> None:
    """Of 128 k elements the vector engine adds 8192 vectors in as many cycles, 8 for each of which
    the other engine takes for tanh: alone the vector engine takes the sum."""
    net = Net()
    y = net.op("Tanh", net.op("Add", net.input(512, 256), net.weight(256)))
    alone = check(net.model(y), with_engine(lanes=1), "fp16").trace
    assert busy(alone)["vector"] == 8192 * 9
    both = check(net.model(y), with_engine(cost={"special": 8}), "fp16").trace
    assert (busy(both)["vector"], busy(both)["functions"]) == (8192, 8192 * 8)
    assert 8192 * 8 < both.cycles < 8192 * 8.2 < alone.cycles


def test_a_product_is_finished_while_the_tile_before_it_has_its_function() -> None:
    """The array, the vector engine that adds the bias and the engine of functions work on three
    tiles."""
    net = Net()
    x = net.op("MatMul", net.input(512, 64), net.weight(64, 256))
    y = net.op("Tanh", net.op("Add", x, net.weight(256)))
    alone = check(net.model(y), with_engine(lanes=1), "fp16").trace
    both = check(net.model(y), with_engine(cost={"special": 8}), "fp16").trace
    assert busy(both)["functions"] == 8192 * 8
    assert 8192 * 8 < both.cycles < 8192 * 8.5 < alone.cycles
