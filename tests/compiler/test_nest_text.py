"""A printed graph parses back to itself, whatever it holds: the text says everything."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_reader import read_again

from compiler.tensor_ir.nest import Access, Affine, Dim, HostNode, Nest, NestGraph, Storage, Tensor
from compiler.tensor_ir.text import print_graph

names = st.one_of(
    st.sampled_from(
        ["x", "conv_1.out", "/block.0/Add_output_0", "input", "of", 'a "b"', "é\n", ""]
    ),
    st.text(max_size=6),
)
floats = st.one_of(st.sampled_from([math.inf, -math.inf, 0.1, 1e-30]), st.floats(allow_nan=False))
small = st.integers(-9, 9)


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Any nest at all; what it says need not make sense."""
    loops = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    dims = tuple(Dim(name, draw(st.integers(1, 99))) for name in loops)
    terms = st.lists(st.tuples(st.integers(0, len(dims) - 1), small), max_size=3).map(tuple)
    indices = st.lists(st.builds(Affine, terms, small), max_size=3).map(tuple)
    optional = st.one_of(st.none(), floats)
    accesses = st.builds(Access, names, indices, optional, optional, small)
    limits = st.one_of(st.just((-math.inf, math.inf)), st.tuples(floats, floats))
    low, high = draw(limits)
    reduce = draw(st.sampled_from([None, "sum", "max"]))
    return Nest(
        tensor=draw(names),
        dims=dims,
        rank=len(dims) if reduce is None else draw(st.integers(0, len(dims))),
        function=draw(st.sampled_from(["mul", "move", "not"])),
        operands=tuple(draw(st.lists(accesses, min_size=1, max_size=3))),
        reduce=reduce,
        parameters=tuple(draw(st.lists(floats, max_size=2))),
        bias=draw(st.one_of(st.none(), accesses)),
        multiplier=draw(st.one_of(st.none(), accesses)),
        low=low,
        high=high,
        scale=draw(optional),
        zero=draw(small),
        origin=draw(names),
        kind=draw(names),
        composite=draw(st.one_of(st.none(), names)),
    )


@st.composite
def graphs(draw: st.DrawFn) -> NestGraph:
    """A graph of unrelated parts."""
    known = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    tensors = {}
    for name in known:
        shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
        storage = Storage(draw(st.sampled_from(known)), draw(small), shape)
        data = np.zeros(shape, np.int8) if draw(st.booleans()) else None
        tensors[name] = Tensor(name, shape, "int8", storage, data)
    outputs = st.lists(names, min_size=1, max_size=2).map(tuple)
    hosts = st.builds(
        HostNode, outputs, outputs, st.just(b"model"), names, names, names, st.integers(0, 9)
    )
    ports = {name: "fp32" for name in known if draw(st.booleans())}
    return NestGraph(
        draw(names),
        tensors,
        {name: draw(st.integers(0, 99)) for name in known},
        tuple(draw(st.lists(st.one_of(nests(), hosts), max_size=3))),
        tuple(known[:1]),
        tuple(known[1:]),
        ports,
    )


@settings(max_examples=60)
@given(graphs())
def test_round_trip(graph: NestGraph) -> None:
    parsed = read_again(graph)
    assert parsed == graph
    constants = [{n for n, t in g.tensors.items() if t.data is not None} for g in (graph, parsed)]
    assert constants[0] == constants[1]
    assert print_graph(parsed) == print_graph(graph)
