"""Options of passes: each has a range, refuses what is outside it, and leaves programs right."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from machines import machine
from networks import Net, check
from pydantic import TypeAdapter

from archgen.cli.main import cli
from archgen.scheduling import OptionError, PassOptionField, options, with_pass_options, wrong
from archgen.studies.design import points
from archgen.studies.plan import load_study
from archgen.studies.sweep import Running, run_study
from compiler.context import CompileOptions
from compiler.frontend.canonicalize.fold_constants import FoldConstants
from compiler.frontend.canonicalize.fold_linear import FoldPad
from compiler.options import Stages

OPTIONS = options(Stages())
HUGE = 10**30


def range_of(option: PassOptionField) -> tuple[float, float] | None:
    """Least and largest number that an option takes; None for one that is no number."""
    schema = TypeAdapter(option.wanted).json_schema()
    found = next((s for s in (schema, *schema.get("anyOf", ())) if "minimum" in s), None)
    return found and (found["minimum"], found.get("maximum", math.inf))


NUMBERS = {name: found for name, option in OPTIONS.items() if (found := range_of(option))}
ORDERED = list(dict.fromkeys(name.split(".")[0] for name in NUMBERS))
SCHEDULED = ORDERED[ORDERED.index("partition") :]
STAGES = [ORDERED[: -len(SCHEDULED)], *([name] for name in SCHEDULED)]
"""Those that make nests of a graph are turned together: few of them find anything in `network`."""
REWRITES = [name for name in OPTIONS if name.endswith((".enabled", ".absorb", ".join", ".tails"))]


def test_every_number_has_a_range_that_its_default_is_in() -> None:
    for name, option in OPTIONS.items():
        if isinstance(option.value, int | float) and not isinstance(option.value, bool):
            assert name in NUMBERS and option.fits(option.value), name


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_out_of_range_is_refused_in_words(name: str) -> None:
    low, high = NUMBERS[name]
    outside: list[Any] = [low - 1, high + 1, -HUGE, math.nan, math.inf, "many", True]
    for value in outside:
        (said,) = wrong({name: value}, Stages())
        assert said == f"pass option {name!r}: expected {OPTIONS[name].takes}, got {value!r}"


@cache
def network(quantized: bool) -> onnx.ModelProto:
    """Something for every pass: padding, a scale, a bias, activations, a concatenation, a mean."""
    net = Net(quantized)
    around = net.const([0, 0, 1, 1, 0, 0, 1, 1], "i8")
    x = net.op("Pad", net.input(1, 4, 10, 10), around)
    x = net.op("Relu", net.op("Conv", x, net.weight(8, 4, 3, 3)))
    left = net.op("Mul", net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4), _each(net, 0.5))
    right = net.op("Add", net.op("Conv", x, net.weight(8, 8, 1, 1)), _each(net, 0.25))
    right = net.op("Clip", right, net.const(0.0, "f4"), net.const(2.0, "f4"))
    both = net.op("Concat", left, right, axis=1)
    gated = net.op("Mul", both, net.op("Sigmoid", both))
    return net.model(net.op("ReduceMean", gated, net.const([2, 3], "i8"), keepdims=0))


def _each(net: Net, value: float) -> str:
    return net.const([[[[value]]]], "f4")


MACHINE = machine(
    cores=2, tokens=24, shared={"size": 4096}, local={"size": 8192, "mapping": "blocked"}
)


def right(settings: dict[str, Any], quantized: bool = False) -> None:
    """The network compiles with these options, at the effort that asks for most, and is right."""
    assert not wrong(settings, Stages())
    made = CompileOptions(stages=with_pass_options(Stages(), tuple(settings.items())))
    check(network(quantized), MACHINE, "int8" if quantized else "fp32", made)


@pytest.mark.parametrize("name", REWRITES)
def test_what_may_be_left_out_leaves_programs_right(name: str) -> None:
    right({name: False})
    right({name: False}, quantized=True)


@pytest.mark.parametrize("stages", STAGES, ids=lambda stages: stages[0])
@pytest.mark.parametrize("end", [0, 1], ids=["low", "high"])
def test_programs_are_right_at_both_ends_of_ranges(stages: list[str], end: int) -> None:
    mine = {name: found for name, found in NUMBERS.items() if name.split(".")[0] in stages}
    values = {name: min(found[end], HUGE) for name, found in mine.items()}
    right({n: v if isinstance(OPTIONS[n].value, float) else int(v) for n, v in values.items()})


def test_all_turns_of_a_pass_have_its_options() -> None:
    stages = with_pass_options(
        Stages(), (("fold_constants.limit", 1 << 20), ("fold_pad.enabled", False))
    )
    turns = [step for step in stages.graph if isinstance(step, FoldConstants)]
    assert [step.limit for step in turns] == [1 << 20] * 3
    assert turns[0].keep == ("DequantizeLinear",)
    assert not any(step.enabled for step in stages.graph if isinstance(step, FoldPad))
    assert stages.alloc == Stages().alloc


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["keep.share=2"], "pass option 'keep.share': expected a number from 0 to 1, got 2"),
        (["keep.shar=1"], "no such option; did you mean 'keep.share'?"),
        (["keep.share=0.5,1"], "several schedules: compile makes one program"),
        (["fold_pad.enabled=no"], "expected true or false, got 'no'"),
        (["keep.share="], "pass option 'keep.share': expected a number from 0 to 1, got ''"),
        (["fold_pad.enabled"], "expected true or false, got ''"),
    ],
)
def test_options_of_the_command_line_are_checked(given: list[str], said: str) -> None:
    words = [word for each in given for word in ("--pass", each)]
    found = CliRunner().invoke(cli, ["compile", "mcu-npu", "-m", "squeezenet", *words])
    assert isinstance(found.exception, OptionError)
    assert said in str(found.exception)


def test_options_without_values_are_told_among_all_mistakes() -> None:
    words = ["-m", "resnet19", "--fusion", "lin", "--pass", "x=", "--pass", "keep.share=2"]
    found = CliRunner().invoke(cli, ["compile", "mcu", *words])
    assert isinstance(found.exception, OptionError)
    starts = [line.split(":")[0] for line in found.exception.mistakes]
    options = ["pass option 'keep.share'", "pass option 'x'"]
    assert starts == [
        "mcu",
        "fusion 'lin'",
        *options,
        "unknown network 'resnet19' (did you mean 'resnet18'?); known",
    ]


def test_the_command_line_gives_every_combination(tmp_path: Path) -> None:
    onnx.save(network(quantized=False), tmp_path / "net.onnx")
    words = ["--pass", "tile.cores=null,1", "--pass", "fold_pad.enabled=true,false"]
    asked = ["study", "mcu-npu", "-m", str(tmp_path / "net.onnx"), *words, "--dry-run"]
    found = CliRunner().invoke(cli, asked)
    assert "4 points, 0 of them finished" in found.output
    again = CliRunner().invoke(cli, [*asked, "--pass", "tile.cores=2"])
    assert "--pass tile.cores is given twice" in str(again.exception)


SWEEP = """
archs: ascend-310-like
dtypes: fp16
models: net.onnx
compiler:
  effort: 0
  passes:
    fold_affine.enabled: [true, false]
    alloc.conflicts: [aware, blind]
"""


def test_a_study_sweeps_rewrites_of_the_graph_and_placement(tmp_path: Path) -> None:
    onnx.save(network(quantized=False), tmp_path / "net.onnx")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    design = load_study(tmp_path / "sweep.yaml")
    found = run_study(design, Running(executor="here")).frame
    assert list(found["status"]) == ["ok"] * 4
    assert found["verified"].all()
    assert len({point.key for point in points(design)}) == 4
    with_, without = (
        set(found["latency_cycles"][found["pass.fold_affine.enabled"].astype(str) == said])
        for said in ("True", "False")
    )
    assert with_.isdisjoint(without)  # though all are of one process, which keeps loaded models
