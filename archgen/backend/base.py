"""`onnx.backend.base.Backend` for a machine: what ONNX's tools and tests call.

The one idea: a backend is a class, as ONNX wants it, with a machine and choices of the compiler on
it; `on` makes one. Programs are compiled fast rather than for speed, as a backend gives values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend

from archgen.backend.representation import Inputs, Representation, refuse
from archgen.models.load import ModelError
from archgen.schema import load_arch
from archgen.schema.extends import locate
from compiler.api import CompilerError
from simmodel.arch.record import Arch

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
        except (CompilerError, ModelError):
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
        cls,
        node: onnx.NodeProto,
        inputs: Inputs,
        device: str = _OWN,
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
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
        ports = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays.items()
        ]
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
    """The backend of an architecture.

    Args:
        arch: a shipped name, a file, or what `archgen.load_arch` gave.
        options: keywords of `archgen.compile_model`, such as `dtype`, `host` and `effort`.
    """
    machine = arch if isinstance(arch, Arch) else fspath(arch)
    members = {"machine": machine, "options": {**ArchBackend.options, **options}}
    return type("ArchBackend", (ArchBackend,), {**members, "__doc__": f"Runs ONNX on {arch}."})


@cache
def _cached_arch(name: str) -> Arch:
    return load_arch(name)


def _listed(inputs: Inputs) -> Sequence[Any]:
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return inputs if isinstance(inputs, list | tuple) else [inputs]
