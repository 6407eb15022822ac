"""What cores say to each other is all needed: any word removed or moved is noticed, or proven idle.

Programs of whole networks on 2 to 8 cores that share loads, pass rows on and meet at barriers; each
mutant is refused by the verifier, or a second opinion finds no two accesses out of order and the
program gives the same bytes in orders that starve one queue after the other.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from typing import Any

import onnx
import pytest
from crossings import mutants, racing, words_between
from doubles import Clinging
from machines import machine
from networks import Net, feeds_of

from compiler.api import CompileOptions, compile_model, prepared
from compiler.options import Stages
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.program.program import Program
from simmodel.verify import findings
from simmodel.verify.happens_before import starving_order

EACH = 5
"""Mutants of each kind that are tried of a program."""


def image(quantized: bool, width: int = 8) -> onnx.ModelProto:
    """Two convolutions, whose rows meet at the borders of cores, and a sum over all."""
    net = Net(quantized=quantized)
    x = net.input(1, 16, 16, width)
    for _ in range(2):
        x = net.op("Relu", net.op("Conv", x, net.weight(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    return net.model(net.op("GlobalAveragePool", x))


def tokens(quantized: bool) -> onnx.ModelProto:
    """Two products with the same weights for all rows."""
    net = Net(quantized=quantized)
    x = net.input(1, 32, 32)
    x = net.op("Relu", net.op("MatMul", x, net.weight(32, 64)))
    return net.model(net.op("MatMul", x, net.weight(64, 16)))


ROOM = {"size": 1 << 17}
CASES: dict[str, tuple[Any, Arch, str, CompileOptions]] = {
    "loads, tokens": (image, machine(cores=3, among="load"), "int8", CompileOptions()),
    "loads, interlock": (
        tokens, machine(cores=4, among="load", sync="interlock"), "int8", CompileOptions(),
    ),
    "clusters": (
        tokens, machine(clusters=4, cores=2, among="load", sync="interlock", shared={}), "int8",
        CompileOptions(),
    ),
    "peers, tokens": (
        image, machine(cores=4, among="peer", local=ROOM), "fp32",
        CompileOptions(stages=Stages(keep=Clinging())),
    ),
    "peers, interlock": (
        image, machine(cores=5, among="peer", local=ROOM, sync="interlock"), "fp32",
        CompileOptions(stages=Stages(keep=Clinging())),
    ),
    "nothing but barriers": (
        partial(image, width=16), machine(cores=2), "fp32", CompileOptions(),
    ),
}  # fmt: skip


@cache
def compiled(case: str) -> tuple[Program, Arch, dict[str, Any]]:
    build, arch, dtype, options = CASES[case]
    model = build(dtype == "int8")
    made = compile_model(prepared(model, "net"), arch, replace(options, dtype=dtype))
    return made.program, arch, feeds_of(model)


def verdicts(case: str) -> Counter[tuple[str, bool]]:
    """Kind of mutant and whether it is refused: how many; AssertionError for a wrong one that is
    accepted."""
    program, arch, feeds = compiled(case)
    right = execute(program, feeds, arch)
    of_kind: dict[str, list[Program]] = {}
    for kind, mutant in mutants(program):
        of_kind.setdefault(kind, []).append(mutant)
    found: Counter[tuple[str, bool]] = Counter()
    for kind, made in of_kind.items():
        for mutant in random.Random(case).sample(made, min(EACH, len(made))):
            refused = bool(findings(mutant, arch))
            found[kind, refused] += 1
            if refused:
                continue
            assert not racing(mutant, arch), (case, kind)
            for order in map(starving_order, range(3)):
                got = execute(mutant, feeds, arch, order=order)
                assert all(got[name].tobytes() == right[name].tobytes() for name in right), kind
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_word_between_cores_that_is_removed_or_moved_is_noticed_or_idle(case: str) -> None:
    found = verdicts(case)
    needed = {"unmet", "hurried"} if "nothing" in case else {"unsaid", "early", "late"}
    assert {kind for kind, refused in found if refused} >= needed, found
    claims = found["unclaimed", True] + found["unclaimed", False]
    assert bool(claims) == (CASES[case][1].front_end.sync == "interlock"), found


@pytest.mark.parametrize("case", CASES)
def test_the_second_opinion_agrees_about_what_the_compiler_made(case: str) -> None:
    program, arch, _ = compiled(case)
    assert not findings(program, arch)
    assert not racing(program, arch)
    assert bool(words_between(program)) == ("nothing" not in case)


def test_the_second_opinion_sees_a_race() -> None:
    program, arch, _ = compiled("peers, tokens")
    unsaid = [mutant for kind, mutant in mutants(program) if kind == "unsaid"]
    assert any(racing(mutant, arch) for mutant in unsaid[:3])
