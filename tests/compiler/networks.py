"""Small networks for the compiler's tests: a builder of ONNX graphs, and random networks.

`Net` appends operators and hands back names, so a test reads like the network. With `quantized`
every result passes through QuantizeLinear and DequantizeLinear. `check` compiles, proves, executes
and simulates, and compares all three meanings.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

from archgen.check.reference import run_node
from compiler.context import CompileOptions, CompileResult, Context
from compiler.decisions.text.extract import extract_tree, remarks_of
from compiler.decisions.text.text import parse_tree, print_tree
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.options import Stages
from compiler.passes import run_passes
from compiler.pipeline import compile_model, nests, prepared
from compiler.target.start_sums import FACTORS, LOWEST
from compiler.tensor_ir.interpreter import run
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import Instruction, Item, Loop, MatrixInstruction
from simmodel.isa.base import instructions
from simmodel.machine.run import simulate
from simmodel.metrics import measure
from simmodel.program.assembly import print_program
from simmodel.trace import Trace
from simmodel.verify import verify

Array = NDArray[Any]
STEP = 0.0625
"""Quantization step of every quantized value."""


def cleaned(model: ir.Model) -> ir.Model:
    """A loaded model after all graph passes."""
    return run_passes(Stages().graph, model).ir


def model_of(text: str, opset: int = 18) -> onnx.ModelProto:
    """A model in ONNX's text syntax, without its header."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


Shape = Sequence[int | str | None] | None


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Shape | Array],
    outputs: Mapping[str, Shape] | Sequence[str], constants: Mapping[str, ArrayLike] | None = None,
    *, opset: int = 17, domain: str = "", kind: int = TensorProto.FLOAT, name: str = "g",
) -> onnx.ModelProto:  # fmt: skip
    """The network of `nodes` between ports of these shapes, of one element type where no array says
    another; outputs of which there are names alone have the types that follow."""

    def port(name: str, said: Shape | Array) -> onnx.ValueInfoProto:
        given = isinstance(said, np.ndarray | np.generic)
        own = helper.np_dtype_to_tensor_dtype(said.dtype) if given else kind
        return helper.make_tensor_value_info(name, own, said.shape if given else said)

    results = (
        [port(*each) for each in outputs.items()]
        if isinstance(outputs, Mapping)
        else [onnx.ValueInfoProto(name=name) for name in outputs]
    )
    data = [numpy_helper.from_array(np.asarray(v), key) for key, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, name, [port(*each) for each in inputs.items()], results, data)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 21 else 10)


class Net:
    """An ONNX graph that grows by one operator per call."""

    def __init__(self, quantized: bool = False, seed: int = 0) -> None:
        self.quantized = quantized
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[str] = []
        self.count = 0

    def _name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def input(self, *shape: int) -> str:
        """A network input."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape
        return self._coded(name)

    def const(self, values: Any, dtype: Any = None) -> str:
        """A constant, as it is."""
        name = self._name()
        array = np.asarray(values, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        self.shapes[name] = array.shape
        return name

    def vector(self, size: int) -> str:
        """Random values, as they are."""
        return self.const(self.rng.standard_normal(size).astype("f4"))

    def weight(self, *shape: int) -> str:
        """Random values that keep sums near 1; behind DequantizeLinear in quantized networks."""
        fan = max(1, int(np.prod(shape)) // max(shape[:1] or (1,)))
        raw = self.rng.standard_normal(shape) / np.sqrt(fan)
        if not self.quantized:
            return self.const(raw.astype("f4"))
        scale = float(np.abs(raw).max(initial=1e-3)) / 127
        codes = self.const(np.rint(raw / scale).astype(np.int8))
        return self._raw("DequantizeLinear", [codes, self.const(scale, "f4")], shape)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One operator with one result; the shape is inferred."""
        name = self._raw(kind, list(inputs), None, **attributes)
        return self._coded(name)

    def _raw(
        self, kind: str, inputs: list[str], shape: tuple[int, ...] | None, **attributes: Any
    ) -> str:
        name = self._name()
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        self.shapes[name] = shape if shape is not None else self._inferred(name)
        return name

    def _coded(self, name: str) -> str:
        """`name` through quantization and back."""
        if not self.quantized:
            return name
        shape = self.shapes[name]
        code = [self.const(STEP, "f4"), self.const(3, "i1")]
        q = self._raw("QuantizeLinear", [name, *code], shape)
        return self._raw("DequantizeLinear", [q, *code], shape)

    def _inferred(self, name: str) -> tuple[int, ...]:
        found = onnx.shape_inference.infer_shapes(
            self.model(name), strict_mode=True, data_prop=True
        )
        dims = found.graph.output[0].type.tensor_type.shape.dim
        return tuple(d.dim_value for d in dims)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished model."""
        given = {name: self.shapes[name] for name in self.inputs}
        made = {name: self.shapes.get(name) for name in outputs}
        found = model(self.nodes, given, made, opset=21, name="net")
        found.graph.initializer.extend(self.constants)
        return found


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """What ONNX Runtime computes, without its own graph optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [o.name for o in model.graph.output]
    return dict(zip(names, session.run(names, feeds), strict=True))


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    """Inputs near 1."""
    rng = np.random.default_rng(3)
    return {
        port.name: rng.standard_normal([d.dim_value for d in port.type.tensor_type.shape.dim])
        .astype("f4")
        for port in model.graph.input
    }  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """What a check saw."""

    compiled: CompileResult
    trace: Trace


def weight_types(found: Checked) -> set[str]:
    """Types of the weights that arrays read, but for the digits of biases."""
    flat = [i for core in found.compiled.program.cores for i, *_ in instructions(core)]
    arrays = [i for i in flat if isinstance(i, MatrixInstruction)]
    return {i.w.dtype for i in arrays if (i.a.zero, i.a.shape[-1]) != (LOWEST, len(FACTORS))}


def array_cycles(found: Checked, arch: Arch) -> float:
    """What the instructions of the first core's array take."""
    return sum(
        i.cycles(arch) * math.prod(count for _, count in around)
        for i, around in instructions(found.compiled.program.cores[0])
        if isinstance(i, MatrixInstruction)
    )


def check(
    model: onnx.ModelProto, arch: Arch, dtype: str, options: CompileOptions | None = None
) -> Checked:
    """Compile, verify, execute, simulate; AssertionError where meanings differ.

    Raises:
        DoesNotFit, UnsupportedModel: what the compiler refuses.
    """
    options = replace(options or CompileOptions(), dtype=dtype)
    graph = prepared(model, "net", options.stages)
    compiled = compile_model(graph, arch, options)
    program = compiled.program
    verify(program, arch)
    feeds = feeds_of(model)
    expected = reference(model, feeds)
    meant = run(nests(graph, Context(arch, options)), feeds, run_node)
    actual = execute(program, feeds, arch, host=run_node)
    for name, values in expected.items():
        scale = max(1.0, float(np.abs(values).max(initial=0.0)))
        loose = {"fp32": 1e-4 * scale, "fp16": 0.02 * scale, "int8": 3 * STEP}[dtype]
        tight = {"fp32": 1e-4 * scale, "fp16": 0.02 * scale, "int8": STEP}[dtype]
        assert actual[name].shape == values.shape
        np.testing.assert_allclose(meant[name], values, 0, loose, err_msg=f"nests: {name}")
        np.testing.assert_allclose(actual[name], meant[name], 0, tight, err_msg=name)
    if zlib.crc32(model.SerializeToString()) % 4 == 0:  # a fourth, whichever run it is
        followed(graph, arch, options, compiled)
    trace = simulate(program, arch)
    conserved(compiled, trace)
    assert measure(trace, program, arch).efficiency <= 1  # and did what the outputs take
    return Checked(compiled, trace)


def followed(graph: ir.Model, arch: Arch, options: CompileOptions, compiled: CompileResult) -> None:
    """The schedule as text makes the same program again."""
    assert compiled.search is not None
    tree = extract_tree(compiled.search.graph.name, compiled.steps, addresses=True)
    assert parse_tree(print_tree(tree, remarks_of(tree, compiled.steps))) == tree
    again = compile_model(graph, arch, replace(options, tree=tree))
    assert print_program(again.program) == print_program(compiled.program)


def repeated(items: Iterable[Item], times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Each instruction of a stream, and how often it happens."""
    for item in items:
        if isinstance(item, Loop):
            yield from repeated(item.body, times * item.count)
        else:
            yield item, times


def conserved(compiled: CompileResult, trace: Trace) -> None:
    """Results are written; products of layers whose results are, are all computed (of what passes
    between layers, readers may need a part only)."""
    program = compiled.program
    results = [name for decision in compiled.decisions for name in decision.group.results]
    written = sum(port.operand.distinct for port in program.outputs if port.name in results)
    if not compiled.host:
        assert trace.traffic.get("dram.write", 0) >= written
    groups = [decision.group for decision in compiled.decisions]
    layers = [y for group in groups for y in group.layers if y.result.name in group.results]
    nests = [nest for layer in layers for nest in layer.nests]
    assert trace.macs >= sum(nest.macs for nest in nests if nest.contraction)


@contextmanager
def may_be_refused() -> Iterator[None]:
    """Within, a refusal is an answer as any other, if its sum is right."""
    try:
        yield
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)


def refused(why: DoesNotFit | UnsupportedModel) -> str:
    """The refusal's text, after a look at its sum."""
    if isinstance(why, DoesNotFit):
        assert why.demand > why.bound, why
        assert sum(amount for _, amount in why.terms) == why.demand, why
        assert why.levers and why.where
    return str(why)


CHANNELS = st.sampled_from((1, 2, 3, 4, 5, 8, 13, 16, 24, 31))


@st.composite
def networks(draw: st.DrawFn, quantized: bool) -> onnx.ModelProto:
    """A random network of a few operators on images or tokens."""
    net = Net(quantized, draw(st.integers(0, 9)))
    batch = draw(st.sampled_from((1, 1, 1, 2, 3)))
    if draw(st.integers(0, 2)):
        side = draw(st.sampled_from((4, 5, 7, 9, 12)))
        wide = draw(st.sampled_from((4, 6, 11)))
        values = [net.input(batch, draw(CHANNELS), side, wide)]
    else:
        rows = draw(st.sampled_from((1, 3, 8, 13)))
        values = [net.input(batch, rows, draw(CHANNELS))]
    for _ in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(values[-2:]))
        made = _grown(draw, net, source, values)
        if made and len(net.shapes[made]) > 1 and 0 < np.prod(net.shapes[made]) < 20000:
            values.append(made)
    outputs = [values[-1]]
    if len(values) > 3 and draw(st.booleans()):
        outputs.append(values[-2])
    if outputs[0] in net.inputs:
        outputs = [net.op("Neg", values[-1])]
    return net.model(*dict.fromkeys(outputs))


def _grown(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    shape = net.shapes[x]
    both = ["unary", "binary", "transpose", "slice", "concat", "softmax", "norm", "reduce", "const"]
    image = ["conv", "conv", "conv", "depthwise", "grouped", "pool", "global", "resize"]
    tokens = ["matmul", "matmul", "self"]
    kinds = both + (image if len(shape) == 4 else tokens if len(shape) == 3 else [])
    kind = draw(st.sampled_from(kinds))
    return GROW[kind](draw, net, x, values)


def _conv(draw: st.DrawFn, net: Net, x: str, values: list[str], groups: int = 1) -> str | None:
    _, channels, high, wide = net.shapes[x]
    kernel = (draw(st.sampled_from((1, 1, 2, 3, 5))), draw(st.sampled_from((1, 3, 3))))
    dilation = draw(st.sampled_from((1, 1, 1, 2)))
    pads = [draw(st.sampled_from((0, 1, 2))) for _ in range(4)]
    stride = [draw(st.sampled_from((1, 1, 2, 3))) for _ in range(2)]
    spans = [dilation * (k - 1) + 1 for k in kernel]
    if high + pads[0] + pads[2] < spans[0] or wide + pads[1] + pads[3] < spans[1]:
        return None
    if max(pads[0], pads[2]) >= spans[0] or max(pads[1], pads[3]) >= spans[1]:
        pads = [0, 0, 0, 0]
        if high < spans[0] or wide < spans[1]:
            return None
    out = draw(CHANNELS) * (groups if 1 < groups < channels else 1)
    out = channels if groups == channels else out
    if out > 64:
        return None
    inputs = [x, net.weight(out, channels // groups, *kernel)]
    if draw(st.booleans()):
        inputs.append(net.vector(out) if net.quantized else net.weight(out))
    made = net.op(
        "Conv", *inputs, kernel_shape=kernel, strides=stride, pads=pads, group=groups,
        dilations=[dilation] * 2,
    )  # fmt: skip
    return net.op("Relu", made) if draw(st.booleans()) else made


def _depthwise(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    return _conv(draw, net, x, values, net.shapes[x][1])


def _grouped(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    channels = net.shapes[x][1]
    even = [g for g in (2, 3, 4) if channels % g == 0 and channels > g]
    return _conv(draw, net, x, values, draw(st.sampled_from(even))) if even else None


def _pool(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    kernel = [draw(st.sampled_from((2, 3))) for _ in range(2)]
    if min(net.shapes[x][2:]) < 3:
        return None
    pads = [draw(st.sampled_from((0, 1))) for _ in range(4)]
    more = {"count_include_pad": draw(st.integers(0, 1))}
    kind = draw(st.sampled_from(("MaxPool", "AveragePool")))
    strides = [draw(st.sampled_from((1, 2))) for _ in range(2)]
    return net.op(
        kind, x, kernel_shape=kernel, pads=pads, strides=strides,
        **(more if kind == "AveragePool" else {}),
    )  # fmt: skip


def _global(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    return net.op(draw(st.sampled_from(("GlobalAveragePool", "GlobalMaxPool"))), x)


def _resize(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    scales = net.const([1, 1, draw(st.sampled_from((1, 2))), 2], "f4")
    return net.op(
        "Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip


def _unary(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    kinds = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Gelu", "LeakyRelu", "HardSwish")
    kind = draw(st.sampled_from(kinds))
    return net.op(kind, x)


def _binary(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    same = [v for v in values if net.shapes[v] == net.shapes[x]]
    return net.op(draw(st.sampled_from(("Add", "Mul", "Sub"))), x, draw(st.sampled_from(same)))


def _const(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    shape = list(net.shapes[x])
    for axis in range(len(shape)):
        if draw(st.booleans()):
            shape[axis] = 1
    return net.op(draw(st.sampled_from(("Add", "Mul"))), x, net.weight(*shape))


def _transpose(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    order = draw(st.permutations(range(len(net.shapes[x]))))
    return net.op("Transpose", x, perm=list(order))


def _slice(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    shape = net.shapes[x]
    axis = draw(st.integers(0, len(shape) - 1))
    if shape[axis] < 3:
        return None
    ends = [net.const([n], "i8") for n in (1, shape[axis], axis, draw(st.sampled_from((1, 2))))]
    return net.op("Slice", x, *ends)


def _concat(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    shape = net.shapes[x]
    axis = draw(st.integers(0, len(shape) - 1))
    fits = [
        v for v in values
        if len(net.shapes[v]) == len(shape)
        and all(a == b for i, (a, b) in enumerate(zip(net.shapes[v], shape, strict=True))
                if i != axis)
    ]  # fmt: skip
    return net.op("Concat", x, draw(st.sampled_from(fits)), axis=axis)


def _softmax(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    return net.op("Softmax", x, axis=draw(st.integers(1, len(net.shapes[x]) - 1)))


def _norm(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str | None:
    wide = net.shapes[x][-1]
    if wide < 3:
        return None
    return net.op("LayerNormalization", x, net.weight(wide), net.weight(wide), axis=-1)


def _reduce(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    axis = draw(st.integers(1, len(net.shapes[x]) - 1))
    kind = draw(st.sampled_from(("ReduceMean", "ReduceMax")))
    return net.op(kind, x, net.const([axis], "i8"), keepdims=draw(st.integers(0, 1)))


def _matmul(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    *_, wide = net.shapes[x]
    made = net.op("MatMul", x, net.weight(wide, draw(CHANNELS)))
    if draw(st.booleans()):
        made = net.op("Add", made, net.weight(net.shapes[made][-1]))
    return made


def _self(draw: st.DrawFn, net: Net, x: str, values: list[str]) -> str:
    return net.op("MatMul", x, net.op("Transpose", x, perm=[0, 2, 1]))


GROW = {
    "conv": _conv, "depthwise": _depthwise, "grouped": _grouped, "pool": _pool,
    "global": _global, "resize": _resize, "unary": _unary, "binary": _binary, "const": _const,
    "transpose": _transpose, "slice": _slice, "concat": _concat, "softmax": _softmax,
    "norm": _norm, "reduce": _reduce, "matmul": _matmul, "self": _self,
}  # fmt: skip
