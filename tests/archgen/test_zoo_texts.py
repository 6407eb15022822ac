"""Every network of the zoo as nests, bound to engines and as groups: what is printed reads back."""

from __future__ import annotations

import pytest
from nest_reader import read_again
from test_zoo import SMALL

from archgen.schema import load_arch
from archgen.zoo.catalog import CATALOG, build
from compiler.context import CompileOptions, Context
from compiler.decisions.text.extract import extract_tree, remarks_of
from compiler.decisions.text.text import parse_tree, print_tree
from compiler.pipeline import bind, fuse_tails, nests, prepared
from compiler.schedule.fusion.greedy import Line
from compiler.tensor_ir.text import print_graph


@pytest.mark.parametrize("name", CATALOG)
def test_nests_and_groups_read_back(name: str) -> None:
    arch = load_arch("ascend-310-like")
    ctx = Context(arch, CompileOptions(dtype="fp16"))
    graph = nests(prepared(build(name, **SMALL[name]), name), ctx)
    assert print_graph(read_again(graph)) == print_graph(graph)
    parts = bind(fuse_tails(graph, ctx), ctx).parts
    groups = Line(max_layers=3).apply(parts, graph, lambda group: 1.0)
    tree = extract_tree(name, groups)
    assert parse_tree(print_tree(tree, remarks_of(tree, groups))) == tree
