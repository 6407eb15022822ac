"""An ONNX graph that grows by one operator per call, and knows the values it computes.

The one idea: every operator is run by ONNX Runtime as it is added. What it refuses, and what makes
no sensible numbers (infinite, too large, too many), is not added: `op` answers None, and whoever
grows the graph tries something else. So no rule about an operator stands here twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from compiler.api import RUNTIME_ERRORS

Array = NDArray[Any]
IR, OPSET = 10, 21
MICROSOFT = "com.microsoft"
REFUSED = (*RUNTIME_ERRORS, onnx.checker.ValidationError, ValueError, TypeError, RuntimeError)
LOUDEST = 1e4
"""Magnitude of a floating-point value, at most: behind it, rounding is all that would be seen."""


class Net:
    """A graph under construction; `rng` takes every decision, so one seed gives one graph."""

    def __init__(
        self, rng: random.Random, *, coded: bool = False, half: bool = False, most: int = 6000,
        least: int = 1, opset: int = OPSET,
    ) -> None:  # fmt: skip
        """With `coded`, floats pass QuantizeLinear and DequantizeLinear after every operator; with
        `half` they are float16. `least` and `most`: elements of a value."""
        self.rng = rng
        self.random = np.random.default_rng(rng.randrange(1 << 30))
        self.coded, self.least, self.most, self.opset = coded, least, most, opset
        self.real: Any = np.dtype(np.float16 if half else np.float32)
        self.values: dict[str, Array] = {}
        self.inputs: list[str] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    # What others ask.

    def shape(self, name: str) -> tuple[int, ...]:
        """Extents of a value."""
        return tuple(self.values[name].shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Element type of a value."""
        return self.values[name].dtype

    def is_real(self, name: str) -> bool:
        """Whether a value holds floating-point numbers of the graph's own type."""
        return self.dtype(name) == self.real

    def pick(self, *choices: Any) -> Any:
        """One of them."""
        return self.rng.choice(choices)

    def maybe(self, chance: float) -> bool:
        """Yes, this often."""
        return self.rng.random() < chance

    # What grows it.

    def input(self, *shape: int, dtype: Any = None, below: int = 0) -> str:
        """A network input: standard normal, or integers below `below`."""
        name = f"x{len(self.inputs)}"
        if below:
            values = self.random.integers(0, below, shape).astype(dtype or np.int64)
        else:
            values = self.random.standard_normal(shape).astype(dtype or self.real)
        self.values[name] = np.asarray(values)
        self.inputs.append(name)
        return self._coded(name) if self.coded and not below else name

    def const(self, values: Any, dtype: Any = None) -> str:
        """A constant, as it is."""
        name = f"c{len(self.constants)}"
        array = np.asarray(values, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        self.values[name] = array
        return name

    def ints(self, *values: int) -> str:
        """A constant vector of int64: shapes, axes, bounds."""
        return self.const(list(values), np.int64)

    def weight(self, *shape: int, axis: int | None = None) -> str | None:
        """Random values that keep sums near 1, None where they are too many; where the graph is
        coded, behind DequantizeLinear with a scale for all, or sometimes one for each position of
        `axis`."""
        fan = max(1, int(np.prod(shape)) // max(1, *shape[:1]))
        raw = self.random.standard_normal(shape) / np.sqrt(fan)
        if fan % 5 == 0:  # two of any four neighbours are 0, along whatever axis
            raw *= np.indices(shape).sum(0) % 4 < 2
        if not self.coded:
            return self.const(raw, self.real)
        over = None if axis is None or self.maybe(0.5) else axis
        rest = None if over is None else tuple(a for a in range(raw.ndim) if a != over)
        scale = np.maximum(np.abs(raw).max(axis=rest), 1e-3) / 127
        wide = scale if over is None else np.expand_dims(scale, rest or ())
        codes = self.const(np.clip(np.rint(raw / wide), -127, 127), np.int8)
        more = {} if over is None else {"axis": over}
        made = self.raw("DequantizeLinear", codes, self.const(scale, self.real), **more)
        return made[0] if made else None

    def op(self, kind: str, *inputs: str | None, **attributes: Any) -> str | None:
        """One operator with one result, None where it cannot be; a missing input makes None."""
        made = self.ops(kind, *inputs, **attributes)
        return made[0] if made else None

    def ops(
        self, kind: str, *inputs: str | None, outputs: int = 1, **attributes: Any
    ) -> list[str] | None:
        """One operator with several results, each coded where the graph is."""
        made = self.raw(kind, *inputs, outputs=outputs, **attributes)
        if made is None or not self.coded:
            return made
        return [self._coded(name) if self.is_real(name) else name for name in made]

    def raw(
        self, kind: str, *inputs: str | None, outputs: int = 1, **attributes: Any
    ) -> list[str] | None:
        """One operator as it is; None where it cannot be."""
        if None in inputs:
            return None
        names = [f"t{len(self.nodes)}" if i == 0 else f"t{len(self.nodes)}_{i}"
                 for i in range(outputs)]  # fmt: skip
        try:
            node = helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}", **attributes)
            known = {n: self.values[n] for n in inputs if n}
            results = computed([node], known, names, self.opset)
        except REFUSED:
            return None
        if not all(map(self._sensible, results)):
            return None
        self.nodes.append(node)
        self.values.update(zip(names, results, strict=True))
        return names

    def _sensible(self, value: Array) -> bool:
        if not self.least <= value.size <= self.most:
            return False
        loud = value.dtype.kind == "f" and not np.abs(value).max(initial=0) <= LOUDEST
        return not loud

    def _coded(self, name: str) -> str:
        """`name` through quantization and back."""
        top = float(np.abs(self.values[name].astype(np.float32)).max())
        scale = self.const(max(top, 1e-2) / 127, self.real)
        kind = self.pick(np.int8, np.int8, np.uint8)
        zero = self.const(128 if kind is np.uint8 else self.pick(0, 0, 3, -7), kind)
        quantized = self.raw("QuantizeLinear", name, scale, zero)
        made = quantized and self.raw("DequantizeLinear", quantized[0], scale, zero)
        return made[0] if made else name

    # The end.

    def model(self, outputs: Iterable[str]) -> onnx.ModelProto:
        """The finished model."""
        ins, outs = ([port(n, self.values[n]) for n in names] for names in (self.inputs, outputs))
        graph = helper.make_graph(self.nodes, "fuzz", ins, outs, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self.nodes):
            imports.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, ir_version=IR, opset_imports=imports)


def port(name: str, value: Array) -> onnx.ValueInfoProto:
    """Name, type and shape of a graph's input or output that holds `value`."""
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


def computed(
    nodes: Sequence[onnx.NodeProto], values: dict[str, Array], names: Sequence[str],
    opset: int = OPSET,
) -> list[Array]:  # fmt: skip
    """What ONNX Runtime makes of `nodes` on `values`. Raises what it raises."""
    graph = helper.make_graph(
        list(nodes), "piece",
        [port(name, value) for name, value in values.items()],
        [onnx.ValueInfoProto(name=name) for name in names],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return run_model(helper.make_model(graph, ir_version=IR, opset_imports=imports), values)


def run_model(proto: onnx.ModelProto, values: dict[str, Array]) -> list[Array]:
    """All outputs of `proto`, without graph rewriting, on one thread. Raises what it raises."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results = [np.asarray(value) for value in session.run(None, values)]
    for declared, value in zip(session.get_outputs(), results, strict=True):
        known = [isinstance(extent, int) for extent in declared.shape]
        if known and all(known) and tuple(declared.shape) != value.shape:
            # A pool with ceil_mode and pads: what reads its result could not be loaded.
            raise ValueError(f"{declared.name}: {declared.shape} expected, {value.shape} made")
    return results
