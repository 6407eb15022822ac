"""Every network of the zoo as nests, bound to engines and as groups: what is printed reads back."""

from __future__ import annotations

import pytest
from nest_reader import constants, parse_graph, payloads
from test_zoo import SMALL

from archgen.schema import load_arch
from archgen.zoo.catalog import CATALOG, build
from compiler.context import CompileOptions, Context
from compiler.decisions.group_costs import GroupCosts
from compiler.decisions.text.extract import extract_tree, remarks_of
from compiler.decisions.text.text import parse_tree, print_tree
from compiler.pipeline import bind, fuse_tails, nests, prepared
from compiler.schedule.fusion.greedy import Line
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.text import print_graph


class _Flat(GroupCosts):
    def price(self, group: Group) -> float:
        return 1.0


@pytest.mark.parametrize("name", CATALOG)
def test_nests_and_groups_read_back(name: str) -> None:
    arch = load_arch("ascend-310-like")
    ctx = Context(arch, CompileOptions(dtype="fp16"))
    graph = nests(prepared(build(name, **SMALL[name]), name), ctx)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, constants(graph), payloads(graph))) == text
    parts = bind(fuse_tails(graph, ctx), ctx).parts
    groups = Line(max_layers=3).apply(parts, graph, _Flat(arch, ctx.stages))
    tree = extract_tree(name, groups)
    assert parse_tree(print_tree(tree, remarks_of(tree, groups))) == tree
