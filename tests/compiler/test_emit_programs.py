"""Whole programs: the same text every time, loops that stay loops, and bytes that add up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines import NAMED
from networks import Net, check

from compiler.api import CompileOptions, compile_model
from compiler.errors import DoesNotFit
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program


def small_network(side: int = 9, batch: int = 1) -> Net:
    net = Net()
    x = net.input(batch, 8, side, side)
    a = net.op("Relu", net.op("Conv", x, net.weight(16, 8, 3, 3), pads=[1] * 4))
    b = net.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
    c = net.op("Conv", b, net.weight(16, 1, 3, 3), group=16, pads=[1] * 4)
    net.result = net.op("Softmax", net.op("Add", c, b), axis=1)  # type: ignore[attr-defined]
    return net


def text(arch: Arch) -> str:
    net = small_network()
    return print_program(compile_model(net.model(net.result), arch).program)  # type: ignore[attr-defined]


def test_another_process_gives_the_same_programs() -> None:
    here = Path(__file__).parent
    names = ["fine", "small"]
    code = (
        "from machines import NAMED; from test_emit_programs import text;"
        f"print(''.join(text(NAMED[n]) for n in {names}), end='')"
    )
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": paths}
    made = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert made.stdout == "".join(text(NAMED[name]) for name in names)


@pytest.mark.parametrize("name", NAMED)
def test_dram_moves_at_least_what_is_used(name: str) -> None:
    """Every input, every constant and every output crosses once at least."""
    net = small_network()
    seen = check(net.model(net.result), NAMED[name], "fp32")  # type: ignore[attr-defined]
    program = seen.compiled.program
    used = sum(constant.used for constant in program.constants)
    inputs = sum(port.operand.distinct for port in program.inputs)
    outputs = sum(port.operand.distinct for port in program.outputs)
    assert seen.trace.traffic["dram.read"] >= used + inputs
    assert seen.trace.traffic["dram.write"] >= outputs
    # The pooling behind it leaves out the last row and column of 9, so nobody computes these.
    assert seen.trace.macs >= 8 * 16 * 9 * 64


def test_a_group_that_cannot_fit_is_refused_with_its_sum() -> None:
    tiny = NAMED["plain"].memories.model_copy(
        update={"local": NAMED["plain"].memories.local.model_copy(update={"size": 64})}
    )
    arch = NAMED["plain"].model_copy(update={"memories": tiny})
    net = Net()
    model = net.model(net.op("Conv", net.input(1, 4, 9, 9), net.weight(4, 4, 7, 7)))
    with pytest.raises(DoesNotFit) as refusal:
        compile_model(model, arch)
    why = refusal.value
    assert why.bound == 64 < why.demand == sum(amount for _, amount in why.terms)
    assert "local memory" in str(why) and any("memories.local.size" in x for x in why.levers)


def with_tokens(count: int) -> Arch:
    arch = NAMED["small"]
    assert arch.front_end.sync == "tokens"
    return arch.model_copy(
        update={"front_end": arch.front_end.model_copy(update={"tokens": count})}
    )


def test_groups_share_tokens() -> None:
    """A network of many groups needs no more tokens than its neediest group or two."""
    net = small_network()
    apart = CompileOptions(stages=Stages(partition=Unfused()))
    model = net.model(net.result)  # type: ignore[attr-defined]
    program = compile_model(model, with_tokens(256), apart).program
    groups = {origin.group for origin in program.origins}
    used = len(program.tokens[0])
    assert len(groups) >= 4
    assert used < 6 * len(groups)
    exactly = compile_model(model, with_tokens(used), apart).program
    assert exactly.tokens == program.tokens


def test_too_few_tokens_are_refused_with_the_number_that_would_do() -> None:
    net = small_network()
    with pytest.raises(DoesNotFit) as refusal:
        compile_model(net.model(net.result), with_tokens(1))  # type: ignore[attr-defined]
    why = refusal.value
    assert why.bound == 1
    assert why.demand == sum(amount for _, amount in why.terms) > 1
    assert f"front_end.tokens of at least {why.demand}" in str(why)
