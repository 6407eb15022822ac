"""Kernels of a user's own: beside what the compiler emits, the cheaper one taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from role_nets import model as model_of

from archgen.api import compile_model, execute, load_arch, load_model
from archgen.extensions import activate, extension
from archgen.studies.sweep import study
from compiler.api import CompilerError
from simmodel.program.assembly import print_program

pytestmark = pytest.mark.usefixtures("own_cache")
MACHINE = "tpu-v3-like"
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


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    activate(())


def written(folder: Path, line: str = LINE, function: str = "max", before: str = "pass") -> Path:
    path = folder / "mine.py"
    path.write_text(ROWS.format(line=line, function=function, before=before))
    return path


def network(folder: Path, columns: int = 8) -> Path:
    """The largest value of each of 512 rows."""
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], name="largest", keepdims=0)
    path, axes = folder / "net.onnx", {"axes": np.array([1])}
    onnx.save(model_of([node], {"x": [512, columns]}, {"y": [512]}, axes, opset=21), path)
    return path


def program(model: Path) -> str:
    """Text of the program, which computes what it should."""
    arch, opened = load_arch(MACHINE), load_model(model)
    made = compile_model(opened, arch, effort=0)
    x = np.random.default_rng(1).standard_normal(made.inputs[0].shape).astype(np.float32)
    y = execute(made, {"x": x}, arch)["y"]
    np.testing.assert_allclose(y, x.max(1), atol=0.02)
    return print_program(made)


def test_a_kernel_is_taken_where_it_is_cheaper(tmp_path: Path) -> None:
    activate((extension(written(tmp_path)),))
    short, long = network(tmp_path), tmp_path / "long"
    long.mkdir()
    assert "vector.binary vector function=max" in program(short)
    assert "vector.reduce vector function=max" in program(network(long, 256))


def test_a_tile_that_it_declines_is_the_compilers(tmp_path: Path) -> None:
    path = written(tmp_path, before="raise Declined('not today')")
    activate((extension(path),))
    assert "vector.reduce vector function=max" in program(network(tmp_path))


def test_a_kernel_that_computes_something_else_is_named_by_the_verdict(tmp_path: Path) -> None:
    path = written(tmp_path, function="min")
    row = study(
        [MACHINE], [network(tmp_path)], effort=[0], plots=False, extensions=[path], jobs=1
    ).frame.iloc[0]
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
    path = written(tmp_path, line)
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
    path = tmp_path / "mine.py"
    path.write_text(ROWS_AT_ONCE)
    activate((extension(path),))
    assert "vector.rows vector" in program(network(tmp_path))
    lacking = tmp_path / "lacking.yaml"
    lacking.write_text(f"extends: {MACHINE}\nname: lacking\nisa: {{without: vector.rows}}\n")
    made = compile_model(load_model(network(tmp_path)), load_arch(lacking), effort=0)
    assert "vector.reduce vector" in print_program(made)
