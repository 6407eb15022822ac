"""What a network should compute: ONNX Runtime, without optimizations, on seeded inputs.

The one idea: one thread and no graph rewriting make the reference the same bytes wherever and
however often it runs, so its results can be cached by the content of model and inputs. Where ONNX
Runtime has no kernel for an operator, ONNX's own evaluator computes what the operator's definition
says.
"""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.capi import onnxruntime_pybind11_state as native

from archgen.models.damage import called
from archgen.models.load import ModelError
from archgen.models.roles import InferredRoles, Role, infer_roles
from archgen.process.files import cached_file
from archgen.process.guard import is_refusal
from archgen.process.steps import step
from archgen.zoo.shapes import all_graphs, bodies, copied, names_read, port_of, without_initializers
from compiler import api
from simmodel.arch.dtype import Array
from simmodel.errors import HostFailed, NoPayload

# Initializers of at most so many elements stay in the model: shapes, axes, scales.
_SMALL = 1024


def run_reference(
    proto: onnx.ModelProto, inputs: Mapping[str, Array], intermediates: Sequence[str] = ()
) -> dict[str, Array]:
    """Outputs of ``proto`` by name, and the values named in ``intermediates``.

    Raises ``ModelError`` when ONNX Runtime refuses the model or the inputs.
    """
    light = detached(proto)
    known = {value.name for value in light.graph.output} | set(inputs)
    extra = (name for name in dict.fromkeys(intermediates) if name not in known)
    light.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
    values = Detached(light, proto).run(inputs)
    return values | {name: inputs[name] for name in intermediates if name in inputs}


def folded_by_reference(proto: onnx.ModelProto) -> Array | None:
    """The output of ``proto``, which no number of its inputs matters to; None where ONNX Runtime
    refuses it."""
    try:
        (value,) = run_reference(proto, sample_inputs(proto)).values()
    except ModelError:
        return None
    return value


def detached(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``proto`` for `Detached`: its larger initializers have no data of their own,
    and those that nobody reads, which ONNX Runtime would not look for, are gone, also as inputs."""
    light = without_initializers(proto)
    read = names_read(proto.graph)
    unread = {tensor.name for tensor in proto.graph.initializer} - read
    light.graph.ClearField("input")
    light.graph.input.extend(port for port in proto.graph.input if port.name not in unread)
    for tensor in proto.graph.initializer:
        if tensor.name not in read:
            continue
        plain = helper.tensor_dtype_to_np_dtype(tensor.data_type).kind in "biuf"
        held = tensor.HasField("raw_data") or api.is_outside(tensor)
        if not plain or not held or math.prod(tensor.dims) <= _SMALL:
            light.graph.initializer.append(tensor)
            if api.is_outside(tensor):
                api.set_inside(light.graph.initializer[-1])
            continue
        outside = light.graph.initializer.add(
            name=tensor.name,
            dims=tensor.dims,
            data_type=tensor.data_type,
            data_location=TensorProto.EXTERNAL,
        )
        outside.external_data.add(key="location", value="given")
    return light


class Detached:
    """What `detached` made of ``proto``, to be run more than once: ONNX Runtime reads the weights
    where ``proto`` has them."""

    def __init__(self, light: onnx.ModelProto, proto: onnx.ModelProto) -> None:
        self._light, self._proto = light, proto
        self._session: Callable[[Sequence[str], Mapping[str, Array]], list[Array]] | None = None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name. Raises ``ModelError`` when ONNX Runtime refuses the model or the
        values."""
        (found,) = self.runs([feeds])
        return found

    def runs(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """The same of several samples, for which weights are handed to ONNX Runtime once."""
        first, *more = self._parts
        if more or any(map(api.is_own, first)) or self._large_weights(first):
            return self._run_in_parts(samples)
        return list(map(self._run_whole, samples))

    def _run_whole(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        light, proto = self._light, self._proto
        names = [value.name for value in light.graph.output]
        try:
            self._session = self._session or _detached_session(light, proto)
            results = self._session(names, feeds)
        except (*api.RUNTIME_ERRORS, ValueError) as mistake:
            if is_refusal(mistake):
                raise MemoryError(str(mistake)) from mistake
            why = _refused(proto, mistake)
            if not api.lacks_kernel(mistake):
                raise ModelError(why) from mistake
            kept = {tensor.name for tensor in light.graph.initializer}
            data = (tensor for tensor in proto.graph.initializer if tensor.name in kept)
            whole = api.with_all_numbers(copied(light, initializer=data))
            try:
                results = api.evaluated(api.evaluator(whole), names, feeds)
            except ValueError as more:
                raise ModelError(f"{why}; {more}") from more
        return dict(zip(names, results, strict=True))

    @cached_property
    def _constants(self) -> dict[str, onnx.TensorProto]:
        return {tensor.name: tensor for tensor in self._proto.graph.initializer}

    @cached_property
    def _parts(self) -> list[list[onnx.NodeProto]]:
        return list(_kernel_parts(self._light))

    def _run_in_parts(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """As `runs`, of each part as a model of its own; a user's operators are computed by their
        references."""
        light, parts, known = self._light, self._parts, [dict(feeds) for feeds in samples]
        constants = self._constants
        wanted = {value.name for value in light.graph.output}
        reads = [reads_of(part) for part in parts]
        for index, (part, read) in enumerate(zip(parts, reads, strict=True)):
            read_later = wanted.union(*reads[index + 1 :])
            made = [name for node in part for name in node.output if name in read_later]
            runners: dict[Hashable, Detached] = {}
            for values in known:
                if any(map(api.is_own, part)):
                    _compute_own(part, values, constants)
                    continue
                fed = {name: array for name, array in values.items() if name in read}
                if made and (weights := self._large_weights(part)) is not None:
                    values[made[0]] = self._product_in_parts(part[0], weights, fed, runners)
                elif made:
                    form = tuple([(name, array.shape) for name, array in fed.items()])
                    if form not in runners:
                        runners[form] = Detached(submodel(light, part, made, fed), self._proto)
                    values |= runners[form].run(fed)
                for name in values.keys() - read_later:
                    del values[name]
        for values in known:
            values |= {n: api.numbers_in(t) for n, t in constants.items() if n in wanted}
        return [{name: values[name] for name in wanted} for values in known]

    def _large_weights(self, part: Sequence[onnx.NodeProto]) -> onnx.TensorProto | None:
        """The matrix of the product that is all of `part`, if it is too large to be there whole."""
        if [node.op_type for node in part] != ["MatMul"] or part[0].domain:
            return None
        given, weights = part[0].input
        tensor = self._constants.get(weights)
        if tensor is None or given in self._constants or not api.is_outside(tensor):
            return None
        large = len(tensor.dims) == 2 and 4 * math.prod(tensor.dims) > _PART
        return tensor if large and tensor.data_type == TensorProto.FLOAT else None

    def _product_in_parts(
        self, node: onnx.NodeProto, weights: onnx.TensorProto, feeds: Mapping[str, Array],
        runners: dict[Hashable, Detached],
    ) -> Array:  # fmt: skip
        """The product by `weights`: the sum of those by some rows of them at a time."""
        given, light = feeds[node.input[0]], copied(self._light, initializer=())
        total: Any = 0
        for rows, values in api.pieces_in(weights, _PART // 16):
            part = np.ascontiguousarray(given[..., rows])
            fed = {node.input[0]: part, node.input[1]: values}
            if part.shape not in runners:
                made = submodel(light, [node], list(node.output), fed)
                runners[part.shape] = Detached(made, onnx.ModelProto(graph=made.graph))
            (more,) = runners[part.shape].run(fed).values()
            total = total + more
        return np.asarray(total)


def _compute_own(
    part: Iterable[onnx.NodeProto], values: dict[str, Array],
    constants: Mapping[str, onnx.TensorProto],
) -> None:  # fmt: skip
    """Add to `values` what a user's operators make of them."""
    for own in part:
        held = {n: api.numbers_in(constants[n]) for n in own.input if n in constants}
        operands = [held[n] if n in held else values[n] if n else None for n in own.input]
        try:
            results = api.compute_own(own, operands, constants, run_node)
        except api.OperatorFailed as mistake:
            raise ModelError(str(mistake)) from mistake
        values |= zip((name for name in own.output if name), results, strict=False)


_PART = 1 << 26
"""Bytes of weights that ONNX Runtime has at once, or those of one node."""
_NO_ARRAYS = ("Sequence", "SplitToSequence", "Optional")
"""How names of operators begin whose results cannot be handed from model to model."""


def _kernel_parts(light: onnx.ModelProto) -> Iterator[list[onnx.NodeProto]]:
    """Stretches of the nodes of ``light`` with as many weights as are held at once; a user's
    operators are stretches of their own."""
    held = {
        t.name: math.prod(t.dims) * helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
        for t in light.graph.initializer
        if t.data_location == TensorProto.EXTERNAL
    }
    whole = any(t.data_type == TensorProto.BFLOAT16 for t in light.graph.initializer)
    whole |= any(node.op_type.startswith(_NO_ARRAYS) for node in light.graph.node)
    part: list[onnx.NodeProto] = []
    used: set[str] = set()
    for node in light.graph.node:
        more = held.keys() & reads_of([node])
        full = not whole and sum(map(held.__getitem__, used | more)) > _PART
        if part and (full or api.is_own(node) or api.is_own(part[-1])):
            yield part
            part, used = [], set()
        part.append(node)
        used |= more
    yield part


def reads_of(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Names that `nodes` read, also inside of their subgraphs."""
    return names_read(onnx.GraphProto(node=nodes))


def submodel(
    light: onnx.ModelProto, part: Sequence[onnx.NodeProto], made: Sequence[str],
    feeds: Mapping[str, Array],
) -> onnx.ModelProto:  # fmt: skip
    """Nodes of ``light`` that give the values ``made``, as a model whose inputs are ``feeds``."""
    read = reads_of(part)
    graph = onnx.GraphProto(name=light.graph.name, node=part)
    graph.input.extend(port_of(name, array) for name, array in feeds.items())
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    graph.initializer.extend(t for t in light.graph.initializer if t.name in read)
    return onnx.ModelProto(
        ir_version=light.ir_version, opset_import=light.opset_import, functions=light.functions,
        graph=graph,
    )  # fmt: skip


def lacks_kernels(proto: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime knows the operators of ``proto``, but not in its element types."""
    try:
        _detached_session(detached(proto), proto)
    except native.NotImplemented:
        return True
    except (*api.RUNTIME_ERRORS, ValueError):
        return False  # said where the model is run
    return False


def _detached_session(
    light: onnx.ModelProto, proto: onnx.ModelProto
) -> Callable[[Sequence[str], Mapping[str, Array]], list[Array]]:
    """Runs ``light`` with the weights that ``proto`` has elsewhere. ONNX Runtime copies constants,
    so real numbers, which no kernel asks to be constant, are given as inputs, where they are."""
    outside = {t.name: t for t in light.graph.initializer if api.is_outside(t)}
    stored = (tensor for tensor in proto.graph.initializer if tensor.name in outside)
    weights = {t.name: np.ascontiguousarray(api.numbers_in(t)) for t in stored}
    fed = {name: values for name, values in weights.items() if values.dtype.kind == "f"}
    ports = {port.name for port in light.graph.input}
    light = copied(light, initializer=(t for t in light.graph.initializer if t.name not in fed))
    light.graph.input.extend(port_of(n, fed[n]) for n in fed if n not in ports)
    options = api.session_options()
    options.add_session_config_entry("session.disable_prepacking", "1")  # a copy for one run
    held = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(weights[name], t.data_type)
        for name, t in outside.items()
        if name not in fed
    }
    options.add_external_initializers(list(held), list(held.values()))
    session = onnxruntime.InferenceSession(
        with_exact_products(light).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda names, feeds: session.run(names, {**fed, **feeds})


def check_declared(
    proto: onnx.ModelProto, compiled: Mapping[str, Sequence[int]], values: Mapping[str, Array]
) -> None:
    """Raises ``ModelError`` where outputs were `compiled` in the shapes that the file declares and
    have others in truth: those of ``values``, which ONNX Runtime made."""
    wrong = []
    for output in proto.graph.output:
        declared = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
        real = list(np.shape(values[output.name]))
        if declared == list(compiled.get(output.name, ())) != real:
            wrong.append(
                f"the file declares {output.name!r} as {declared}, ONNX Runtime makes {real} of "
                "the seeded sample; a shape that depends on data cannot be compiled"
            )
    if wrong:
        raise ModelError(*wrong)


def cached_reference(
    proto: onnx.ModelProto, key: str, inputs: Mapping[str, Array], cache_dir: Path,
    intermediates: Sequence[str] = (),
) -> dict[str, Array]:  # fmt: skip
    """``run_reference``, remembered in ``cache_dir`` by ``key`` (the model's content key), the
    inputs' content, names and the version of ONNX Runtime. Where operators are a user's, whose
    functions are not in that key, nothing is remembered."""
    if any(map(api.is_own, proto.graph.node)):
        return run_reference(proto, inputs, intermediates)
    what = f"{key} {onnxruntime.__version__} exact products {content_key(inputs)}"
    what += "".join(f" {name}" for name in intermediates)
    digest = hashlib.sha256(what.encode()).hexdigest()[:32]
    path = cache_dir / f"reference-{digest}.npz"
    packed = cached_file(path, lambda: _pack_arrays(run_reference(proto, inputs, intermediates)))
    with np.load(BytesIO(packed), allow_pickle=False) as stored:
        return {str(name): stored[str(index)] for index, name in enumerate(stored["names"])}


def run_node(model: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Runs a small serialized model on ``inputs`` in the order of its graph inputs; its session
    is kept, so repeated runs of one node are cheap.

    Raises ``HostFailed`` where it fails, as at an index that is out of range.
    """
    with step("running an operator on the host"):
        return _node_runner(model)(inputs)


def _refused(proto: onnx.ModelProto, why: BaseException) -> str:
    """That ONNX Runtime cannot run a model: at which node, where it says that, and the reason."""
    found = _failed_at(why)
    if found is None:
        return f"ONNX Runtime cannot run {proto.graph.name!r}: {why}"
    kind, name, reason = found
    nodes = [called(n) for n in proto.graph.node if (n.name, n.op_type) == (name, kind)]
    which = " or ".join(nodes[:3]) or f"node {name!r} ({kind})"
    return f"{proto.graph.name}: ONNX Runtime cannot run {which}: {reason}"


def _failure(why: BaseException, what: str) -> str:
    """That a payload, which `what` calls, fails: at which node, where ONNX Runtime says that, and
    the reason without its sources."""
    found = _failed_at(why)
    if found is None:
        return f"{what}: {why}"
    kind, name, reason = found
    return f"node {name!r} ({kind}) on the host: {reason}"


def _failed_at(why: BaseException) -> tuple[str, str, str] | None:
    """Type and name of the node at which ONNX Runtime gives up, and the reason."""
    found = re.search(
        r"running (\w+) node\. Name:'([^']*)' Status Message: (.*)", str(why), re.DOTALL
    )
    if found is None:
        return None
    kind, name, reason = found.groups()
    return kind, name, " ".join(_SOURCE.sub("", reason).split())


_SOURCE = re.compile(r"^\S+\.(?:cc|h):\d+ .*\) (?:\[with [^\]]*\] )?")
"""Where in its own code ONNX Runtime gives up."""
_NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
"""Real values may be stored in another precision than the model computes in."""


def content_key(arrays: Mapping[str, Array]) -> str:
    """SHA-256 (hex) of names, shapes, types and bytes of ``arrays``, in any order."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return digest.hexdigest()


def _pack_arrays(values: Mapping[str, Array]) -> bytes:
    # Positions as keys: a value's name may hold any character, a zip entry's may not.
    plain = {
        str(index): array.astype(str) if array.dtype.hasobject else array
        for index, array in enumerate(values.values())
    }
    file = BytesIO()
    np.savez(file, allow_pickle=False, names=np.array(list(values), dtype=str), **plain)
    return file.getvalue()


# Sessions.


@lru_cache(maxsize=512)
def _node_runner(model: bytes) -> Callable[[Sequence[Array]], list[Array]]:
    """ONNX Runtime, or ONNX's own evaluator where it has no kernel."""
    exact = serialized_with_exact_products(model)
    ports: dict[str, Any]
    what = "ONNX Runtime fails on the host"
    compute: Callable[[Mapping[str, Array]], list[Array]]
    try:
        session = onnxruntime.InferenceSession(
            exact, api.session_options(), providers=["CPUExecutionProvider"]
        )
        ports = {port.name: _NUMPY_TYPES.get(port.type) for port in session.get_inputs()}
        compute = partial(session.run, None)
    except api.RUNTIME_ERRORS as why:
        if is_refusal(why):
            raise
        if not api.lacks_kernel(why):
            raise NoPayload(f"a payload is no model for ONNX Runtime: {why}") from why
        proto = onnx.load_model_from_string(model)
        types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
        ports = {name: helper.tensor_dtype_to_np_dtype(kind) for name, kind in types.items()}
        names = [value.name for value in proto.graph.output]
        what = f"payload of {', '.join(node.op_type for node in proto.graph.node)}"
        compute = partial(api.evaluated, api.evaluator(proto), names)

    def run(inputs: Sequence[Array]) -> list[Array]:
        if len(inputs) != len(ports):
            raise NoPayload(f"a payload of {len(ports)} inputs is given {len(inputs)}")
        feeds = {
            name: np.asarray(array, kind or array.dtype)
            for (name, kind), array in zip(ports.items(), inputs, strict=True)
        }
        try:
            return compute(feeds)
        except (*api.RUNTIME_ERRORS, ValueError) as why:
            if is_refusal(why):
                raise
            raise HostFailed(_failure(why, what)) from why

    return run


# Inputs.

_SMALL_INTEGERS = 8


def sample_inputs(proto: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Seeded inputs for ``proto``, whose input shapes are fixed, by the role of each.

    Data are standard normal, bytes uniform over their range, other integers below 8; a state is
    normal with deviation 1/2, so that what reads it is checked; indices are uniform over what every
    operator that indexes by them can take; masks hide nothing; of parameters, sizes are 1 and
    lists positive. `archgen.models.roles.kinds.Fill` has all of it.
    """
    return sample_sets(proto, [seed])[0]


def sample_sets(proto: onnx.ModelProto, seeds: Iterable[int]) -> list[dict[str, Array]]:
    """What `sample_inputs` gives for each of ``seeds``; the roles of inputs are told once."""
    told = infer_roles(proto)
    return [_samples(told, seed) for seed in seeds]


def _samples(told: InferredRoles, seed: int) -> dict[str, Array]:
    samples: dict[str, Array] = {}
    for name, port in told.inputs.items():
        dtype = helper.tensor_dtype_to_np_dtype(port.elem_type)
        shape = [extent if isinstance(extent, int) else 0 for extent in port.dims]
        # Seeded by its name too, so an input keeps its values when others come or go.
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if dtype.kind == "O":
            samples[name] = np.full(shape, "text", dtype)
        else:
            samples[name] = np.asarray(_sample(told.roles[name], dtype, shape, random)).astype(
                dtype
            )
    return samples


def _sample(
    role: Role, dtype: np.dtype[Any], shape: Sequence[int], random: np.random.Generator
) -> Any:
    """Numbers for an input, to be rounded to its type."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    if dtype.kind == "b" or role.fill == "ones":
        return np.ones(shape, dtype)
    if role.fill == "zeros":
        return np.zeros(shape, dtype)
    if role.fill == "range":
        low, high = role.low, role.high
        if limits is not None:
            low, high = max(low, int(limits.min)), min(high, int(limits.max))
        return random.integers(low, high, shape, endpoint=True)
    if role.fill == "positive":
        if limits is not None:
            return random.integers(1, _SMALL_INTEGERS, shape)
        return 1 - random.uniform(0, 0.5, shape)
    if limits is None:
        return random.standard_normal(shape) * (0.5 if role.fill == "small noise" else 1.0)
    if dtype.itemsize == 1:
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return random.integers(0, _SMALL_INTEGERS, shape)


# Products of bytes that ONNX Runtime adds up without loss, whichever processor it runs on. On a
# processor without VNNI its kernels for unsigned by signed bytes add each two neighbouring products
# in 16 bits, where 2 * 255 * 127 saturates. Its kernels for unsigned bytes do not. So a signed
# operand beside an unsigned one becomes unsigned: 128 more, as is its zero point.

_OPERANDS: dict[str, tuple[int | None, tuple[tuple[int, int], ...]]] = {
    "MatMulInteger": (0, ((1, 3),)),
    "ConvInteger": (1, ((0, 2),)),  # its product has the weights on the left
    "QLinearMatMul": (0, ((3, 5),)),
    "QLinearConv": (0, ((3, 5),)),
    "QGemm": (0, ((3, 5),)),
    "MatMulIntegerToFloat": (0, ((1, 5),)),
    "QAttention": (0, ((1, 7),)),
    "DynamicQuantizeMatMul": (None, ((1, 3),)),
    "DynamicQuantizeLSTM": (None, ((1, 9), (2, 11))),
}
"""By operator: the left operand, None where the operator makes unsigned bytes itself; and the right
ones, each with its zero point."""
_MORE = 128


def serialized_with_exact_products(model: bytes) -> bytes:
    """The same for a serialized `model`; what is none stays as it is."""
    if not any(name.encode() in model for name in _OPERANDS):
        return model
    try:
        proto = onnx.load_model_from_string(model)
    except DecodeError:
        return model  # ONNX Runtime says so
    exact: bytes = with_exact_products(proto).SerializeToString()
    return exact


def with_exact_products(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` without products of unsigned by signed bytes; `proto` itself where it has none."""
    nodes = (node for graph in all_graphs(proto.graph) for node in graph.node)
    if not any(node.op_type in _OPERANDS for node in nodes):
        return proto
    try:
        exact = shape_inference.infer_shapes(proto)
    except shape_inference.InferenceError:
        return proto  # ONNX Runtime says what is wrong
    _make_exact(exact.graph, {})
    return exact


def _make_exact(graph: onnx.GraphProto, outside: Mapping[str, int]) -> None:
    """Rewrite the nodes of `graph`, which reads values of the element types `outside`."""
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {**outside, **{value.name: value.type.tensor_type.elem_type for value in values}}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in bodies(node):
            _make_exact(body, types)
        left, right = _OPERANDS.get(node.op_type, (None, ()))
        read = dict(enumerate(types.get(name) for name in node.input))
        unsigned = left is None or read.get(left) == TensorProto.UINT8
        for value, zero in right:
            if unsigned and read.get(value) == TensorProto.INT8:
                nodes += _shifted(graph, node, value)
                nodes += _shifted(graph, node, zero)
        nodes.append(node)
    graph.ClearField("node")
    graph.node.extend(nodes)


def _shifted(graph: onnx.GraphProto, node: onnx.NodeProto, position: int) -> list[onnx.NodeProto]:
    """Nodes that make an operand of `node`, which reads theirs instead, unsigned."""
    node.input.extend([""] * (position + 1 - len(node.input)))
    read, name = node.input[position], f"{node.output[0]}__unsigned{position}"
    node.input[position] = name
    if not read:
        graph.initializer.append(numpy_helper.from_array(np.array(_MORE, np.uint8), name))
        return []
    graph.initializer.append(numpy_helper.from_array(np.array(_MORE, np.int32), f"{name}.more"))
    return [
        helper.make_node("Cast", [read], [f"{name}.wide"], to=TensorProto.INT32),
        helper.make_node("Add", [f"{name}.wide", f"{name}.more"], [f"{name}.sum"]),
        helper.make_node("Cast", [f"{name}.sum"], [name], to=TensorProto.UINT8),
    ]
