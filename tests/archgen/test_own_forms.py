"""Forms of instructions that a user's extension adds: listed, limited, emitted, timed, verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import helper
from role_nets import model

from archgen.api import compile_model, load_model
from archgen.cli.main import cli
from archgen.extensions import ExtensionError, activate, extension
from archgen.schema import load_arch
from archgen.studies.sweep import study
from simmodel.arch.record import FORM_LIMITS
from simmodel.isa.forms import forms
from simmodel.program.assembly import parse_items, print_item, print_program

pytestmark = pytest.mark.usefixtures("own_cache")
MACHINE = "tpu-v3-like"
SHAPE = [64, 8192]
SWIGLU = """
import numpy as np
from archgen.op import expression, form, instruction

@form("swiglu", {given})
def swiglu({parameters}):
    return {result}
"""
GIVEN = 'does="gate * sigmoid(gate) * up", cycles=1'
RESULT = "gate / (1 + np.exp(-gate)) * up"
GATED = """
@expression("my.domain", "Gated")
def gated(x, g):
    return "y[i, j] = swiglu(x[i, j], g[i, j])"
"""


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    activate(())


def written(
    folder: Path, given: str = GIVEN, parameters: str = "gate, up", result: str = RESULT,
    more: str = GATED,
) -> Path:  # fmt: skip
    path = folder / "mine.py"
    text = SWIGLU.format(given=given, parameters=parameters, result=result)
    path.write_text(text + more)
    return path


def gated(folder: Path) -> Path:
    """y = Gated(x, g)."""
    node = helper.make_node("Gated", ["x", "g"], ["y"], domain="my.domain")
    path = folder / "gated.onnx"
    shapes = {"x": SHAPE, "g": SHAPE}, {"y": SHAPE}
    onnx.save(model([node], *shapes, opset=21, domain="my.domain"), path)
    return path


def spelled_out(folder: Path) -> Path:
    """y = x * Sigmoid(x) * g, in operators of ONNX."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["t"]),
        helper.make_node("Mul", ["t", "g"], ["y"], name="up"),
    ]
    path = folder / "spelled_out.onnx"
    onnx.save(model(nodes, {"x": SHAPE, "g": SHAPE}, {"y": SHAPE}, opset=21), path)
    return path


def machine(folder: Path, isa: str) -> Path:
    path = folder / "narrow.yaml"
    path.write_text(f"extends: {MACHINE}\nname: narrow\nisa: {isa}\n")
    return path


def test_a_form_of_ones_own_is_listed_with_its_cycles(tmp_path: Path) -> None:
    made = CliRunner().invoke(cli, ["isa", MACHINE, "--extension", str(written(tmp_path))])
    (line,) = (line for line in made.output.splitlines() if "vector.binary.swiglu" in line)
    assert line.split() == ["vector.binary.swiglu", "dst", "=", "swiglu(a,", "b)", "1", "rank", "2"]


def test_its_own_limits_are_narrowed_by_the_machine_and_it_can_be_removed(tmp_path: Path) -> None:
    activate((extension(written(tmp_path, f"{GIVEN}, rank=1, max_extent=512")),))
    form = forms()["vector.binary.swiglu"]
    plain = load_arch(MACHINE)
    assert (plain.reach(form.name), plain.factor(form.name, "special")) == ((1, 512), 1)
    narrow = load_arch(machine(tmp_path, "{limits: {'*.swiglu': {max_extent: 64, cost: 9}}}"))
    assert (narrow.reach(form.name), narrow.factor(form.name, "special")) == ((1, 64), 9)
    assert not load_arch(machine(tmp_path, "{without: vector.binary.swiglu}")).isa.has(form.name)


def test_it_has_a_text_that_is_read_again(tmp_path: Path) -> None:
    activate((extension(written(tmp_path)),))
    line = "vector.binary vector function=swiglu dst=local[0x0]:fp16[8] a=local[0x10]:fp16[8] " \
        "b=local[0x20]:fp16[8]"  # fmt: skip
    (item,) = parse_items(line)
    assert print_item(item) == line
    assert item.cycles(load_arch(MACHINE)) == 1  # type: ignore[union-attr]


def test_it_is_emitted_timed_and_verified_and_a_machine_without_it_computes_it(
    tmp_path: Path,
) -> None:
    without = machine(tmp_path, "{without: vector.binary.swiglu}")
    made = study(
        [MACHINE, without], [gated(tmp_path)], effort=[0], plots=False,
        extensions=[written(tmp_path)], jobs=1,
    ).frame  # fmt: skip
    assert list(made["verified"]) == [True, True]
    assert list(made["host_ops"]) == [0, 0]
    with_form, with_others = made["latency_cycles"]
    assert with_form < with_others


def test_it_is_found_where_a_network_does_what_it_does(tmp_path: Path) -> None:
    activate((extension(written(tmp_path)),))
    arch, opened = load_arch(MACHINE), load_model(spelled_out(tmp_path))
    assert "function=swiglu" in print_program(compile_model(opened, arch, effort=0))
    without = load_arch(machine(tmp_path, "{limits: {vector.binary.swiglu: {cost: 99}}}"))
    assert "function=swiglu" not in print_program(compile_model(opened, without, effort=0))


def test_a_form_that_does_something_else_is_named_by_the_verdict(tmp_path: Path) -> None:
    path = written(tmp_path, result=f"1.01 * {RESULT}")
    made = study(
        [MACHINE], [spelled_out(tmp_path)], effort=[0], plots=False, extensions=[path], jobs=1
    ).frame.iloc[0]
    assert not made["verified"]
    assert f"made by vector.binary.swiglu ({path}:5)" in made["note"]


@pytest.mark.parametrize(
    ("given", "parameters", "result", "said"),
    [
        ('does="gate * sigmoid(gtae)", cycles=0', "gate, up", "gate",
         "form 'swiglu': 0 cycles, expected a positive number; 'gate * sigmoid(gtae)' is about "
         "'gtae', which is no operand; there are gate, up"),
        ('does="gate * sigmod(gate)"', "gate, up", "gate",
         "'gate * sigmod(gate)': the engine has no other function 'sigmod' of 1 values"),
        ('does="gate *"', "gate", "gate", "'gate *' is no expression: invalid syntax"),
        ('does="swiglu(gate, up)"', "gate, up", "gate", "no other function 'swiglu' of 2 values"),
        ("cost='dear', rank=4", "x", "x",
         "no cost class 'dear'; there are simple, multiply, divide, special; rank 4, expected 1, "
         "2 or 3"),
        ("", "", "1", "0 operands, expected one to three"),
        ("", "x, y, *, alpha", "x", "parameter 'alpha': only a function of one operand has any"),
        ("", "x", "x.sum()", "its function makes [] of [2, 3], expected the same shape"),
        ("", "x", "x.exp()", "its function fails: AttributeError: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_form_is_said_in_words(
    tmp_path: Path, given: str, parameters: str, result: str, said: str
) -> None:
    path = written(tmp_path, given, parameters, result, "")
    with pytest.raises(ExtensionError) as raised:
        activate((extension(path),))
    assert said in str(raised.value)
    assert "mine.py:" in str(raised.value)
    assert not FORM_LIMITS
