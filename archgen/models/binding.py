"""Gives every input dimension of a model its size.

The one idea: the batch is the size of those axes that carry one, as the roles of the inputs tell
(`archgen.models.roles`), and of no other; every other free dimension has to be given. Whatever is
wrong with sizes and roles is said at once.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import shape_inference

from archgen.models.errors import BatchError, ModelError, option
from archgen.models.roles import InferredRoles, infer_roles, parse_roles, state_roles
from archgen.models.roles.net import ANONYMOUS
from archgen.schema.tree import guess
from archgen.zoo.shapes import fixed_shapes, without_data
from compiler import api
from simmodel.program.program import Port

# Sizes that a file says by expressions: a mask over `past + seq` positions.

_LAWFUL = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Name, ast.Load)


def derived(symbols: Iterable[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of those `symbols` that are expressions in names of `sizes` and numbers: sums,
    differences, products and quotients that are rounded down."""
    found = {symbol: _expression_value(symbol, sizes) for symbol in dict.fromkeys(symbols)}
    return {symbol: size for symbol, size in found.items() if size is not None}


def _expression_value(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """None where it is a name, however it looks."""
    try:
        tree = ast.parse(symbol.strip(), mode="eval")
        lawful = all(
            isinstance(node.value, int)
            if isinstance(node, ast.Constant)
            else isinstance(node, _LAWFUL)
            for node in ast.walk(tree)
        )
        expression = lawful and isinstance(tree.body, ast.BinOp)
        return int(eval(symbol, {"__builtins__": {}}, dict(sizes))) if expression else None
    except (SyntaxError, ValueError, NameError, ZeroDivisionError, RecursionError, MemoryError):
        return None


@dataclass(frozen=True)
class _InputAxis:
    """One dimension of one input, free unless ``dim`` has a positive value."""

    owner: str
    index: int
    dim: onnx.TensorShapeProto.Dimension

    @property
    def symbol(self) -> str:
        """The dimension's name; ``input:axis`` when the file gives none."""
        name = self.dim.dim_param
        return self.place if name in ANONYMOUS else str(name)

    @property
    def place(self) -> str:
        return f"{self.owner}:{self.index}"

    @property
    def fixed(self) -> bool:
        return self.dim.HasField("dim_value") and self.dim.dim_value > 0

    @property
    def empty(self) -> bool:
        """Whether the file says that there is nothing."""
        return self.dim.HasField("dim_value") and self.dim.dim_value == 0


def bind(
    given: onnx.ModelProto, batch: int | None, dims: Mapping[str, int], roles: Mapping[str, str],
    label: str, options: Collection[str] = (), ranges: Mapping[str, object] | None = None,
) -> None:  # fmt: skip
    """Binds the free input dimensions of ``given``, where they stand in it.

    ``batch`` goes to the batch axis of each input that has one (1 where a free one is not given);
    ``dims`` are sizes by the name of a dimension or as ``input:axis``, from which those follow that
    the file calls by an expression; ``roles`` say of inputs what they are, and are kept in the
    model. ``label`` names it in messages, which know of ``options`` that are sizes as well, and of
    ``ranges`` that some of ``dims`` are in.

    Raises ``ModelError`` with every mistake, and ``BatchError`` where only this batch cannot be.
    """
    axes = list(_axes(given.graph, label))
    wrong_dims = _wrong_dims(axes, dims, label, options, ranges or {})
    sizes = _sizes_by_symbol(axes, dims)
    try:
        told = checked_roles(given, roles, label, wrong_dims)
    except ModelError as mistake:
        more = () if wrong_dims else _no_samples(_carrying(axes, infer_roles(given)), sizes, label)
        raise ModelError(*mistake.mistakes, *more) from None
    carrying = _carrying(axes, told)
    values = {axis.symbol: 1 for axis in axes if told.is_unread(axis.owner)}
    values |= dict.fromkeys((axis.symbol for axis in carrying if not axis.fixed), batch or 1)
    values |= sizes
    values = derived((axis.symbol for axis in axes), values) | values
    unbound = [axis for axis in axes if not axis.fixed and axis.symbol not in values]
    if unbound:
        # What follows from others need not be said.
        known = values | {axis.symbol: 1 for axis in unbound}
        follows = derived((axis.symbol for axis in unbound), known)
        unbound = [axis for axis in unbound if axis.symbol not in follows]
        raise ModelError(_unbound_message(unbound, told, label))
    if none := _no_samples(carrying, values, label):
        raise ModelError(*none)
    if batch is not None and batch > 1 and not carrying:
        raise BatchError(_no_batch_message(batch, told, label))
    if batch is not None and batch > 1:
        _check_outputs(batch, carrying, told, label)
    fixed = [axis for axis in carrying if axis.fixed]
    _bind_symbols(given.graph, axes, values)
    if batch is None or batch_of(axis.dim.dim_value for axis in carrying) == batch:
        return
    wrong = [axis for axis in fixed if axis.dim.dim_value != batch]
    if wrong:
        _rebatch(given, wrong, batch, told, label)


def _carrying(axes: Iterable[_InputAxis], told: InferredRoles) -> list[_InputAxis]:
    """The axes that are a batch."""
    return [axis for axis in axes if told.roles[axis.owner].axis == axis.index]


def _no_samples(
    carrying: Iterable[_InputAxis], values: Mapping[str, int], label: str
) -> list[str]:  # fmt: skip
    """What is wrong with a batch of none, by the sizes of symbols."""
    none = [axis for axis in carrying if not axis.fixed and values.get(axis.symbol) == 0]
    places = ", ".join(f"{axis.owner!r}, axis {axis.index}" for axis in none)
    return [f"{label}: a batch of 0 has no samples to compute ({places})"] if none else []


def batch_of(sizes: Iterable[int | str | None]) -> int:
    """Samples in one inference, by the sizes of what carries the batch: 1 where nothing does, or
    where sizes differ, as of a recurrent layer over the bands of one sample beside the sample."""
    (size, *others) = set(sizes) or (1,)
    return size if isinstance(size, int) and not others else 1


def partially_bound_roles(
    given: onnx.ModelProto, dims: Mapping[str, int], roles: Mapping[str, str], label: str,
    options: Collection[str] = (),
) -> InferredRoles:  # fmt: skip
    """Inputs, outputs and roles of a model that stays free where ``dims`` bind nothing. Raises
    ``ModelError`` with every mistake."""
    axes = list(_axes(given.graph, label))
    told = checked_roles(given, roles, label, _wrong_dims(axes, dims, label, options, {}))
    values = _sizes_by_symbol(axes, dims)
    values = derived((axis.symbol for axis in axes), values) | values
    _bind_symbols(given.graph, axes, values)
    return infer_roles(given) if values else told


def checked_roles(
    given: onnx.ModelProto, roles: Mapping[str, str], label: str, mistakes: list[str]
) -> InferredRoles:
    """The roles of a model with ``roles`` written into it; ``ModelError`` with ``mistakes`` and
    everything that is wrong with these or with those that the file states."""
    ranks = {name: len(port) for name, port in input_dims(given.graph, label).items()}
    outputs = [value.name for value in given.graph.output]
    wrong = [*mistakes, *(f"--{said} ({label})" for said in parse_roles(roles, ranks, outputs)[1])]
    if wrong:
        raise ModelError(*wrong)
    state_roles(given, roles)
    told = infer_roles(given)
    if told.mistakes:
        raise ModelError(*(f"{label}, which states the {said}" for said in told.mistakes))
    return told


def input_dims(
    graph: onnx.GraphProto, label: str
) -> dict[str, list[onnx.TensorShapeProto.Dimension]]:
    """The dimensions of each input that is no initializer; ``ModelError`` for what is no tensor."""
    initialized = {tensor.name for tensor in graph.initializer}
    found: dict[str, list[onnx.TensorShapeProto.Dimension]] = {}
    for value in graph.input:
        if value.name in initialized:
            continue
        if not value.type.HasField("tensor_type"):
            raise ModelError(*(f"{label}: {line}" for line in api.other_ports(graph)))
        if not value.type.tensor_type.HasField("shape"):
            raise ModelError(
                f"{label}: input {value.name!r} has no shape, not even a rank; expected one "
                "such as [1, 3, 224, 224]: export with example inputs, or set it by "
                "onnx.helper.make_tensor_value_info"
            )
        found[value.name] = list(value.type.tensor_type.shape.dim)
    return found


def _axes(graph: onnx.GraphProto, label: str) -> Iterator[_InputAxis]:
    for name, dims in input_dims(graph, label).items():
        for index, dim in enumerate(dims):
            yield _InputAxis(name, index, dim)


def _sizes_by_symbol(axes: Iterable[_InputAxis], dims: Mapping[str, int]) -> dict[str, int]:
    """Sizes by the name of a dimension, however they are given."""
    return {axis.symbol: dims[axis.place] for axis in axes if axis.place in dims} | dict(dims)


def _wrong_dims(
    axes: list[_InputAxis], dims: Mapping[str, int], label: str, options: Collection[str],
    ranges: Mapping[str, object],
) -> list[str]:  # fmt: skip
    asked = {
        name: option("--dim", name, str(ranges.get(name, size))) for name, size in dims.items()
    }
    free = {axis.symbol for axis in axes if not axis.fixed}
    places = {axis.place: axis for axis in axes}
    mistakes = []
    for name, value in dims.items():
        if not isinstance(value, int):
            mistakes.append(f"dims[{name!r}]: expected one whole number, got {value!r}")
        elif value < 0:
            mistakes.append(f"{asked[name]}: must be 0 (empty) or positive")
        elif name in places and places[name].fixed and name not in free:
            size = places[name].dim.dim_value
            mistakes.append(f"{asked[name]}: {label} fixes this dimension at {size}")
        elif name not in free and name not in places:
            known = sorted({*free, *options})
            mistakes.append(
                f"{asked[name]}: {label} has no such free dimension{guess(name, known)} "
                f"(free: {', '.join(known) or 'none'})"
            )
    return mistakes or [*_contradictions(axes, dims, label, asked, ranges)]


def _contradictions(
    axes: Iterable[_InputAxis], dims: Mapping[str, int], label: str, asked: Mapping[str, str],
    ranges: Mapping[str, object],
) -> Iterator[str]:  # fmt: skip
    """Sizes that cannot be together: several of one dimension, and such that others follow from,
    which is no range of its own."""
    ways: dict[str, dict[str, int]] = {}
    for axis in axes:
        for name in (axis.symbol, axis.place):
            if name in dims and not axis.fixed:
                ways.setdefault(axis.symbol, {})[name] = dims[name]
    for symbol, sizes in ways.items():
        if len(set(sizes.values())) > 1:
            given = " and ".join(asked[name] for name in sizes)
            yield f"{given}: {label} has one dimension there, {symbol!r}; give it one size"
    sizes = _sizes_by_symbol(axes, dims)
    for symbol, size in derived(ways, sizes).items():
        open_ = not ranges.keys().isdisjoint(ways[symbol])
        if size == sizes[symbol] and not open_:
            continue
        given = " ".join(asked[name] for name in ways[symbol])
        used = [f"{n}={ranges.get(n, v)}" for n, v in sizes.items() if n in symbol.split()]
        makes = "" if open_ else f", which make it {size}"
        yield f"{given}: in {label} it follows from {', '.join(used)}{makes}; leave it out"


def _unbound_message(unbound: list[_InputAxis], told: InferredRoles, label: str) -> str:
    lines = [f"{label} has input dimensions of unknown size:"]
    for axis in unbound:
        named = "" if axis.symbol == axis.place else f", named {axis.symbol!r}"
        role = told.roles[axis.owner]
        reason = f" ({role.axis_evidence})" if axis.index == 0 and role.axis is None else ""
        empty = " (0 in the file, which many exporters write for free)" if axis.empty else ""
        lines.append(f"  input {axis.owner!r}, axis {axis.index}{named}{empty or reason}")
    symbols = dict.fromkeys(axis.symbol for axis in unbound)
    shown = " ".join(option("--dim", symbol, "<size>") for symbol in symbols)
    return "\n".join([*lines, f"bind each with --dim name=value, here: {shown}"])


def _bind_symbols(
    graph: onnx.GraphProto, axes: Iterable[_InputAxis], values: Mapping[str, int]
) -> None:
    """Writes bound values into inputs, outputs and annotations; drops annotations that stay
    unknown."""
    for axis in axes:
        if not axis.fixed and axis.symbol in values:
            axis.dim.dim_value = values[axis.symbol]
    for value in (*graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in values and dim.dim_param not in ANONYMOUS:
                dim.dim_value = values[dim.dim_param]
            elif dim.HasField("dim_value") and dim.dim_value < 0:
                dim.Clear()
    known = [
        value
        for value in graph.value_info
        if all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    ]
    del graph.value_info[:]
    graph.value_info.extend(known)


def declared_otherwise(graph: onnx.GraphProto, made: Iterable[Port]) -> str:
    """Which outputs, as `made`, have another shape than the file says; empty where none has."""
    declared = {output.name: output.type.tensor_type.shape.dim for output in graph.output}
    wrong = []
    for port in (port for port in made if not port.extents):
        said = [dim.dim_value or dim.dim_param or "?" for dim in declared.get(port.name, ())]
        open_ = (
            isinstance(size, str) or size == own
            for size, own in zip(said, port.shape, strict=False)
        )
        if said and not (len(said) == len(port.shape) and all(open_)):
            shown = ", ".join(map(str, said))
            wrong.append(f"{port.name} is {list(port.shape)}, though the file declares [{shown}]")
    return "; ".join(wrong)


# Another batch than the file's.


def _check_outputs(batch: int, carrying: list[_InputAxis], told: InferredRoles, label: str) -> None:
    """Exporters leave an input's batch free and yet fix it inside; the outputs tell."""
    if any(axis.fixed for axis in carrying):
        return
    for name, place in told.output_axes.items():
        extent = told.outputs[name].dims[place] if place is not None else None
        if isinstance(extent, int) and extent != batch:
            raise BatchError(
                f"{label} leaves the batch of its inputs free, but fixes that of its output "
                f"{name!r} at {extent}; it cannot run at batch {batch}. Run it at "
                f"--batch {extent}, or export it so that the output follows"
            )


def _no_batch_message(batch: int, told: InferredRoles, label: str) -> str:
    reasons = [f"{name!r}: {role.axis_evidence}" for name, role in told.roles.items()]
    shown = "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")
    said = f"{label} has no input with a batch axis ({shown or 'it has no inputs'})"
    first = next((name for name, port in told.inputs.items() if port.dims), None)
    way = (
        f", or say which axis it is, such as {option('--role', first, 'batch:0')}" if first else ""
    )
    return f"{said}; it cannot run at batch {batch}. Run it at --batch 1{way}"


def _rebatch(
    proto: onnx.ModelProto, fixed: list[_InputAxis], batch: int, told: InferredRoles, label: str
) -> None:
    """Changes a fixed batch of 1 when shape inference carries the new one to every output."""
    sizes = ", ".join(f"{axis.owner!r} at {axis.dim.dim_value}" for axis in fixed)
    given = {axis.dim.dim_value for axis in fixed}
    way = f"Run it as it is (--batch {min(given)}), or export" if len(given) == 1 else "Export"
    none = " ".join(f"--role {axis.owner}=batch:none" for axis in fixed)
    refusal = (
        f"{label} fixes its batch: {sizes}; it cannot run at batch {batch}%s. "
        f"{way} it with a dynamic batch dimension"
        + (f"; where that is no batch, say so: {none}" if batch == 1 else "")
    )
    if any(axis.dim.dim_value != 1 for axis in fixed):
        raise BatchError(refusal % "")
    for axis in fixed:
        axis.dim.dim_value = batch
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        inferred = shape_inference.infer_shapes(
            without_data(proto), strict_mode=True, data_prop=True
        )
    except shape_inference.InferenceError:
        raise BatchError(refusal % " (its shapes do not fit then)") from None
    stuck = _stuck(inferred.graph)
    if stuck is not None:
        raise BatchError(refusal % f" ({stuck} makes a fixed shape of another size)")
    for output, value in zip(proto.graph.output, inferred.graph.output, strict=True):
        dims = value.type.tensor_type.shape.dim
        place = told.output_axes.get(output.name) or 0
        if place >= len(dims) or dims[place].dim_value != batch:
            raise BatchError(refusal % f" (output {output.name!r} does not follow)")
        output.CopyFrom(value)


def _stuck(graph: onnx.GraphProto) -> str | None:
    """The first Reshape to a fixed shape that what it is given does not fill: inference takes the
    shape that it says without counting."""
    sizes = {name: math.prod(shape) for name, shape in fixed_shapes(graph).items()}
    for node in graph.node:
        if node.op_type != "Reshape":
            continue
        given, made = sizes.get(node.input[0]), sizes.get(node.output[0])
        if None not in (given, made) and given != made:
            return f"Reshape {node.name or node.output[0]!r}"
    return None
