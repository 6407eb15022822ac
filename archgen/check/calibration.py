"""Samples for calibration, and chains of them for a network with states.

The one idea: a state is what the network itself has made of what came before, so no noise stands
for it. A chain begins with states of 0, and each inference is fed with what the one before has
left. A cache that grows keeps its extent: the oldest rows go, and as long as there are fewer than
it has, those that there are stand there again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.quantization.calibrate import TensorData

from archgen.check.quantizer_input import PRODUCTS
from archgen.check.reference import Detached, detached, sample_sets
from archgen.models.roles import infer_roles
from archgen.zoo.shapes import copied, without_data
from simmodel.arch.dtype import Array

Sample = dict[str, Array]
_STEPS, _FEW_STEPS = 32, 8
_LARGE = 1 << 26
"""Bytes of weights from which on chains are short."""


def calibration_sets(proto: onnx.ModelProto, seeds: Iterable[int]) -> tuple[list[Sample], str]:
    """Seeded samples for ``proto``, whose input shapes are fixed, and what they are, in words.

    Raises ``ModelError`` where ONNX Runtime cannot run a network with states.
    """
    chains = list(seeds)
    states = _states(proto)
    steps = (
        _FEW_STEPS if sum(len(t.raw_data) for t in proto.graph.initializer) >= _LARGE else _STEPS
    )
    run = Detached(detached(proto), proto).run
    given = (sample_sets(proto, range(n * steps, (n + 1) * steps)) for n in chains if states)
    made = [chain for samples in given if (chain := _chain(run, states, samples))]
    if not made:
        return sample_sets(proto, chains), f"{len(chains)} seeded random samples"
    found = [sample for chain in made for sample in chain]
    return found, (
        f"{len(found)} seeded random samples, {steps} in a row, each with the states that the one "
        "before has left"
    )


def _states(proto: onnx.ModelProto) -> dict[str, str]:
    """Real states, and what each becomes."""
    told = infer_roles(proto)
    pairs = {name: role.becomes for name, role in told.roles.items() if role.becomes is not None}
    real = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return {name: out for name, out in pairs.items() if told.inputs[name].elem_type in real}


def _chain(
    run: Callable[[Sample], Mapping[str, Array]], states: Mapping[str, str], given: list[Sample]
) -> list[Sample]:
    """``given`` as inferences behind each other; none where states become infinite or undefined,
    or are of another shape than what they become."""
    kept = {name: np.zeros_like(given[0][name]) for name in states}
    rows = dict.fromkeys(states, 0)
    found: list[Sample] = []
    for sample in given:
        found.append(sample | kept)
        made = run(found[-1])
        for name, becomes in states.items():
            after = made[becomes]
            grown = _grown(kept[name].shape, after.shape)
            if grown is None or not np.isfinite(after).all():
                return []
            axis, more = grown
            rows[name] += more
            kept[name] = _newest(after, axis, rows[name], kept[name].shape[axis]) if more else after
    return found


def _grown(before: Sequence[int], after: Sequence[int]) -> tuple[int, int] | None:
    """Along which axis a state has more elements than before, and how many; None where it differs
    otherwise."""
    if len(before) != len(after):
        return None
    more = [(axis, b - a) for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(more) > 1 or any(by < 0 for _, by in more):
        return None
    return more[0] if more else (0, 0)


def _newest(after: Array, axis: int, real: int, wanted: int) -> Array:
    """The last ``wanted`` rows of ``after``; of its last ``real`` ones again and again."""
    last = min(real, wanted)
    rows = after.shape[axis] - last + np.arange(-wanted, 0) % last if last else np.arange(0)
    taken: Array = np.take(after, rows, axis)
    return taken


# The ranges that the values of a network have on samples, by which an int8 network has its scales.

Inputs = Mapping[str, Array]

_ALL_INPUTS = {*PRODUCTS, "Add", "Mul", "Concat"}
"""Operators that read more numbers to be rounded than their first input."""
_ZERO = "range.zero"


@dataclass(frozen=True)
class Ranges:
    """What float32 values of a network are on samples."""

    found: Mapping[str, TensorData] = field(repr=False)
    """Of each value that is no constant."""
    unscaled: frozenset[str]
    """Values and constants with infinite or undefined elements, or so large ones that a range from
    -x to x is not finite: there is no scale for them."""

    def widened_by(self, other: Ranges) -> Ranges:
        """These, each as wide as ``other`` makes it."""
        wide = dict(self.found)
        for name in wide.keys() & other.found.keys():
            one, more = wide[name], other.found[name]
            wide[name] = TensorData(
                lowest=np.minimum(one.lowest, more.lowest),
                highest=np.maximum(one.highest, more.highest),
            )
        return Ranges(wide, self.unscaled | other.unscaled)


def observed(proto: onnx.ModelProto, kinds: Collection[str], samples: Sequence[Inputs]) -> Ranges:
    """Ranges on ``samples`` of what operators of ``kinds`` read and make. Raises ``ModelError``
    where ONNX Runtime cannot run ``proto``."""
    nodes = [node for node in proto.graph.node if node.op_type in kinds]
    real = _real_values(proto)
    ports = dict.fromkeys(name for node in nodes for name in (*node.input, *node.output))
    names = [name for name in ports if name in real]
    rounded = {name for node in nodes for name in touched(node)}
    unscaled = {
        tensor.name
        for tensor in proto.graph.initializer
        if tensor.name in rounded
        and tensor.data_type == TensorProto.FLOAT
        and not np.isfinite(numpy_helper.to_array(tensor) * np.float32(2)).all()
    }
    lowest = {name: np.full(1, np.inf, np.float32) for name in names}
    highest = {name: np.full(1, -np.inf, np.float32) for name in names}
    runner = Detached(_probed(proto, names), proto)
    for told in runner.runs(samples) if names else ():
        for position, name in enumerate(names):
            low, high, nothing = (told[probe].reshape(-1) for probe in _probes(position))
            if not low.size:
                low = high = np.zeros(1, np.float32)  # of no elements
            lowest[name] = np.fmin(lowest[name], low)
            highest[name] = np.fmax(highest[name], high)
            reach = np.abs([lowest[name], highest[name]]) * np.float32(2)
            if name in rounded and not (np.isfinite(reach).all() and np.isfinite(nothing).all()):
                unscaled.add(name)
    found = {name: TensorData(lowest=lowest[name], highest=highest[name]) for name in names}
    return Ranges(found, frozenset(unscaled))


def touched(node: onnx.NodeProto) -> Iterator[str]:
    """Values that a quantizer might round for ``node``."""
    yield from node.input if node.op_type in _ALL_INPUTS else node.input[:1]
    yield from node.output


def _real_values(proto: onnx.ModelProto) -> set[str]:
    """Float32 values that are no constants."""
    graph = shape_inference.infer_shapes(without_data(proto)).graph
    typed = (*graph.input, *graph.value_info, *graph.output)
    real = {v.name for v in typed if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    return real - {tensor.name for tensor in proto.graph.initializer}


def _probed(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """``proto``, detached, whose outputs are the probes of ``names``, each as early as it can be:
    values that all waited for their probes would take the memory of all of them."""
    light = detached(proto)
    light.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), _ZERO))
    position_of = {name: position for position, name in enumerate(names)}
    nodes = [node for port in light.graph.input for node in _probe(port.name, position_of)]
    for node in light.graph.node:
        nodes.append(node)
        for name in node.output:
            nodes += _probe(name, position_of)
    told = (
        helper.make_tensor_value_info(probe, TensorProto.FLOAT, None)
        for position in range(len(names))
        for probe in _probes(position)
    )
    return copied(light, node=nodes, output=told)


def _probe(name: str, position_of: Mapping[str, int]) -> list[onnx.NodeProto]:
    """Nodes that tell of a value."""
    if name not in position_of:
        return []
    low, high, nothing = _probes(position_of[name])
    return [
        helper.make_node("ReduceMin", [name], [low]),
        helper.make_node("ReduceMax", [name], [high]),
        helper.make_node("Mul", [name, _ZERO], [f"{nothing}.terms"]),
        helper.make_node("ReduceSum", [f"{nothing}.terms"], [nothing]),
    ]


def _probes(position: int) -> tuple[str, str, str]:
    """Names of what is told of a value."""
    return f"range.{position}.low", f"range.{position}.high", f"range.{position}.nothing"


# One scale for a state and for what it is in the next inference.

_ENDS = ("_scale", "_zero_point")
"""What ONNX Runtime calls the quantization of a value."""


def give_states_one_scale(made: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """Let every state of ``proto`` have, in the quantized ``made``, the scale of the output that it
    becomes, which has seen the old values and the new ones."""
    found = {tensor.name: tensor for tensor in made.graph.initializer}
    for name, role in infer_roles(proto).roles.items():
        for end in _ENDS if role.becomes is not None else ():
            before, after = found.get(f"{name}{end}"), found.get(f"{role.becomes}{end}")
            if before is not None and after is not None:
                before.CopyFrom(after)
                before.name = f"{name}{end}"
