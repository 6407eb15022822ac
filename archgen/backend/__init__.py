"""archgen as a backend of ONNX: `onnx.backend.base.Backend` on any architecture, as its tools and
tests call it.

import archgen.backend as backend
outputs = backend.prepare(model).run([x])                 # on the machine of ONNX's node tests
edge = backend.on("ascend-310-like", dtype="fp16")        # on another one
tests = onnx.backend.test.BackendTest(edge, __name__).include("test_relu").test_cases

The one idea: a backend is a class, as ONNX wants it, with a machine and choices of the compiler on
it; `on` makes one. ONNX tells shapes and parameters at the first `run`, a program knows them when
it is compiled; so a representation compiles when it runs, fast rather than for speed, and keeps a
program for each. Some inputs are no data but decide what is computed: shapes, axes, scales. They
are taken as constants, with the values of each run. Which inputs these are is told by their roles
(`archgen.models.roles`): short lists and single numbers that are parameters; and by the compiler,
where it refuses a model for want of numbers. Where no machine is named it is `onnx-nodes.yaml`,
which multiplies in fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from archgen.api import compile_model, execute
from archgen.check.reference import content_key
from archgen.models.load import ModelError, SourceModel, check_proto
from archgen.models.roles import infer_roles
from archgen.process.files import Recent
from archgen.schema import load_arch
from archgen.schema.load import locate
from archgen.zoo.shapes import copied, port_of
from compiler import api
from simmodel.arch.dtype import Array
from simmodel.arch.record import Arch
from simmodel.program.program import Program

__all__ = [
    "ArchBackend", "Representation", "is_compatible", "on", "prepare", "run_model", "run_node",
    "supports_device",
]  # fmt: skip

Inputs = Mapping[str, Any] | Sequence[Any] | Array
"""Arrays by name, in the order of the model's inputs, or the only one."""

_KEPT = 32
"""Programs that a representation keeps."""


class Representation(BackendRep):
    """A model on a machine, from `Backend.prepare`."""

    def __init__(self, model: onnx.ModelProto, arch: Arch, options: Mapping[str, Any]) -> None:
        self.model = model
        self.arch = arch
        self.options = options
        self.constant = _parameters(model)
        """Names of inputs whose values are compiled in; grows where the compiler needs more."""
        self._programs = Recent[Program](_KEPT)

    def run(self, inputs: Inputs, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in order, also by name (`outputs["y"]`), computed by the program's instructions.

        Raises ModelError for inputs that are not the model's, and CompilerError with why there is
        no program. ONNX's interface has `kwargs`; a backend knows none.
        """
        del kwargs
        feeds = self._feeds(inputs)
        program = self._program(feeds)
        given = {port.name: feeds[port.name] for port in program.inputs}
        results = execute(program, given, self.arch)
        values: dict[str, Array] = {}
        for port in self.model.graph.output:  # a machine may compute with a wider type
            kind, made = port.type.tensor_type.elem_type, results[port.name]
            wanted = helper.tensor_dtype_to_np_dtype(kind) if kind else made.dtype
            values[port.name] = made.astype(wanted, copy=False)
        outputs: tuple[Any, ...] = namedtupledict("Outputs", list(values))(*values.values())
        return outputs

    def program(self, inputs: Inputs) -> Program:
        """What `run` would execute: for `archgen.simulate`, to be printed or measured."""
        return self._program(self._feeds(inputs))

    def _program(self, feeds: Mapping[str, Array]) -> Program:
        while True:
            try:
                return self._programs.get(self._key(feeds), lambda: self._compiled(feeds))
            except api.Undecided as why:
                self.constant |= self._further(why, feeds)

    def _compiled(self, feeds: Mapping[str, Array]) -> Program:
        bound = _bind_inputs(self.model, feeds, self._constant_in(feeds))
        source = SourceModel(self.model.graph.name or "model", bound)
        return compile_model(source, self.arch, **self.options)

    def _further(self, why: api.Undecided, feeds: Mapping[str, Array]) -> set[str]:
        """More inputs to be constants, parameters first; raises `why` where none are left."""
        taken = self._constant_in(feeds)
        for group in why.inputs:
            more = {name for name in group if name in feeds} - taken
            if more:
                return more
        raise why

    def _constant_in(self, feeds: Mapping[str, Array]) -> set[str]:
        """An array without elements has nothing to wait for; and what replaces an initializer is a
        constant as well."""
        given = {tensor.name for tensor in self.model.graph.initializer}
        empty = {name for name, array in feeds.items() if array.size == 0}
        return {name for name in feeds if name in self.constant | given | empty}

    def _key(self, feeds: Mapping[str, Array]) -> str:
        taken = self._constant_in(feeds)
        values = content_key({name: feeds[name] for name in taken})
        shapes = {name: feeds[name].shape for name in sorted(feeds.keys() - taken)}
        return f"{values} {shapes}"

    def _feeds(self, inputs: Inputs) -> dict[str, Array]:
        """Each input as an array of its type, by name; ModelError with all that is wrong."""
        ports = {value.name: value for value in self.model.graph.input}
        given = _inputs_by_name(
            inputs, ports, {tensor.name for tensor in self.model.graph.initializer}
        )
        feeds: dict[str, Array] = {}
        wrong: list[str] = []
        for name, value in given.items():
            array, mistake = _checked_array(value, ports[name])
            feeds[name] = array
            wrong += [mistake] if mistake else []
        if wrong:
            raise ModelError(*wrong)
        return feeds


def refuse(model: onnx.ModelProto) -> None:
    """Raises ModelError or UnsupportedModel for a model that no values of inputs could make run."""
    label = f"model {model.graph.name!r}"
    check_proto(model, label)
    api.refuse_unknown_operators(model, label)
    if found := api.other_ports(model.graph):
        raise api.UnsupportedModel(f"{label}: " + "; ".join(found))


def _parameters(model: onnx.ModelProto) -> set[str]:
    """Inputs that are parameters, at most lists, and the first operand of no node."""
    told = infer_roles(model)
    data = {node.input[0] for node in model.graph.node if node.input}
    return {
        name
        for name, role in told.roles.items()
        if role.kind == "parameter" and len(told.inputs[name].dims) <= 1 and name not in data
    }


def _bind_inputs(
    model: onnx.ModelProto, feeds: Mapping[str, Array], constant: Iterable[str]
) -> onnx.ModelProto:
    """`model` for inputs of these shapes; those in `constant` become initializers."""
    fixed = set(constant)
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in fixed]
    kept += [numpy_helper.from_array(feeds[name], name) for name in sorted(fixed)]
    ports = [value for value in model.graph.input if value.name not in fixed]
    proto = copied(model, initializer=kept, input=ports, value_info=())
    for value in proto.graph.input:
        if value.name in feeds:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, feeds[value.name].shape))
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return proto


def _inputs_by_name(
    inputs: Inputs, ports: Mapping[str, onnx.ValueInfoProto], initialized: set[str]
) -> dict[str, Any]:
    """Inputs by name; ModelError where some are missing or too many."""
    wanted = [name for name in ports if name not in initialized]
    if isinstance(inputs, Mapping):
        given = dict(inputs)
    else:
        values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        names = list(ports) if len(values) == len(ports) else wanted
        if len(values) != len(names):
            raise ModelError(f"{len(values)} inputs are given; the model has {len(names)}: "
                             f"{', '.join(names) or 'none'}")  # fmt: skip
        given = dict(zip(names, values, strict=True))
    missing = [f"input {name!r} is missing" for name in wanted if name not in given]
    unknown = [f"the model has no input {name!r}" for name in given if name not in ports]
    if missing or unknown:
        raise ModelError(*missing, *unknown)
    return given


def _checked_array(value: Any, port: onnx.ValueInfoProto) -> tuple[Array, str]:
    """A value as an array, and what is wrong with it."""
    wanted = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    array = np.asarray(value, None if isinstance(value, np.ndarray | np.generic) else wanted)
    if array.dtype != wanted and not array.dtype.kind == wanted.kind == "O":
        return array, f"input {port.name!r} has elements of {array.dtype}, expected {wanted}"
    dims = port.type.tensor_type.shape.dim
    has_shape = port.type.tensor_type.HasField("shape")
    differs = len(dims) != array.ndim or any(
        dim.HasField("dim_value") and dim.dim_value not in (-1, extent)
        for dim, extent in zip(dims, array.shape, strict=False)
    )
    if has_shape and differs:
        shown = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]
        return array, f"input {port.name!r} has shape {list(array.shape)}, expected {shown}"
    return array, ""


DEFAULT = Path(__file__).parent / "onnx-nodes.yaml"
"""A machine that multiplies in fp32, so that networks run as they are written."""
_OWN = "CPU"
"""What ONNX's tests call the device of a backend that has no CUDA: here its own machine."""
_TOLERANCES = ("rtol", "atol")
"""What BackendTest's `test_kwargs` are for; they reach `prepare` as well."""


class ArchBackend(Backend):
    """Runs ONNX models on `machine`, or on the one that a device names."""

    machine: ClassVar[str | Arch] = str(DEFAULT)
    """Path or shipped name of an architecture file, or what `archgen.load_arch` gave."""
    options: ClassVar[Mapping[str, Any]] = {"effort": 0, "fusion": "none"}
    """Keywords of `archgen.compile_model`: dtype, host, calibration, choices of schedules."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is `CPU`, the machine of this backend, or names an architecture."""
        return device == _OWN or locate(device)[1] is None

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = _OWN, **kwargs: Any) -> bool:
        """Whether `prepare` takes `model`. Shapes and parameters are looked at when it runs."""
        try:
            cls.prepare(model, device, **kwargs)
        except (api.CompilerError, ModelError):
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = _OWN, **kwargs: Any) -> Representation:
        """`model` to be run on `device`.

        Args:
            model: with all its data; dimensions of inputs may be free.
            device: `CPU` for the machine of this backend, or an architecture's name or file.
            kwargs: keywords of `archgen.compile_model`, before those of the backend. `rtol` and
                `atol`, by which ONNX's tests compare results, are nothing to a backend.

        Raises:
            ModelError: it is damaged or too new.
            UnsupportedModel: operators that nobody knows, or inputs that are no tensors of numbers.
            ArchError: there is no such architecture.
        """
        refuse(model)
        given = {name: value for name, value in kwargs.items() if name not in _TOLERANCES}
        return Representation(model, cls._arch(device), {**cls.options, **given})

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Inputs, device: str = _OWN, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Outputs of `model`, which is run once; arguments as of `prepare` and `run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Inputs, device: str = _OWN,
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None, **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Outputs of one node.

        Args:
            node: of an operator that ONNX defines, or ONNX Runtime.
            inputs: values of the inputs that have names.
            device: as of `prepare`.
            outputs_info: element types and shapes, which are inferred in any case.
            kwargs: as of `prepare`, and `opset_version` (default: the newest that ONNX knows).
        """
        del outputs_info
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = list(dict.fromkeys(filter(None, node.input)))
        arrays = {n: np.asarray(v) for n, v in zip(names, _listed(inputs), strict=True)}
        ports = [port_of(name, array) for name, array in arrays.items()]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], node.op_type, ports, results)
        imports = [helper.make_opsetid("", version)]
        if node.domain not in ("", "ai.onnx"):
            imports.append(helper.make_opsetid(node.domain, 1))
        model = helper.make_model(graph, opset_imports=imports)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def _arch(cls, device: str) -> Arch:
        named = cls.machine if device == _OWN else device
        return named if isinstance(named, Arch) else _cached_arch(named)


def on(arch: str | PathLike[str] | Arch, **options: Any) -> type[ArchBackend]:
    """The backend of an architecture: a shipped name, a file, or what `archgen.load_arch` gave.
    `options` are keywords of `archgen.compile_model`, such as `dtype`, `host` and `effort`."""
    machine = arch if isinstance(arch, Arch) else fspath(arch)
    members = {"machine": machine, "options": {**ArchBackend.options, **options}}
    return type("ArchBackend", (ArchBackend,), {**members, "__doc__": f"Runs ONNX on {arch}."})


_cached_arch = cache(load_arch)


def _listed(inputs: Inputs) -> Sequence[Any]:
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return inputs if isinstance(inputs, list | tuple) else [inputs]


is_compatible = ArchBackend.is_compatible
prepare = ArchBackend.prepare
run_model = ArchBackend.run_model
run_node = ArchBackend.run_node
supports_device = ArchBackend.supports_device
