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
    """The vector engine adds 1 and halves 128 k elements, 8192 vectors in two cycles each; the
    other engine takes 8192 x 8 for tanh, which the vector engine had to do as well."""
    net = Net()
    y = net.op("Mul", net.op("Tanh", net.op("Add", net.input(512, 256), net.weight(256))), net.weight(256))
    for arch in (with_engine(lanes=1), with_engine(), with_engine(cost={"special": 8})):
        made = check(net.model(y), arch, "fp16")
        print(made.trace.cycles, busy(made.trace))
    assert False
