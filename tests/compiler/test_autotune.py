"""Schedules of groups that a judge finds and the estimates do not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from blocks import conv
from machines import changed, machine
from networks import Net

import compiler.search.best_program as best_module
from archgen.schema import load_arch
from compiler import pipeline
from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.context import Context, Network, ScheduledNetwork
from compiler.memory.on_chip import PlacedGroup
from compiler.options import ESTIMATED, JudgeGroups, Stages, alternatives, stages_for
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule_ir.group import Group
from compiler.search.best_program import Best, Wanted, best_program
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth
from simmodel.execute import execute
from simmodel.machine.run import traced
from simmodel.program.program import Program
from simmodel.trace import Trace
from simmodel.verify import verify

JUDGED = Stages(judge=JudgeGroups(candidates=6, worth=0.0))


def product() -> ir.Model:
    net = Net(quantized=True)
    x = net.op("MatMul", net.input(1, 64, 256), net.weight(256, 256))
    return prepared(net.model(net.op("MatMul", x, net.weight(256, 128))), "product")


def best(model: ir.Model, arch: Arch, stages: Stages = JUDGED) -> Best:
    return best_program(Wanted(model, arch, CompileOptions("int8", stages=stages)), traced)


def small() -> Arch:
    """Little memory, far from DRAM: what is streamed in two slots comes in many small tiles."""
    return machine(types=("int8", "fp32"), local={"size": 16384, "banks": 4}, latency=2000)


def two_banks() -> Arch:
    """Little memory in two contiguous banks: what is moved between them comes late."""
    return changed(load_arch("k230-like"), "memories.local", size=81920, banks=2)


def test_a_program_whose_buffers_stay_where_they_are_stands_against_those_that_move() -> None:
    """At the lowest effort too: no group alone shows what loads of the next one lose."""
    net = Net(quantized=True)
    x = net.input(1, 16, 12, 12)
    for channels in (48, 48, 48):
        x = net.op("Relu", conv(net, x, channels, (3, 3)))
    model, arch, stages = prepared(net.model(x), "net"), two_banks(), stages_for(0)
    cycles = {}
    for conflicts in ("aware", "blind"):
        placed = replace(stages, alloc=replace(stages.alloc, conflicts=conflicts))
        made = compile_model(model, arch, CompileOptions("int8", stages=placed))
        cycles[conflicts] = traced(made.program, arch).cycles
    assert cycles["blind"] < 0.96 * cycles["aware"]
    found = best(model, arch, stages)
    assert found.cycles == cycles["blind"]
    assert [each.cycles for each in found.tried] == [cycles["aware"], cycles["blind"]]


def with_and_without_plan(
    net: Net, end: str, arch: Arch, stages: Stages
) -> tuple[CompileResult, CompileResult]:
    """What is compiled of a network, and the same with constants placed group by group."""
    model, options = prepared(net.model(end), "net"), CompileOptions("int8", stages=stages)
    made = compile_model(model, arch, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "with_early_loads", lambda steps, *_: steps)
        return made, compile_model(model, arch, options)


def test_constants_are_loaded_early_by_one_plan_for_all_groups() -> None:
    net = Net(quantized=True)
    x = net.input(1, 16, 8, 8)
    for channels in (64, 128, 128, 64):
        x = net.op("Relu", conv(net, x, channels, (3, 3)))
    arch = machine(types=("int8", "fp32"), local={"size": 24576, "banks": 4}, latency=100)
    made, apart = with_and_without_plan(net, x, arch, JUDGED)
    feeds = {port.name: np.ones(port.shape, "f4") for port in apart.program.inputs}
    expected, got = (execute(each.program, feeds, arch) for each in (apart, made))
    verify(made.program, arch)
    assert all((got[name] == expected[name]).all() for name in expected)
    assert traced(made.program, arch).cycles < traced(apart.program, arch).cycles


@pytest.mark.parametrize(
    ("rows", "wide", "size", "most"), [(16, 128, 24576, 0.92), (1, 384, 32768, 0.97)],
    ids=["whole", "streamed"],
)  # fmt: skip
def test_the_plan_of_loads_repeats_over_equal_layers(
    rows: int, wide: int, size: int, most: float
) -> None:
    """Ten pairs of products: all that are neither first nor last repeat two steps."""
    net = Net(quantized=True)
    x = net.input(1, rows, 128)
    for _ in range(10):
        x = net.op("MatMul", net.op("MatMul", x, net.weight(128, wide)), net.weight(wide, 128))
    arch = machine(types=("int8", "fp32"), local={"size": size, "banks": 4}, latency=100)
    made, apart = with_and_without_plan(net, x, arch, Stages(partition=Unfused()))
    assert traced(made.program, arch).cycles < most * traced(apart.program, arch).cycles
    assert made.recipe is not None
    assert [stage.alike for stage in made.recipe.stages] == [0, 1, *[2, 3] * 9, 20]
    verify(made.program, arch)


def test_products_of_the_last_loads_begin_with_the_first_tile() -> None:
    """Loaded as a whole they wait for the last byte; in four tiles that all have a place, as
    nothing is loaded behind them, for the first."""
    net = Net(quantized=True)
    x = net.input(1, 16, 8, 8)
    for _ in range(2):
        x = net.op("Relu", conv(net, x, 64, (3, 3)))
    arch = machine(types=("int8", "fp32"), local={"size": 65536, "banks": 4}, latency=100)
    arch = changed(arch, "memories.dram", bandwidth=Bandwidth.parse("2 B/cycle"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_module, "early_versions", lambda made: iter(()))
        before = best(prepared(net.model(x), "net"), arch)
    whole, tiled = (each.result for each in best_module.early_versions(before))
    plans = [[s.plan for s in each.steps if isinstance(s, PlacedGroup)] for each in (whole, tiled)]
    slots = [max(b.slots for plan in own for b in plan.buffers.values()) for own in plans]
    assert slots == [2, 4]
    verify(tiled.program, arch)
    assert traced(tiled.program, arch).cycles < traced(whole.program, arch).cycles


def test_turns_of_loads_apart_let_the_next_layer_load_early() -> None:
    """A layer that works longer than it loads, then one that loads for longer, in turns: the loop
    of the first holds both slots until it is over, its turns one each."""
    net = Net(quantized=True)
    x = net.input(1, 64, 14, 14)
    for channels, stride in ((64, 1), (128, 1), (256, 4), (256, 1)):
        x = net.op("Relu", conv(net, x, channels, (3, 3), stride=(stride, stride)))
    arch = machine(types=("int8", "fp32"), local={"size": 98304, "banks": 4}, latency=100)
    arch = changed(arch, "memories.dram", bandwidth=Bandwidth.parse("6 B/cycle"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_module, "apart_version", lambda made: None)
        before = best(prepared(net.model(x), "net"), arch)
    after = best_module.apart_version(before)
    assert after is not None
    programs = [each.result.program for each in (before, after)]
    verify(programs[1], arch)
    feeds = {port.name: np.ones(port.shape, "f4") for port in programs[0].inputs}
    expected, got = (execute(each, feeds, arch) for each in programs)
    assert all((got[name] == expected[name]).all() for name in expected)
    assert traced(programs[1], arch).cycles < traced(programs[0], arch).cycles


def unjudged(model: ir.Model, arch: Arch) -> int:
    """Cycles of what the estimates choose."""
    found = compile_model(model, arch, CompileOptions("int8"))
    return traced(found.program, arch).cycles


def test_a_way_that_ends_in_a_known_schedule_is_not_emitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emitted, emit, stages = list[object](), pipeline.emit_program, stages_for(0)

    def noted(*given: Any) -> Any:
        emitted.append(given)
        return emit(*given)

    monkeypatch.setattr(pipeline, "emit_program", noted)
    wanted = Wanted(product(), small(), CompileOptions("int8", stages=stages), (stages, stages))
    best_program(wanted, traced)
    assert len(emitted) == 1


def test_what_comes_to_the_same_instructions_is_ordered_and_run_once() -> None:
    arch, runs = small(), list[object]()
    made = compile_model(product(), arch, CompileOptions("int8"))
    again = pipeline.replace_steps(made, made.steps)
    assert again.program.cores is made.program.cores

    def noted(program: Program, arch: Arch) -> Trace:
        runs.append(arch)
        return traced(program, arch)

    judge = best_module._once(noted)
    assert judge(made.program, arch) is judge(again.program, arch)
    other = replace(made.program, cores=tuple(stream[:-1] for stream in made.program.cores))
    for program, on, count in ((other, arch, 2), (made.program, arch.model_copy(), 3)):
        judge(program, on)
        assert len(runs) == count
    # Where the host moves nothing a run does not know its inputs, and it outlives its program.
    alone = replace(made.program, inputs=(), outputs=())
    judge(alone, arch)
    outputs = made.program.outputs
    del made, again, program
    judge(replace(alone), arch)
    assert len(runs) == 3
    dram = arch.memories.dram.model_copy(update={"on_chip": True})
    near = changed(arch, "memories", dram=dram)
    assert judge(alone, near) is not judge(replace(alone, outputs=outputs), near)


def test_a_group_that_is_its_network_is_not_run_again() -> None:
    net, ran = Net(quantized=True), list[object]()
    x = net.op("MatMul", net.input(1, 512, 256), net.weight(256, 64))

    def noted(program: Program, arch: Arch) -> Trace:
        ran.append(program.cores)
        return traced(program, arch)

    options = CompileOptions("int8", stages=JUDGED)
    found = best_program(Wanted(prepared(net.model(x), "one"), machine(cores=2), options), noted)
    assert found.judged
    assert all(one != other for one, other in combinations(ran, 2))


def test_ways_share_layers_where_all_before_them_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lowered, lower = list[object](), pipeline.lower_for_target

    def noted(*given: Any) -> Any:
        lowered.append(given)
        return lower(*given)

    model, arch, stages = product(), small(), stages_for(0)
    first = compile_model(model, arch, CompileOptions("int8", stages=stages))
    monkeypatch.setattr(pipeline, "lower_for_target", noted)
    rows = replace(stages.kernel_rows, enabled=False)
    behind, before = replace(stages, partition=Unfused()), replace(stages, kernel_rows=rows)
    for way, own in ((behind, 0), (before, 1)):
        options = CompileOptions("int8", stages=way)
        made = compile_model(model, arch, options, like=first)
        assert len(lowered) == own
        assert made.program.cores == compile_model(model, arch, options).program.cores
        lowered.clear()


def test_one_slot_wins_where_memory_is_small_and_far() -> None:
    model, arch = product(), small()
    found = best(model, arch)
    assert found.cycles < 0.8 * unjudged(model, arch)
    assert found.judged
    buffers = [b for d in found.result.decisions for b in d.plan.buffers.values()]
    assert {buffer.slots for buffer in buffers} == {1}
    tried = [trial for trials in found.result.trials.values() for trial in trials]
    assert {ESTIMATED, "1 slot"} <= {trial.what for trial in tried}


@pytest.mark.parametrize("cores", [2, 4])
def test_cores_leave_to_one_what_they_do_no_quicker(cores: int) -> None:
    """Halos of small maps are half of the work of two cores, and more of that of four."""
    net = Net(quantized=True)
    x, kernel = net.input(1, 3, 37, 29), net.weight(13, 3, 3, 3)
    x = net.op("Relu", net.op("Conv", x, kernel, pads=[1, 0, 2, 1], strides=[2, 1]))
    y = net.op("Conv", x, net.weight(13, 13, 3, 3), pads=[2] * 4, dilations=[2, 2])
    y = net.op("LeakyRelu", y)
    z = net.op("Add", net.op("Conv", y, net.weight(13, 1, 3, 3), pads=[1] * 4, group=13), y)
    z = net.op("MaxPool", net.op("Concat", z, x, axis=1), kernel_shape=[3, 3], strides=[2, 2])
    model = net.model(net.op("GlobalAveragePool", net.op("Mul", z, net.op("Sigmoid", z))))
    arch = machine(
        types=("int8", "fp32"), cores=cores, local={"size": 1 << 17, "banks": 8}, latency=100
    )
    arch, stages = changed(arch, "vector", lanes=32), stages_for(1)
    options = CompileOptions("int8", stages=stages)
    wanted = Wanted(prepared(model, "net"), arch, options, alternatives(1, stages))
    found = best_program(wanted, traced)
    one = {each for each in found.tried if f"on 1 of {cores} cores" in each.how}
    assert found.cycles == min(e.cycles for e in one)
    assert found.cycles < min(e.cycles for e in found.tried if e not in one)
    alone = best_program(replace(wanted, arch=arch.model_copy(update={"cores": 1})), traced)
    assert [core for core in found.result.program.cores if core] == [*alone.result.program.cores]


def test_programs_for_fewer_cores_are_tuned_if_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close to what is as quick as all cores untuned; none is below nothing."""
    tuned = []
    way = best_module._tuned

    def spied(made: Best, *rest: Any) -> Best:
        tuned.append(made.options.stages.tile.cores)
        return way(made, *rest)

    monkeypatch.setattr(best_module, "_tuned", spied)
    monkeypatch.setattr(best_module, "_fewer_cores", lambda *_: [1])
    for close in (-1.0, best_module.CLOSE):
        monkeypatch.setattr(best_module, "CLOSE", close)
        best(product(), machine(types=("int8", "fp32"), cores=2))
    assert tuned == [None, None, 1]


def test_programs_for_fewer_cores_are_emitted_where_they_may_keep_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The groups of the program for four cores take 3.7 times as long on one, which leaves two
    cores too little work and four enough. Where they say nothing, the program's own do."""
    net = Net(quantized=True)
    x = conv(net, conv(net, net.input(1, 32, 32, 32), 64, (3, 3)), 64, (3, 3))
    arch = machine(types=("int8", "fp32"), cores=4, local={"size": 1 << 18, "banks": 8})
    arch = changed(arch, "memories.dram", bandwidth=Bandwidth.parse("64 B/cycle"))
    emitted, emit = list[int | None](), pipeline.emit_program
    estimated, price = list[int](), best_module._slower_on

    def noted(schedule: ScheduledNetwork, ctx: Context, inferences: int = 1) -> Any:
        emitted.append(ctx.stages.tile.cores)
        return emit(schedule, ctx, inferences)

    def asked(told: bool, count: int, made: Best) -> float:
        estimated.append(count)
        return price(count, made) if told else 1.0

    monkeypatch.setattr(pipeline, "emit_program", noted)
    for counts, most, told, asks, emits in (
        ([1, 2], None, True, [1], set()), ([1, 2], None, False, [1], set()),
        ([1, 4], None, True, [1, 4], {4}), ([1, 2], 9.0, True, [1, 2], {1, 2}),
    ):  # fmt: skip
        emitted.clear()
        estimated.clear()
        if most is not None:
            monkeypatch.setattr(best_module, "CLOSE", most)
            monkeypatch.setattr(best_module, "FEWER", most)
        monkeypatch.setattr(best_module, "_fewer_cores", lambda *_, counts=counts: counts)
        monkeypatch.setattr(best_module, "_slower_on", partial(asked, told))
        best(prepared(net.model(x), "net"), arch, replace(JUDGED, judge=JudgeGroups(candidates=1)))
        assert estimated == asks
        assert {cores for cores in emitted if cores} == emits


def test_what_lies_on_chip_of_equal_groups_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers alone as well are weighed behind groups that the first program has settled."""
    net = Net(quantized=True)
    x = conv(net, conv(net, net.input(1, 8, 8, 8), 8, (3, 3)), 8, (3, 3))
    settled, keep = list[Network[Group]](), pipeline.place_activations

    def noted(groups: Network[Group], ctx: Context) -> Network[Group]:
        settled.append(groups)
        return keep(groups, ctx)

    monkeypatch.setattr(pipeline, "place_activations", noted)
    arch, stages = machine(types=("int8", "fp32"), cores=2), stages_for(1)
    options = CompileOptions("int8", stages=stages)
    model = prepared(net.model(x), "net")
    first = compile_model(model, arch, options)
    found = len(settled)
    mixed = replace(stages, partition=replace(stages.partition, alone=True))
    compile_model(model, arch, replace(options, stages=mixed), like=first)
    assert all(a.parts != b.parts for a, b in combinations(settled, 2))
    assert 0 < found < len(settled)


def test_effort_0_asks_no_judge_and_more_effort_asks_more() -> None:
    asked = [stages_for(effort).judge.candidates for effort in range(4)]
    assert asked[0] == 0
    assert asked == sorted(set(asked))


def test_a_lent_schedule_is_the_lenders_own() -> None:
    model, lender = product(), small()
    taller = lender.model_copy(update={"name": "taller"})
    own = best(model, lender)
    lent = best_program(
        Wanted(model, taller, CompileOptions("int8", stages=JUDGED), made_for=lender), traced
    )
    assert lent.cycles == own.cycles
    assert lent.arch == lender


def test_least_memory_may_take_as_much_longer_as_patience_allows() -> None:
    model, arch = product(), machine(types=("int8", "fp32"), local={"size": 1 << 16})
    sizes = []
    for patience in (1.0, 2.0, 100.0):
        stages = Stages(judge=JudgeGroups(patience=patience))
        options = CompileOptions("int8", stages=stages)
        found = best_program(Wanted(model, arch, options, objective="memory"), traced)
        allowed = patience * found.tried[0].cycles
        sizes.append(found.arch.memories.local.size)
        assert sizes[-1] == min(tried.local for tried in found.tried if tried.cycles <= allowed)
    assert sizes[0] > sizes[1] > sizes[2]
