"""The few verbs that graph passes are written in: read a constant, insert nodes, replace a node.

`Rewriter(node)` inserts new nodes before `node`, infers their shapes and hands on provenance:
every node carries `metadata_props["origin"]`, the names of the ONNX nodes it came from joined by
`+`, and, where it was made from one composite operator, `metadata_props["composite"]`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.errors import at_node, on, operator_name
from compiler.frontend.shapes import infer_node
from compiler.passes import ContractBroken, Pass, Result
from simmodel.arch.element_types import EPSILON
from simmodel.arch.lazy_array import LazyArray, cast

ARCHGEN = "archgen"
MICROSOFT = "com.microsoft"
ORIGIN = "origin"
COMPOSITE = "composite"
_NAMES = "archgen.names"
_RUNS = "archgen.runs"

Array = npt.NDArray[Any]
AttrValue = int | float | str | Sequence[int] | Sequence[float]


def is_op(node: ir.Node | None, *op_types: str, domain: str = "") -> bool:
    """Whether `node` exists and is one of `op_types` of `domain`."""
    return (
        node is not None
        and node.op_type in op_types
        and (node.domain == domain or (not domain and node.domain == "ai.onnx"))
    )


def label_of(node: ir.Node) -> str:
    """How messages name `node`: what it came from, and its operator."""
    name = node.metadata_props.get(ORIGIN, node.name)
    return at_node(name, operator_name(node.op_type, node.domain))


def const(value: ir.Value | None) -> Array | None:
    """The numbers of an initializer (not copied), or None where `value` is computed or absent."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def lazy(tensor: ir.TensorProtocol) -> LazyArray:
    """The numbers of a tensor of a graph."""
    if isinstance(tensor, ir.LazyTensor) and isinstance(tensor.raw, _NumbersOf):
        return tensor.raw.numbers
    return LazyArray(tuple(tensor.shape.numpy()), tensor.dtype.numpy(), tensor.numpy)


def tensor_of(array: npt.ArrayLike | LazyArray, name: str | None = None) -> ir.TensorProtocol:
    """`array` as a tensor of a graph."""
    if not isinstance(array, LazyArray):
        return ir.tensor(np.asarray(array), name=name)
    kind = ir.DataType.from_numpy(array.dtype)
    return ir.LazyTensor(_NumbersOf(array), kind, ir.Shape(array.shape), name=name)


@dataclass(frozen=True)
class _NumbersOf:
    """Makes a tensor of `numbers`."""

    numbers: LazyArray

    def __call__(self) -> ir.TensorProtocol:
        return ir.tensor(np.asarray(self.numbers))


def is_const(value: ir.Value | None) -> bool:
    """Whether `value` is an initializer, whose numbers `const` gives."""
    return value is not None and value.const_value is not None and not value.is_graph_input()


def scalar(value: ir.Value | None) -> float | None:
    """The number in a constant of one element, of any rank; None otherwise."""
    array = const(value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def static_shape(value: ir.Value) -> tuple[int, ...]:
    """The extents of `value`; raises ValueError where one is unknown."""
    if value.shape is None or not value.shape.is_static():
        raise ValueError(f"shape of {value.name} is not static: {value.shape}")
    return value.shape.numpy()


def is_static(value: ir.Value) -> bool:
    """Whether all extents of `value` are numbers, or nobody names it."""
    shape = value.shape
    return not value.name or (shape is not None and set(map(type, shape.dims)) <= {int})


def input_of(node: ir.Node, index: int) -> ir.Value | None:
    """Input `index`, None where it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def required(node: ir.Node, index: int) -> ir.Value:
    """Input `index`; raises ValueError where it is absent."""
    value = input_of(node, index)
    if value is None:
        raise ValueError(f"{node.op_type} {node.name}: input {index} is missing")
    return value


def ints_attr(node: ir.Node, name: str, default: Sequence[int] | None = None) -> list[int] | None:
    """A list attribute, or a copy of its default."""
    found = node.attributes.get_ints(name, default)
    return None if found is None else list(found)


def has_body(node: ir.Node) -> bool:
    """Whether `node` has a graph of its own among its attributes."""
    return next(bodies(node), None) is not None


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs among the attributes of `node`."""
    for attr in node.attributes.values():
        if attr.type == ir.AttributeType.GRAPH:
            yield attr.as_graph()
        elif attr.type == ir.AttributeType.GRAPHS:
            yield from attr.as_graphs()


def set_attrs(node: ir.Node, attrs: Mapping[str, AttrValue]) -> bool:
    """Set attributes; whether any of them differed."""
    made = {name: _attribute(name, value) for name, value in attrs.items()}
    known = node.attributes
    new = {n: attr for n, attr in made.items() if n not in known or known[n].value != attr.value}
    known.update(new)
    return bool(new)


def _attribute(name: str, value: AttrValue) -> ir.Attr:
    """An attribute; of a list of integers the type is given, which takes long to be inferred."""
    given = list(value) if isinstance(value, tuple) else value
    whole = isinstance(given, list) and given and all(isinstance(each, int) for each in given)
    kind = ir.AttributeType.INTS if whole else None
    return ir.convenience.convert_attribute(name, given, kind)


def sole_consumer(value: ir.Value) -> ir.Node | None:
    """The only node that reads `value`, once, where nothing else (a graph output) does."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    return node if node.graph is value.graph else None


def origin_of(*nodes: ir.Node) -> str:
    """The joined provenance of `nodes`, each name once, in order."""
    names: dict[str, None] = {}
    for node in nodes:
        names.update(dict.fromkeys(node.metadata_props.get(ORIGIN, node.name or "").split("+")))
    return "+".join(name for name in names if name)


def fresh_name(graph: ir.Graph, stem: str) -> str:
    """A value name that begins with `stem`; unique because it counts per graph."""
    count = graph.meta.get("archgen.fresh", 0)
    graph.meta["archgen.fresh"] = count + 1
    return f"{stem}__{count}"


UNIT = 4 * EPSILON["fp32"]
"""What a sum may be off by, as a share of the magnitude of its terms."""
TERMS = "terms"
"""Key, in the metadata of a constant, of the magnitude of what it was added up from."""


def terms_of(value: ir.Value | None) -> Array | float:
    """Magnitude of the terms that a folded constant was added up from, of all its elements or of
    each; 0 for one of the model."""
    found: Array | float = 0.0 if value is None else value.meta.get(TERMS, 0.0)
    return found


def names_of(value: ir.Value) -> tuple[str, ...]:
    """The names under which what `value` holds was known so far, its own among them."""
    names: tuple[str, ...] = value.meta.get(_NAMES, (str(value.name),))
    return names


def forget_names(value: ir.Value) -> None:
    """Say that `value` no longer holds what its name stood for."""
    value.meta[_NAMES] = ()


def hand_names(old: ir.Value, new: ir.Value, runs: Sequence[int]) -> None:
    """Say that `new`, not `old`, holds what the names of `old` stand for: each axis of that is made
    of as many axes of `new` as `runs` say."""
    if old.graph is None:
        raise ValueError(f"{old.name} is in no graph")
    kept: dict[str, tuple[int, ...]] = old.graph.meta.setdefault(_RUNS, {})
    kept.update(dict.fromkeys(names_of(old), tuple(runs)))
    new.meta[_NAMES] = (*names_of(new), *names_of(old))
    forget_names(old)


def runs_of(graph: ir.Graph, name: str) -> tuple[int, ...]:
    """Of how many axes of the value that holds it each axis of what `name` stands for is made;
    nothing where it has the same axes."""
    kept: dict[str, tuple[int, ...]] = graph.meta.get(_RUNS, {})
    return kept.get(name, ())


class Rewriter:
    """Inserts nodes before `anchor`, which they are about to replace.

    `sources` are the nodes whose provenance the new ones inherit, `anchor` alone by default;
    `composite` marks the new nodes as the expansion of one source node.
    """

    def __init__(
        self, anchor: ir.Node, sources: Sequence[ir.Node] = (), composite: str | None = None
    ) -> None:
        if anchor.graph is None:
            raise ValueError(f"{anchor.name} is in no graph")
        self.anchor = anchor
        self.graph: ir.Graph = anchor.graph
        self.stem = anchor.name or anchor.op_type
        self.props = {ORIGIN: origin_of(*(sources or (anchor,)))}
        composite = composite or anchor.metadata_props.get(COMPOSITE)
        if composite is not None:
            self.props[COMPOSITE] = composite

    def constant(
        self, array: npt.ArrayLike | LazyArray, dtype: ir.DataType | None = None
    ) -> ir.Value:
        """A new initializer, of `dtype` where given; `array` is copied only to convert it."""
        values = array if isinstance(array, LazyArray) else np.asarray(array)
        values = values if dtype is None else cast(values, dtype.numpy())
        name = fresh_name(self.graph, f"{self.stem}_const")
        made = ir.val(name, const_value=tensor_of(values, name))
        self.graph.register_initializer(made)
        return made

    def again(self, inputs: Sequence[ir.Value | None], **changed: AttrValue) -> ir.Node:
        """The anchor's operator on other inputs, with some attributes changed."""
        node = self.anchor
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        count = len(node.outputs)
        return self.node(node.op_type, inputs, {**attributes, **changed}, node.domain, count)

    def like(
        self, array: npt.ArrayLike | LazyArray, value: ir.Value, terms: Array | float = 0.0
    ) -> ir.Value:
        """A new initializer of the element type of `value`; `terms` as in `terms_of`, to which is
        added what a half-precision type loses."""
        return self.rounded(array, value.dtype, terms)

    def rounded(
        self, array: npt.ArrayLike | LazyArray, dtype: ir.DataType | None,
        terms: Array | float = 0.0,
    ) -> ir.Value:  # fmt: skip
        """As `like`, of an element type."""
        made = self.constant(array, dtype)
        made.meta[TERMS] = terms
        half = made.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        if half and not isinstance(array, LazyArray):
            rounded = made.const_value.numpy()  # type: ignore[union-attr]
            off: Array = np.abs(np.asarray(array).astype(np.float64) - rounded.astype(np.float64))
            if off.any() and np.isfinite(off).all():
                made.meta[TERMS] = terms + off / UNIT
        return made

    def axes(self, axes: Sequence[int]) -> ir.Value:
        """A new initializer holding axes or a shape."""
        return self.constant(np.asarray(axes, dtype=np.int64))

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, AttrValue] | None = None, **more: Any,
    ) -> ir.Value:  # fmt: skip
        """The first output of another `node`."""
        return self.node(op_type, inputs, attributes, **more).outputs[0]

    def node(
        self, op_type: str, inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, AttrValue] | None = None, domain: str = "", outputs: int = 1,
        out: tuple[ir.DataType, Sequence[int]] | None = None,
    ) -> ir.Node:  # fmt: skip
        """Insert a node; `out` states type and shape where no standard rule gives them."""
        name = fresh_name(self.graph, f"{self.stem}_{op_type}")
        results = [ir.Value(name=name if i == 0 else f"{name}_{i}") for i in range(outputs)]
        node = ir.node(
            op_type,
            inputs,
            {key: _attribute(key, value) for key, value in (attributes or {}).items()},
            domain=domain,
            outputs=results,
            name=name,
            metadata_props=dict(self.props),
        )
        if out is not None:
            dtype, shape = out
            results[0].dtype, results[0].shape = dtype, ir.Shape(shape)
        else:
            infer_node(node, self.graph.opset_imports)
        self.insert(node)
        return node

    def insert(self, node: ir.Node) -> None:
        """Where new nodes stand: before the anchor."""
        self.graph.insert_before(self.anchor, node)

    def replace(self, *new: ir.Value | None) -> None:
        """Let `new` take the place of the anchor's outputs, and remove the anchor; None for what
        nobody reads."""
        replace_outputs(self.anchor, new, props=self.props)


def replace_value(old: ir.Value, new: ir.Value, anchor: ir.Node, props: Mapping[str, str]) -> None:
    """Let readers of `old`, graph outputs too, read `new`; graph outputs keep their names."""
    names = (*names_of(new), *names_of(old))
    if not old.is_graph_output():
        new.meta[_NAMES] = names
        old.replace_all_uses_with(new)
        return
    graph = anchor.graph
    if graph is None:
        raise ValueError(f"{anchor.name} is in no graph")
    name, source = old.name, new
    if source.is_graph_output() or source.is_graph_input():
        stem = fresh_name(graph, f"{name}_copy")
        copy = ir.node("Identity", [source], name=stem, metadata_props=dict(props))
        (new,) = copy.outputs
        new.type, new.shape = source.type, source.shape
        graph.insert_before(anchor, copy)
    elif source.const_value is not None:  # a tensor of the file would be renamed there as well
        numbers = tensor_of(lazy(source.const_value))
        new = ir.val(fresh_name(graph, f"{source.name}_copy"), const_value=numbers)
        new.meta.update(source.meta)
        graph.register_initializer(new)
    new.meta[_NAMES] = names
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = fresh_name(graph, f"{name}_old")
    new.name = name


def replace_outputs(
    node: ir.Node, results: Sequence[ir.Value | None],
    copy: Callable[[ir.Value], ir.Value] | None = None, props: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Let `results`, None for what nobody reads, take the place of the outputs of `node`, and
    remove it; `copy` makes another value of one that has to keep its name, `props` are the metadata
    of one that is made here."""
    for output, result in zip(node.outputs, results, strict=False):
        if result is None or not output.name:
            continue
        named = result.is_graph_input() or result.is_graph_output()
        own = copy(result) if copy and named and output.is_graph_output() else result
        replace_value(output, own, node, node.metadata_props if props is None else props)
    if node.graph is not None:
        node.graph.remove(node, safe=True)


def remove_dead(graph: ir.Graph) -> bool:
    """Remove nodes and initializers that nothing reads; whether there were any."""
    nodes = len(graph)
    for node in reversed(graph):
        if not any(out.uses() or out.is_graph_output() for out in node.outputs):
            graph.remove(node, safe=True)
    values = [v for v in graph.initializers.values() if not v.uses() and not v.is_graph_output()]
    for value in values:
        del graph.initializers[str(value.name)]
    return bool(values) or len(graph) < nodes


@dataclass(frozen=True)
class GraphPass(Pass[ir.Model]):
    """A pass that rewrites the main graph node by node, in place."""

    backwards: ClassVar[bool] = False
    """Whether consumers are visited before producers, for rewrites rooted at the last node."""

    leaves_none_of: ClassVar[frozenset[str]] = frozenset()
    """Standard operators that may not remain."""

    @abstractmethod
    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite around `node` if it is the root of something to rewrite; whether it was."""

    def apply(self, ir: ir.Model) -> Result[ir.Model]:
        """Visit every node that is still in the graph."""
        graph = ir.graph
        changed = False
        with on(lambda: label_of(node)):
            for node in reversed(graph) if self.backwards else graph:
                if node.graph is graph:
                    changed |= self.rewrite(node)
        if changed:
            remove_dead(graph)
        return Result(ir, changed)

    def requires(self, ir: ir.Model) -> None:
        """The contract of every graph."""
        check_graph(ir.graph)

    def ensures(self, ir: ir.Model) -> None:
        """The operators that this pass removes are gone."""
        left = {n.op_type for n in ir.graph if not n.domain} & self.leaves_none_of
        if left:
            raise ContractBroken(f"{', '.join(sorted(left))} should be gone")


def check_graph(graph: ir.Graph) -> None:
    """Raise ContractBroken for the first node that breaks the contract of this module."""
    names: set[str] = set()
    known = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        if not node.name or node.name in names:
            raise ContractBroken(f"{node.op_type}: name {node.name!r} is missing or taken")
        names.add(node.name)
        if not node.metadata_props.get(ORIGIN):
            raise ContractBroken(f"{node.name}: no origin")
        for value in node.inputs:
            if value is not None and value not in known:
                raise ContractBroken(f"{node.name}: {value.name} is read before it is made")
        for value in node.outputs:
            known.add(value)
            if value.name and (value.dtype is None or not is_static(value)):
                raise ContractBroken(f"{node.name}: {value.name} has no static shape or type")
    for value in graph.outputs:
        if value not in known:
            raise ContractBroken(f"graph output {value.name} is made by nothing")
