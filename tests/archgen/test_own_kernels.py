"""Instructions and kernels of a user's own: forms are listed, limited, emitted, timed and verified;
of a kernel and what the compiler emits the cheaper one is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from host_only import invoke
from networks import model
from onnx import helper
from role_nets import saved

from archgen.api import compile_model, execute, load_arch, load_model
from archgen.extensions import ExtensionError, activate, extension
from archgen.outcomes.frame import Frame
from archgen.studies.sweep import study
from compiler.api import CompilerError
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


def machine(folder: Path, isa: str) -> Path:
    path = folder / "narrow.yaml"
    path.write_text(f"extends: {MACHINE}\nname: narrow\nisa: {isa}\n")
    return path


def mine(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def studied(net: Path, path: Path, *machines: str | Path) -> Frame:
    asked = machines or (MACHINE,)
    return study(asked, [net], effort=[0], plots=False, extensions=[path], jobs=1).frame


def written(
    folder: Path, given: str = GIVEN, parameters: str = "gate, up", result: str = RESULT,
    more: str = GATED,
) -> Path:  # fmt: skip
    text = SWIGLU.format(given=given, parameters=parameters, result=result)
    return mine(folder, text + more)


def gated(folder: Path) -> Path:
    """y = Gated(x, g)."""
    node = helper.make_node("Gated", ["x", "g"], ["y"], domain="my.domain")
    shapes = {"x": SHAPE, "g": SHAPE}, {"y": SHAPE}
    return saved(model([node], *shapes, opset=21, domain="my.domain"), folder)


def spelled_out(folder: Path) -> Path:
    """y = x * Sigmoid(x) * g, in operators of ONNX."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["t"]),
        helper.make_node("Mul", ["t", "g"], ["y"], name="up"),
    ]
    return saved(model(nodes, {"x": SHAPE, "g": SHAPE}, {"y": SHAPE}, opset=21), folder)


def test_a_form_of_ones_own_is_listed_with_its_cycles(tmp_path: Path) -> None:
    made = invoke("isa", MACHINE, "--extension", str(written(tmp_path)))
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
    made = studied(gated(tmp_path), written(tmp_path), MACHINE, without)
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
    made = studied(spelled_out(tmp_path), path).iloc[0]
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


# Kernels.

ROWS = '''
from archgen.op import Declined, kernel

@kernel("vector.reduce.max")
def rows_at_once(dst, a):
    {before}
    return f"""
      vector.binary vector function={function} dst={{dst}} a={{a[:, 0]}} b={{a[:, 1]}}
      loop i {{a.shape[1] - 2}}
        {line}
    """
'''
LINE = 'vector.binary vector function=max dst={dst} a={dst} b={a[:, "i + 2"]}'


def kernel(folder: Path, line: str = LINE, function: str = "max", before: str = "pass") -> Path:
    return mine(folder, ROWS.format(line=line, function=function, before=before))


def network(folder: Path, columns: int = 8) -> Path:
    """The largest value of each of 512 rows."""
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], name="largest", keepdims=0)
    shapes = {"x": [512, columns]}, {"y": [512]}
    return saved(model([node], *shapes, {"axes": np.array([1])}, opset=21), folder)


def program(net: Path) -> str:
    """Text of the program, which computes what it should."""
    arch, opened = load_arch(MACHINE), load_model(net)
    made = compile_model(opened, arch, effort=0)
    x = np.random.default_rng(1).standard_normal(made.inputs[0].shape).astype(np.float32)
    y = execute(made, {"x": x}, arch)["y"]
    np.testing.assert_allclose(y, x.max(1), atol=0.02)
    return print_program(made)


def test_a_kernel_is_taken_where_it_is_cheaper(tmp_path: Path) -> None:
    activate((extension(kernel(tmp_path)),))
    assert "vector.binary vector function=max" in program(network(tmp_path))
    assert "vector.reduce vector function=max" in program(network(tmp_path, 256))


def test_a_tile_that_it_declines_is_the_compilers(tmp_path: Path) -> None:
    path = kernel(tmp_path, before="raise Declined('not today')")
    activate((extension(path),))
    assert "vector.reduce vector function=max" in program(network(tmp_path))


def test_a_kernel_that_computes_something_else_is_named_by_the_verdict(tmp_path: Path) -> None:
    path = kernel(tmp_path, function="min")
    row = studied(network(tmp_path), path).iloc[0]
    assert not row["verified"]
    assert f"made by kernel rows_at_once ({path}:4)" in row["note"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vector.binary vector function=max dst={a[:, 0]} a={dst} b={dst}",
         "writes outside of the result: local["),
        ('vector.binary vector function=max dst={dst} a={dst} b={a[:, "i + 3"]}',
         "reads outside of its operands: local["),
        ("vector.binary vector function=maxx dst={dst} a={dst} b={dst}",
         "is not of the vector engine"),
        ("vector.binary vector function=max dst={dst} a={dst} b={a}", "b has shape (256, 8)"),
        ("vector.bin vector dst={dst}", "line 3:3: expected loop, copy,"),
        ("vector.binary vector function=max dst={dst} a={dst}", "expected b="),
        ("vector.binary vector function=max dst={dst} a={dst} b={dst} signal done 1",
         "tokens are placed by the compiler"),
        ("copy load dst={dst} src={dst}", "is not of the vector engine"),
        ("{a[:, 8]}", "position 8 of 8 along dimension 1"),
        ('{a[:, "2i"]}', "'2i' is no position; write 3, i or 4*i + 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text_is_said_with_its_kernel(
    tmp_path: Path, line: str, said: str
) -> None:
    path = kernel(tmp_path, line)
    activate((extension(path),))
    with pytest.raises(CompilerError) as raised:
        program(network(tmp_path))
    assert said in str(raised.value)
    assert f"kernel rows_at_once ({path}:4): " in str(raised.value)


ROWS_AT_ONCE = """
from dataclasses import dataclass
from typing import ClassVar
from archgen.op import instruction, kernel
from simmodel.isa import VectorFamily
from simmodel.isa.region import Operand

@instruction
@dataclass(frozen=True, kw_only=True)
class Rows(VectorFamily):
    MNEMONIC: ClassVar[str] = "vector.rows"
    engine: str = "vector"
    dst: Operand
    a: Operand

    def cost(self):
        return "simple"

    def walked(self):
        return self.dst.shape

    def reads(self):
        return (self.a,)

    def contract(self):
        yield from ()

    def execute(self, view):
        view(self.dst)[...] = view(self.a).max(-1)

@kernel("vector.reduce.max")
def rows(dst, a):
    return f"vector.rows vector dst={dst} a={a}"
"""


def test_an_instruction_of_ones_own_is_used_by_a_kernel_where_the_machine_has_it(
    tmp_path: Path,
) -> None:
    activate((extension(mine(tmp_path, ROWS_AT_ONCE)),))
    assert "vector.rows vector" in program(network(tmp_path))
    lacking = load_arch(machine(tmp_path, "{without: vector.rows}"))
    made = compile_model(load_model(network(tmp_path)), lacking, effort=0)
    assert "vector.reduce vector" in print_program(made)
