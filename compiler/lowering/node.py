"""One model node during lowering: attributes with defaults, tensors by position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.frontend.quantization.narrow_constants import narrow_of
from compiler.frontend.rewrite import UNIT, lazy, terms_of
from compiler.passes import Count
from compiler.tensor_ir.build import NestGraphBuilder, reshaped
from compiler.tensor_ir.nest import Array, Tensor
from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.arch.element_types import WIDER, widened
from simmodel.arch.lazy_array import LazyArray, cast


@dataclass(frozen=True)
class LoweringLimits:
    """Limits beyond which operators are lowered otherwise, or left to the host."""

    runs: Count = 32
    """Copies into which a choice of positions may fall; with more it is left to the host."""
    longest: Count = 1 << 14
    """Elements that one result may be reduced from at once, as a tile holds all of them; with more
    it is made of partial results."""
    compared: Count = 8
    """Positions that a place of Gather may be compared with for each element that is read or made,
    where copy engines take no list of rows or are slower; with more it is left to the host."""


class NoNest(Exception):
    """This node has no nests; the text says why. It runs on the host."""


@dataclass(frozen=True)
class Node:
    """A node of the prepared graph together with the builder that its nests go to."""

    node: ir.Node
    build: NestGraphBuilder
    limits: LoweringLimits

    @property
    def op(self) -> str:
        return self.node.op_type

    def attribute(self, name: str, default: Any = None) -> Any:
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def has(self, position: int) -> bool:
        return position < len(self.node.inputs) and self.node.inputs[position] is not None

    def value(self, position: int) -> ir.Value:
        """Input `position` as onnx-ir has it."""
        value = self.node.inputs[position]
        if value is None:
            raise NoNest(f"{self.op} without input {position}")
        return value

    def numbers(self, position: int) -> LazyArray | None:
        """Constant data of input `position`, or None when it is computed or missing."""
        return numbers_of(self.value(position)) if self.has(position) else None

    def data(self, position: int) -> Array | None:
        """The same, made."""
        found = self.numbers(position)
        return None if found is None else np.asarray(found)

    def constant(self, position: int) -> Array:
        """Constant data of input `position`; NoNest without it."""
        found = self.data(position)
        if found is None:
            raise NoNest(f"{self.op} whose input {position} is not constant")
        return found

    def tensor(self, position: int, dtype: str | None = None) -> Tensor:
        """Input `position`; a constant is converted to element type `dtype`."""
        value = self.value(position)
        data = self.numbers(position)
        if data is not None:
            numbers, name = cast(data, numpy_type(value)), str(value.name)
            narrow = None if dtype is not None else narrow_of(value)
            return self.build.constant(name, numbers, dtype, uncertain(value), narrow)
        return self.build.tensors[str(value.name)]

    @property
    def out(self) -> str:
        """Name of the first result."""
        return str(self.node.outputs[0].name)

    def shape(self, position: int = 0) -> tuple[int, ...]:
        return nest_shape(self.node.outputs[position])

    def dtype(self, position: int = 0) -> str:
        """Element type in memory of result `position`."""
        return self.build.stored(numpy_type(self.node.outputs[position]))

    def compose(self) -> None:
        """Keep the nests of this node together: it is a composite, if it is no part of one."""
        self.build.composite = self.build.composite or self.out

    def number(self, part: str, value: Any, dtype: str | None = None) -> Tensor:
        """A constant called after the result and its `part`; real ones are of fp32."""
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        return self.build.constant(f"{self.out}.{part}", array, dtype)

    def step(
        self, part: str, function: str, *operands: Tensor, dtype: str | None = None, **fields: Any
    ) -> Tensor:
        """function(operands), broadcast, called after the result and its `part` (empty: the
        result), by default of the result's type; `fields` as of `NestGraphBuilder.elementwise`."""
        name = f"{self.out}.{part}" if part else self.out
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        return self.build.elementwise(
            name, shape, function, operands, dtype or self.dtype(), **fields
        )

    def split_axis(self, x: Tensor, axis: int, parts: int, name: str) -> Tensor:
        """A view of `x` with an axis as `parts` times the rest of it."""
        shape = (*x.shape[:axis], parts, x.shape[axis] // parts, *x.shape[axis + 1 :])
        return self.build.view(name, x, reshaped(*shape))


def numbers_of(value: ir.Value) -> LazyArray | None:
    """Constant data of a value, or None when it is computed."""
    return None if value.const_value is None else lazy(value.const_value)


def uncertain(value: ir.Value) -> Array | float:
    """Error of a constant, if terms were added up for it while compiling."""
    return UNIT * terms_of(value)


def nest_shape(value: ir.Value) -> tuple[int, ...]:
    """Shape of a value; NoNest if it is not static."""
    if value.shape is None or not all(isinstance(n, int) for n in value.shape):
        raise NoNest(f"{value.name} has no static shape")
    return tuple(int(n) for n in value.shape)  # type: ignore[arg-type]


def numpy_type(value: ir.Value) -> np.dtype[Any]:
    """numpy element type of a value's arithmetic: its own, or one that represents its numbers if
    its own is storage only; NoNest if it is unknown or no memory stores it."""
    own = NUMPY[port_type(value)]
    return own if NAMES[own] not in WIDER else NUMPY[widened(NAMES[own])[0]]


def port_type(value: ir.Value) -> str:
    """Element type of a value by its own name; NoNest if it is unknown or no memory stores it."""
    if value.dtype is None:
        raise NoNest(f"{value.name} has no element type")
    dtype = np.dtype(value.dtype.numpy())
    if dtype not in NAMES:
        stored = ", ".join(name for name in NAMES.values() if name not in WIDER)
        raise NoNest(
            f"{value.name} has elements of type {value.dtype.name}; memories store {stored}"
        )
    return NAMES[dtype]


Lowering = Callable[[Node], None]
