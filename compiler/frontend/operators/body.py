"""The builder in whose words the body of an operator is written: `b`.

    y = b.Mul(x, b.Sigmoid(x * 1.702))           a node for each call, named as ONNX names it
    hs, h = b.scan(step, [h], [xs])              steps one after another, as many as xs has rows

Every value has its shape and its type from the moment it is made, so a body is plain Python: loops
and conditions over shapes, attributes and constants unfold while it runs. Numbers stand for
constants of the type that the operator's definition asks for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from compiler.frontend.canonicalize.fold_constants import folded
from compiler.frontend.reference_types import SMALL
from compiler.frontend.rewrite import TERMS, AttrValue, Rewriter, const, static_shape
from compiler.frontend.shapes import STANDARD_RULES, schema_of

Array = np.ndarray[Any, np.dtype[Any]]


def _sign(op_type: str, order: int = 1) -> Callable[[Tensor, Operand], Tensor]:
    """What an operator sign makes; of the other side's value first where `order` is -1."""
    return lambda self, other: self.body.one(op_type, *(self, other)[::order])


class Tensor:
    """A value of a body: what an operator reads or makes. `a + b`, `a * 2`, `a @ b` and the like
    are ONNX's Add, Mul and MatMul."""

    __array_ufunc__ = None
    """An array beside an operator sign is an operand, not in charge."""

    def __init__(self, body: Body, value: ir.Value) -> None:
        self.body = body
        self.ir = value
        """The value in the graph."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return static_shape(self.ir)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type, as numpy names it."""
        if self.ir.dtype is None:
            raise ValueError(f"type of {self.ir.name} is unknown")
        return np.dtype(self.ir.dtype.numpy())

    @property
    def value(self) -> Array | None:
        """The numbers of a constant; None where they are computed while the network runs."""
        return const(self.ir)

    __add__, __radd__ = _sign("Add"), _sign("Add", -1)
    __sub__, __rsub__ = _sign("Sub"), _sign("Sub", -1)
    __mul__, __rmul__ = _sign("Mul"), _sign("Mul", -1)
    __truediv__, __rtruediv__ = _sign("Div"), _sign("Div", -1)
    __matmul__ = _sign("MatMul")

    def __neg__(self) -> Tensor:
        return self.body.one("Neg", self)

    def __repr__(self) -> str:
        return f"{self.ir.name}: {self.dtype}{list(self.shape)}"


Operand = Tensor | float | Sequence[float] | Array
"""What an operator reads: a value of the body, or numbers that become a constant."""
Step = Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]]
"""What `scan` repeats: from states and elements to the next states and results."""


class NodesBehind(Rewriter):
    """Puts nodes behind the one that they replace, where the walk of the loader meets them."""

    def __init__(self, anchor: ir.Node, composite: str | None = None) -> None:
        super().__init__(anchor, composite=composite)
        self.made: list[ir.Node] = []

    def insert(self, node: ir.Node) -> None:
        """Behind what was inserted last."""
        node.version = self.graph.opset_imports[""]
        self.graph.insert_after(self.made[-1] if self.made else self.anchor, node)
        self.made.append(node)


@dataclass
class Unfolding:
    """Operators into which the scans and loops of one network may unfold, all together."""

    most: int

    def __post_init__(self) -> None:
        self.left = self.most

    def take(self, steps: int, operators: int) -> None:
        """Count the `operators` of all `steps` of one scan; Declined where they are too many."""
        if operators > self.left:
            rest = "" if self.left == self.most else f", of which {self.left} are left"
            raise Declined(
                f"its {steps} steps have {operators} operators, those of a network unfold into at "
                f"most {self.most}{rest} (load: unroll)"
            )
        self.left -= operators


class Body:
    """Makes the nodes that stand for one node; operators of `domain=""` are those of opset 21, or
    of the model's own where that is newer."""

    def __init__(self, node: ir.Node, unfolding: Unfolding | None = None) -> None:
        self._make = NodesBehind(node)
        self._unfolding = unfolding or Unfolding(sys.maxsize)
        self._unfolded = 0
        self._constants: dict[tuple[object, ...], Tensor] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(f"a builder has no {op_type!r}; operators are spelled as in ONNX")
        return partial(self.op, op_type)

    @property
    def node(self) -> ir.Node:
        """The node that is replaced."""
        return self._make.anchor

    def op(
        self, op_type: str, *inputs: Operand | None, domain: str = "", outputs: int = 1,
        out: tuple[ir.DataType, Sequence[int]] | None = None,
        **attributes: AttrValue | np.dtype[Any] | type | None,
    ) -> Any:  # fmt: skip
        """A node of any operator: its result, a list of them where `outputs` is above 1.

        Attributes that are None are left out; a numpy type says an element type; `out` states type
        and shape where no standard rule gives them. Raises ValueError where inputs or attributes
        contradict the operator's definition.
        """
        version = self._make.graph.opset_imports.get(domain, 1)
        schema = schema_of(op_type, domain, version)
        if schema is None and not domain and op_type not in STANDARD_RULES:
            raise ValueError(f"ONNX has no operator {op_type!r}")
        read = self._input_values(schema, inputs)
        while read and read[-1] is None:
            read.pop()
        said: dict[str, Any] = {
            name: int(ir.DataType.from_numpy(np.dtype(value)))
            if isinstance(value, np.dtype | type) else value
            for name, value in attributes.items() if value is not None
        }  # fmt: skip
        node = self._make.node(op_type, read, said, domain, outputs, out)
        results = self._folded(node) or [Tensor(self, value) for value in node.outputs]
        return results[0] if outputs == 1 else results

    def one(self, op_type: str, *inputs: Operand | None, **attributes: Any) -> Tensor:
        """As `op`, of an operator with one result."""
        made: Tensor = self.op(op_type, *inputs, **attributes)
        return made

    def constant(self, numbers: object, dtype: object = np.float32) -> Tensor:
        """Numbers as a value of element type `dtype`; equal ones are one constant."""
        array = np.asarray(numbers, dtype=np.dtype(dtype))  # type: ignore[call-overload]
        if array.size > SMALL:
            return Tensor(self, self._make.constant(array))
        key = (array.tobytes(), array.dtype, array.shape)
        if key not in self._constants:
            self._constants[key] = Tensor(self, self._make.constant(array))
        return self._constants[key]

    def _folded(self, node: ir.Node) -> list[Tensor] | None:
        """Constants in place of `node`, which was made last, where it reads nothing else."""
        found = folded(node, self._make.graph.opset_imports)
        if found is None:
            return None
        self._make.graph.remove(self._make.made.pop(), safe=True)
        made = [self._make.constant(each.values) for each in found]
        for value, each in zip(made, found, strict=True):
            value.meta[TERMS] = each.terms
        return [Tensor(self, value) for value in made]

    def cast(self, x: Tensor, dtype: np.dtype[Any] | type) -> Tensor:
        """`x` in another element type; itself where it has that."""
        return x if x.dtype == np.dtype(dtype) else self.one("Cast", x, to=dtype)

    def reduce(self, how: str, x: Tensor, axes: Iterable[int], keepdims: int = 1) -> Tensor:
        """`x` reduced along `axes` by Sum, Mean, Max, Min, Prod, L1 or L2."""
        kept = {"keepdims": keepdims, "noop_with_empty_axes": 0}
        return self.one(f"Reduce{how}", x, list(axes), **kept)

    def slice(self, x: Tensor, axis: int, first: int, end: int, step: int = 1) -> Tensor:
        """Positions of `x` along `axis`; `x` itself where these are all."""
        if (first, end, step) == (0, x.shape[axis], 1):
            return x
        return self.one("Slice", x, [first], [end], [axis], *([[step]] if step > 1 else []))

    def pad(self, x: Tensor, axis: int, before: int, behind: int, fill: Operand = 0.0) -> Tensor:
        """`x` with `fill` around along `axis`; negative: without so many of its own."""
        pads = [0] * (2 * len(x.shape))
        pads[axis], pads[len(x.shape) + axis] = before, behind
        return self.one("Pad", x, pads, fill, mode="constant") if before or behind else x

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """The parts one behind another."""
        return parts[0] if len(parts) == 1 else self.one("Concat", *parts, axis=axis)

    def transpose(self, x: Tensor, *perm: int) -> Tensor:
        """`x` with its axes in another order."""
        return self.one("Transpose", x, perm=perm)

    def stack(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return self.concat([self._unsqueezed(part, axis) for part in parts], axis)

    def split(self, x: Tensor, sizes: Sequence[int], axis: int) -> list[Tensor]:
        """Parts of `x` along `axis`, of these extents."""
        if len(sizes) == 1:
            return [x]
        parts: list[Tensor] = self.op("Split", x, list(sizes), axis=axis, outputs=len(sizes))
        return parts

    def scan(
        self, step: Step, states: Sequence[Tensor], over: Sequence[Tensor], *, axis: int = 0,
        reverse: bool = False,
    ) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
        """`states, results = step(*states, *elements)` for each position along `axis` of `over`.

        Gives the last states, and each result of all steps stacked along `axis`. Elements have no
        such axis. `reverse` goes from the last position to the first; results stay in their places.
        Steps are known by number: this is unfolded, not a loop of the program. Raises Declined
        where they have more operators than the loader may unfold into.
        """
        counts = {x.shape[axis] for x in over}
        if len(counts) != 1 or 0 in counts:
            raise ValueError(f"scan over extents {sorted(counts)}; they have to be one, above 0")
        count = counts.pop()
        parts = [self.split(x, [1] * count, axis) for x in over]
        made: list[list[Tensor]] = []
        kept = list(states)
        sizes = [len(self._make.made)]
        for position in reversed(range(count)) if reverse else range(count):
            rows = [part[position] for part in parts]
            elements = [self.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :])) for x in rows]
            after, results = step(*kept, *elements)
            kept = list(after)
            made.append([self._unsqueezed(result, axis) for result in results])
            sizes.append(len(self._make.made))
            if len(made) == min(count, 2):  # the first may be less: its states may be constants
                operators = sizes[1] - sizes[0] + (sizes[-1] - sizes[1]) * (count - 1)
                self._unfolding.take(count, operators)
                self._unfolded += operators
        columns = zip(*(made[::-1] if reverse else made), strict=True)
        return kept, [self.one("Concat", *column, axis=axis) for column in columns]

    def undo(self) -> None:
        """Remove all nodes that were made."""
        self._unfolding.left += self._unfolded
        self._make.graph.remove(reversed(self._make.made), safe=True)
        self._make.made.clear()

    def _unsqueezed(self, x: Tensor, axis: int) -> Tensor:
        return self.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """`x` in another shape; an extent of 0 is one, and none that is kept from `x`."""
        return self.one("Reshape", x, list(shape), allowzero=1 if 0 in shape else None)

    def _input_values(
        self, schema: onnx.defs.OpSchema | None, inputs: Sequence[Operand | None]
    ) -> list[ir.Value | None]:
        """Inputs as values of the graph; numbers take the type that the definition asks for."""
        formal = [] if schema is None else [each.type_str for each in schema.inputs]
        if schema is not None and not schema.min_input <= len(inputs) <= schema.max_input:
            counts = dict.fromkeys((schema.min_input, schema.max_input))
            takes = " to ".join(map(str, counts))
            raise ValueError(f"{schema.name} takes {takes} inputs, here are {len(inputs)}")
        names = [formal[min(i, len(formal) - 1)] if formal else None for i in range(len(inputs))]
        types: dict[str | None, np.dtype[Any]] = {}
        for kind in (Tensor, np.ndarray):
            for name, given in zip(names, inputs, strict=True):
                if name is not None and isinstance(given, kind):
                    types.setdefault(name, given.dtype)
        return [
            given.ir if isinstance(given, Tensor)
            else None if given is None
            else self.constant(given, types.get(name, _dtype_of(given))).ir
            for name, given in zip(names, inputs, strict=True)
        ]  # fmt: skip


class PassBody(Body):
    """The builder of a graph pass, which leaves constants to be folded later; `grouped`: new nodes
    are marked as parts of one composite, for fusion to keep together."""

    def __init__(self, node: ir.Node, grouped: bool) -> None:
        super().__init__(node)
        self._make = NodesBehind(node, node.name if grouped else None)

    def constant(self, numbers: object, dtype: object = np.float32) -> Tensor:
        """Numbers as a value, which remembers what a half-precision type takes from them."""
        kind = ir.DataType.from_numpy(np.dtype(dtype))  # type: ignore[call-overload]
        return Tensor(self, self._make.rounded(np.asarray(numbers), kind))

    def _folded(self, node: ir.Node) -> list[Tensor] | None:
        return None


def _dtype_of(numbers: float | Sequence[float] | Array) -> np.dtype[Any]:
    """The element type of numbers where nothing else says it."""
    if isinstance(numbers, np.ndarray | np.generic):
        return numbers.dtype
    whole = np.asarray(numbers).dtype.kind in "iu" or np.size(numbers) == 0
    return np.dtype(np.int64 if whole else np.float32)


class Declined(Exception):
    """A definition that does not cover this node; the text says why."""


class Contradicted(Exception):
    """A node that is none of its operator's, for anybody; the text says why."""
