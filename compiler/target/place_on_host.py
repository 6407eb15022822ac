"""Operators that no engine of the machine can run become calls to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from compiler.errors import UnsupportedModel, at_node
from compiler.passes import ContractBroken, ensured
from compiler.target.bind import unsupported
from compiler.target.call_chains import beside_calls
from compiler.target.layout import host_order
from compiler.target.machine import on_its_array
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph, Step, dense, row_major
from compiler.tensor_ir.rewrite import check_nests, reads_of
from simmodel.arch.record import Arch

Fallback = Callable[[Nest], tuple[HostNode, tuple[Nest, ...]] | None]
"""Makes the host's version of a nest and of those that must go with it, or None."""

Refusal = Callable[[bytes], str | None]
"""Why the host cannot run a payload; None: it can."""


@dataclass(frozen=True)
class PlaceOnHost:
    """Replace nests that `arch` cannot run by host nodes.

    before:
        s[d0] = exp(x[d0])                     the vector engine has int8 only
    after:
        s = host Exp(x)
    """

    allowed: bool = True
    """False: such an operator is an error."""
    kept: str = ""
    """Types of operators that the host computes though an engine could, separated by commas."""

    @ensured
    def apply(
        self, graph: NestGraph, arch: Arch, fallback: Fallback, refusal: Refusal,
        away: Mapping[str, str] = MappingProxyType({}),
    ) -> NestGraph:  # fmt: skip
        """`graph` with only nests that `arch` runs; those that make what is `away` are for the host
        in any case, for a reason.

        Raises UnsupportedModel for all operators that can run nowhere, or not on the host.
        """
        reasons: dict[str, str] = {}
        for step in (step for step in graph.steps if isinstance(step, Nest)):
            kept = f"{step.kind} is kept on the host" if self._keeps(step.kind) else None
            reason = away.get(step.tensor) or kept or unsupported(step, graph.tensors, arch)
            if reason:
                reasons[step.tensor] = reason
        once = cache(fallback)

        def with_host_calls(reasons: Mapping[str, str]) -> NestGraph:
            return self._move_to_host(graph, arch, once, refusal, reasons)

        more = beside_calls(graph, arch, with_host_calls, reasons) if self.allowed else {}
        return _laid_out(with_host_calls({**reasons, **more}), arch)

    def _move_to_host(
        self, graph: NestGraph, arch: Arch, fallback: Fallback, refusal: Refusal,
        reasons: Mapping[str, str],
    ) -> NestGraph:  # fmt: skip
        steps: dict[int, Step] = dict(enumerate(graph.steps))
        places = {s.tensor: n for n, s in steps.items() if isinstance(s, Nest)}
        refused: list[str] = []
        for number, step in enumerate(graph.steps):
            if isinstance(step, HostNode):
                if step.pick is not None and not self._keeps(step.kind):
                    continue
                step = steps[number] = replace(step, pick=None)
                why = _refused_by_host(step, refusal) if self.allowed else step.reason
            elif step.tensor not in reasons or steps.get(number) is not step:
                continue
            elif (found := fallback(step) if self.allowed else None) is None:
                why = reasons[step.tensor]
            else:
                host = replace(found[0], reason=reasons[step.tensor])
                why = _refused_by_host(host, refusal)
                taken = sorted(places[nest.tensor] for nest in found[1])
                for place in taken:
                    steps.pop(place, None)
                steps[_before_readers(host, taken, steps, graph)] = host
            if why is not None:
                refused.append(f"{at_node(step.origin, step.kind)}: {why}")
        if refused:
            raise UnsupportedModel(
                f"{len(refused)} operators cannot run on {arch.name}:\n  " + "\n  ".join(refused)
            )
        return replace(graph, steps=tuple(steps[place] for place in sorted(steps)))

    def _keeps(self, kind: str) -> bool:
        """Whether operators of this type stay on the host."""
        return bool(kind) and kind in (name.strip() for name in self.kept.split(","))

    def ensures(
        self, made: NestGraph, graph: NestGraph, arch: Arch, *given: object, **named: object
    ) -> None:
        """The contract of every graph of nests, all of which the machine runs."""
        check_nests(made)
        for step in made.steps:
            reason = unsupported(step, made.tensors, arch) if isinstance(step, Nest) else None
            if reason is not None:
                raise ContractBroken(f"{at_node(step.origin, step.kind)}: {reason}")


def _laid_out(graph: NestGraph, arch: Arch) -> NestGraph:
    """`graph` with the results of host nodes as the products that read them want them on chip, so
    that no load moves them element by element."""
    tensors, shared = dict(graph.tensors), Counter(map(graph.buffer_of, graph.tensors))
    made = {name for step in graph.steps if isinstance(step, HostNode) for name in step.outputs}
    for name in sorted(made.difference(graph.outputs)):
        tensor = tensors[name]
        if shared[tensor.storage.buffer] > 1 or not tensor.has_strides(row_major(tensor.shape)):
            continue
        wanted = {
            host_order(tensor, step, on_its_array(step, graph.tensors, arch))
            for step in graph.steps
            if isinstance(step, Nest) and step.contraction and step.operands[0].tensor == name
        }
        if len(wanted) == 1:
            strides = dense(tensor.shape, wanted.pop())
            tensors[name] = replace(tensor, storage=replace(tensor.storage, strides=strides))
    return replace(graph, tensors=tensors)


def _before_readers(
    host: HostNode, taken: Sequence[int], steps: Mapping[int, Step], graph: NestGraph
) -> int:
    """The last of the places that are `taken` by nests of a host node before which nothing reads
    what it makes: nests that read the same blocks go to the host together, also where what reads
    one of them comes before the next."""
    made = {graph.buffer_of(name) for name in host.outputs}
    found = taken[0]
    for place in range(taken[0], taken[-1] + 1):
        step = steps.get(place)
        if step is not None and made & {graph.buffer_of(name) for name in reads_of(step)}:
            break
        found = place if place in taken else found
    return found


def _refused_by_host(node: HostNode, refusal: Refusal) -> str | None:
    """Why the host cannot run `node` either, and a remedy; None: it can."""
    why = refusal(node.payload)
    if why is None:
        return None
    return (
        f"{node.reason}, and ONNX Runtime, which runs what no engine can, refuses it: {why}; "
        "other element types or operators may have a kernel there"
    )
