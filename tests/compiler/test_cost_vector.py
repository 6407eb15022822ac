"""What the vector engine is expected to take is what its instructions take, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import machine
from networks import Net

from compiler.api import CompileOptions, compile_model
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate

ENGINES: dict[str, dict[str, Any]] = {
    "three dimensions": {"rank": 3},
    "one dimension": {"rank": 1},
    "short rows": {"rank": 2, "max_extent": 24},
    "no windows": {"rank": 3, "window": False},
    "narrow for wide types": {"rank": 3, "wide_lanes": 4},
}


def engine(kind: str, latency: int = 3) -> Arch:
    """A machine without a fast path: all but products is for its vector engine."""
    return machine(
        types=("fp32",), latency=0, copy={"bandwidth": "1 MiB/cycle"},
        local={"size": 1 << 20, "banks": 64, "bank_width": 512, "latency": f"{latency} cycles"},
        vector={"lanes": 16, "startup": "7 cycles", "types": ["fp32", "int32"]} | ENGINES[kind],
    )  # fmt: skip


def layers() -> dict[str, Any]:
    """Networks of one layer each."""
    nets = {name: Net() for name in ("window", "pool", "sum", "bias", "plain")}
    x = {name: net.input(1, 24, 10, 10) for name, net in nets.items()}
    weights = nets["window"].weight(24, 1, 3, 3), nets["window"].weight(24)
    ends = {
        "window": nets["window"].op("Conv", x["window"], *weights, pads=[1] * 4, group=24),
        "pool": nets["pool"].op("MaxPool", x["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        "sum": nets["sum"].op("ReduceSum", x["sum"], nets["sum"].const([2, 3], np.int64)),
        "bias": nets["bias"].op("Add", x["bias"], nets["bias"].weight(24, 1, 1)),
        "plain": nets["plain"].op("Sqrt", x["plain"]),
    }
    return {name: net.model(ends[name]) for name, net in nets.items()}


@pytest.mark.parametrize("kind", list(ENGINES))
@pytest.mark.parametrize("layer", ["window", "pool", "sum", "bias", "plain"])
def test_every_instruction_pays_its_start_up_and_its_rows(kind: str, layer: str) -> None:
    arch = engine(kind)
    made = compile_model(layers()[layer], arch, CompileOptions(dtype="fp32"))
    expected = sum(decision.schedule.estimate.vector for decision in made.decisions)
    (vector,) = (e for e in simulate(made.program, arch).engines if e.engine == "vector")
    assert expected == pytest.approx(vector.busy, rel=0.02)


def test_a_group_of_other_layers_than_products_leaves_the_array_alone() -> None:
    net = Net()
    x = net.input(1, 24, 20, 20)
    for _ in range(2):
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    arch = engine("three dimensions")
    made = compile_model(net.model(x), arch, CompileOptions(dtype="fp32"))
    (decision,) = made.decisions
    busy = {each.engine: each.busy for each in simulate(made.program, arch).engines}
    estimate = decision.schedule.estimate
    assert (estimate.matrix, estimate.vector) == (busy["matrix"], busy["vector"])
    assert len(decision.group.layers) == 2 and busy["matrix"] == 0
