"""Models of one node for the tests of operators: the nests that it becomes against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import networks
import numpy as np
import onnx
from onnx import helper

from archgen.check.reference import run_node
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.frontend.importer import load
from compiler.lowering.lower import lower
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import Array, HostNode, NestGraph
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.verify import verify

PLAIN = CompileOptions("fp32")


@dataclass(frozen=True)
class Case:
    """One node: inputs that are shapes are computed, arrays are constants."""

    op: str
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    positive: bool = False
    dtype: str = "f4"

    def __str__(self) -> str:
        said = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        shapes = "x".join(
            "const" if isinstance(i, np.ndarray | np.generic) else str(i) for i in self.inputs
        )
        return f"{self.op}-{shapes}-{said}-{self.opset}".replace(" ", "")


def case(op: str, *inputs: Any, opset: int = 21, outputs: int = 1, positive: bool = False,
         dtype: str = "f4", **attributes: Any) -> Case:  # fmt: skip
    return Case(op, list(inputs), attributes, opset, outputs, positive, dtype)


def model_of(node: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and arrays for its inputs."""
    names, constants, feeds = [], {}, {}
    for position, value in enumerate(node.inputs):
        name = f"i{position}" if value is not None else ""
        names.append(name)
        if isinstance(value, np.ndarray | np.generic):
            constants[name] = value
        elif value is not None:
            feeds[name] = sample(value, node)
    outputs = [f"o{i}" for i in range(node.outputs)]
    proto = helper.make_node(node.op, names, outputs, **node.attributes)
    model = networks.model([proto], feeds, outputs, constants, opset=node.opset)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True), feeds


def sample(shape: tuple[int, ...], node: Case) -> Array:
    kind = np.dtype(node.dtype)
    if kind.kind in "biu":
        low, high = {"b": (0, 2), "i": (-90, 90), "u": (0, 90)}[kind.kind]
        return np.random.default_rng([8, *shape]).integers(low, high, shape).astype(kind)
    values = np.asarray(real(*shape))
    return np.asarray(np.abs(values) + 0.1 if node.positive else values, kind)


def lowered(model: onnx.ModelProto) -> NestGraph:
    """The nests of a network, of which copy engines put no rows."""
    graph = lower(networks.cleaned(load(model, "g")), "fp32")
    hosts = [step for step in graph.steps if isinstance(step, HostNode)]
    reasons = [step.reason for step in hosts if not step.otherwise]
    assert not reasons, reasons
    instead = {step.outputs: step.otherwise for step in hosts}
    steps = (instead[s.outputs] if isinstance(s, HostNode) else (s,) for s in graph.steps)
    return replace(graph, steps=tuple(chain.from_iterable(steps)))


def check(model: onnx.ModelProto, feeds: dict[str, Array], atol: float = 2e-6) -> None:
    got = run(lowered(model), feeds)
    want = reference(model, feeds)
    for values, expected in zip(got.values(), want, strict=True):
        expected = np.asarray(expected)
        assert values.shape == expected.shape and values.dtype == expected.dtype
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=atol)
        else:
            np.testing.assert_array_equal(values, expected)


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes without optimizations."""
    return [*networks.reference(model, feeds).values()]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def real(*shape: int) -> Array:
    """Normal numbers, the same ones for the same shape."""
    return np.random.default_rng([7, *shape]).standard_normal(shape).astype("f4")


def executed(
    model: onnx.ModelProto, feeds: dict[str, Array], arch: Arch, options: CompileOptions = PLAIN
) -> tuple[CompileResult, dict[str, Array]]:
    """The verified program for a machine, and its outputs."""
    made = compile_model(model, arch, options)
    verify(made.program, arch)
    return made, execute(made.program, feeds, arch, run_node)


def agree(got: dict[str, Array], want: list[Array], rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Outputs are those of a reference, in its shapes and element types."""
    for (name, values), expected in zip(got.items(), want, strict=True):
        assert values.shape == expected.shape and values.dtype == expected.dtype, name
        np.testing.assert_allclose(values, expected, rtol=rtol, atol=atol, err_msg=name)
