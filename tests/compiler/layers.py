"""Small networks of layers by hand: who reads whom, and how many bytes each makes.

`network("a = x", "b = a", "host h = b", "y = h a")` reads as it runs; whatever is read and not made
is an input of the network, what nobody reads an output. A tensor has 10 bytes unless `sizes` says
otherwise, and a buffer of its own unless `places` puts it at an offset of a shared one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import strategies as st

from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Binding, Layer, fresh
from compiler.tensor_ir.nest import (
    Access,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
    at,
)

Part = Layer | HostNode


def network(
    *lines: str,
    sizes: Mapping[str, int] | None = None,
    places: Mapping[str, tuple[str, int]] | None = None,
    outputs: tuple[str, ...] = (),
) -> tuple[tuple[Part, ...], NestGraph]:
    """Parts and their graph; one element is one byte."""
    reads = {line.split(" = ")[0]: line.split(" = ")[1].split() for line in lines}
    made = {words.removeprefix("host "): names for words, names in reads.items()}
    names = dict.fromkeys([*made, *(name for read in made.values() for name in read)])
    tensors = {name: _tensor(name, (sizes or {}).get(name, 10), places or {}) for name in names}
    read = {name for names in made.values() for name in names}
    buffers: dict[str, int] = {}
    for tensor in tensors.values():
        end = tensor.storage.offset + tensor.elements
        buffers[tensor.storage.buffer] = max(end, buffers.get(tensor.storage.buffer, 0))
    written = {tensors[name].storage.buffer for name in made}
    graph = NestGraph(
        name="by hand",
        tensors=tensors,
        buffers=buffers,
        steps=tuple(_step(words, names, tensors) for words, names in reads.items()),
        inputs=tuple(name for name in names if tensors[name].storage.buffer not in written),
        outputs=tuple(name for name in made if name not in read or name in outputs),
    )
    return tuple(
        step if isinstance(step, HostNode) else _bound(fresh(index, (step,), graph))
        for index, step in enumerate(graph.steps)
    ), graph


def _bound(layer: Layer) -> Layer:
    return replace(layer, ways=((Binding("vector"),),))


def _tensor(name: str, size: int, places: Mapping[str, tuple[str, int]]) -> Tensor:
    buffer, offset = places.get(name, (name, 0))
    return Tensor(name, (size,), "int8", Storage(buffer, offset, (1,)))


def _step(words: str, reads: list[str], tensors: Mapping[str, Tensor]) -> Step:
    name = words.removeprefix("host ")
    if words != name:
        return HostNode(tuple(reads), (name,), b"", name, "Host", "by hand")
    dims = (Dim("n", tensors[name].elements),)
    operands = tuple(Access(read, (at(0),)) for read in reads)
    return Nest(name, dims, 1, "add", operands, origin=name)


def shown(parts: tuple[Group | HostNode, ...]) -> str:
    """Groups as `{a b}`, host nodes by their name."""
    return " ".join(
        part.origin if isinstance(part, HostNode) else "{" + " ".join(part.producer_positions) + "}"
        for part in parts
    )


def bytes_moved(group: Group) -> int:
    """What the group reads from memory and writes to it."""
    return sum(group.tensors[name].elements for name in (*group.inputs, *group.results))


def bytes_held(group: Group) -> int:
    """What passes between its layers."""
    return sum(group.tensors[name].elements for name in group.internal_readers)


@st.composite
def lines(draw: st.DrawFn, most: int = 7, hosts: bool = False) -> tuple[str, ...]:
    """Networks of up to `most` parts, each reading one or two earlier tensors."""
    names = ["x"]
    found = []
    for index in range(draw(st.integers(1, most))):
        read = draw(st.lists(st.sampled_from(names[-4:]), min_size=1, max_size=2, unique=True))
        host = "host " if hosts and draw(st.integers(0, 5)) == 0 else ""
        names.append(f"t{index}")
        found.append(f"{host}t{index} = {' '.join(read)}")
    return tuple(found)
