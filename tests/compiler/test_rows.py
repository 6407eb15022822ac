"""Rows that a list names are copied from where they lie: what is computed, and what moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from nest_reader import read_again
from one_node import agree, executed
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node
from compiler.api import CompileOptions, compile_model, prepared
from compiler.cost.transfer import Path
from compiler.lowering.lower import Lower, lower
from compiler.options import Stages
from compiler.target.rows import CopyRows, lacks
from compiler.tensor_ir.gather_rows import ReadRows
from compiler.tensor_ir.interpreter import run
from compiler.tensor_ir.nest import HostNode, NestGraph, Picked, Storage, Tensor
from compiler.tensor_ir.text import print_graph
from simmodel.arch.record import Arch
from simmodel.arch.units import Delay
from simmodel.errors import NoSuchRow
from simmodel.execute import execute
from simmodel.isa import Gather
from simmodel.isa.region import Address, Operand, contiguous
from simmodel.machine.run import simulate

FLOATS = machine(types=("fp32",))
WITHOUT = FLOATS.model_copy(
    update={"copy_": {n: e.model_copy(update={"indirect": None}) for n, e in FLOATS.copy_.items()}}
)
"""Copy engines take no list of rows."""
WORDS = 3000
"""Rows of the table: more than are worth comparing with."""


def network(body: str, **tables: np.ndarray) -> onnx.ModelProto:
    """A model in ONNX's text, with constants beside it."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {body}')
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in tables.items())
    return proto


def embedding(ids: str = "2, 6", more: str = "") -> onnx.ModelProto:
    random = np.random.default_rng(0)
    words = random.standard_normal((WORDS, 16)).astype(np.float32)
    places = random.standard_normal((6, 16)).astype(np.float32)
    return network(
        f"""g (int64[{ids}] i) => (float[{ids}, 16] y{more and ", " + more.split("|")[0]}) {{
            e = Gather (words, i)
            y = Add (e, places) {more and more.split("|")[1]} }}""",
        words=words, places=places,
    )  # fmt: skip


UNCOMPARED = CompileOptions(stages=replace(Stages(), lower=Lower(compared=0)))
"""Nothing is compared with a whole axis instead."""


def compiled(
    proto: onnx.ModelProto, arch: Arch, options: CompileOptions = UNCOMPARED, /,
    **feeds: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    """Outputs of the verified program beside ONNX's own, its host calls and its trace."""
    result, made = executed(proto, feeds, arch, options)
    agree(made, ReferenceEvaluator(proto).run(None, feeds))
    return {"host": result.host, "trace": simulate(result.program, arch), "program": result.program}


def gathers(program: Any) -> list[Gather]:
    sites = (site for expansion in program.expanded for site in expansion.sites)
    return [s.instruction for s in sites if isinstance(s.instruction, Gather)]


def test_an_embedding_reads_its_rows_and_nothing_else() -> None:
    """12 rows of 64 B and their numbers, 6 rows that are added, 12 that are stored: the table of
    192 kB stays where it is, and what is picked is written nowhere."""
    ids = np.random.default_rng(1).integers(-WORDS, WORDS, (2, 6))
    found = compiled(embedding(), FLOATS, i=ids)
    assert not found["host"]
    assert found["trace"].traffic["dram.read"] == 12 * 64 + 128 + 6 * 64
    assert found["trace"].traffic["dram.write"] == 12 * 64


def test_a_number_that_names_no_word_is_said_with_its_node() -> None:
    proto = embedding()
    proto.graph.node[0].name = "words.lookup"
    program = compile_model(proto, FLOATS, CompileOptions()).program
    with pytest.raises(NoSuchRow, match=r"^words.lookup \(Gather\): index 3000 is out of range"):
        execute(program, {"i": np.full((2, 6), WORDS)}, FLOATS)


@settings(max_examples=25)
@given(st.data())
def test_rows_of_any_axis_by_lists_of_any_shape(data: st.DataObject) -> None:
    """Of a constant or of what the network computes; small, so the host would be quicker: it is not
    asked for its price here."""
    rank = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    axis = data.draw(st.integers(0, rank - 1))
    shape[axis] = data.draw(st.integers(2, 30))
    listed = [data.draw(st.integers(1, 5)) for _ in range(data.draw(st.integers(0, 2)))]
    count = int(np.prod(listed))
    number = st.integers(-shape[axis], shape[axis] - 1)
    ids = data.draw(st.lists(number, min_size=count, max_size=count))
    made = [*shape[:axis], *listed, *shape[axis + 1 :]]
    said = ["float" + (str(each).replace("'", "") if each else "") for each in (shape, made)]
    computed = data.draw(st.booleans())
    table = "t = Relu (x)" if computed else "t = Identity (x)"
    kind = data.draw(st.sampled_from(["int64", "int32"]))
    proto = network(
        f"""g ({kind}{listed or ""} i, {said[0]} x) => ({said[1]} y) {{
            {table}
            e = Gather <axis = {axis}> (t, i)
            y = Neg (e) }}"""
    )
    feeds = {
        "i": np.array(ids, kind).reshape(listed),
        "x": np.random.default_rng(0).standard_normal(shape).astype(np.float32),
    }
    arch = machine(
        types=("fp32",), cores=data.draw(st.sampled_from([1, 3])),
        sync=data.draw(st.sampled_from(["tokens", "interlock"])),
    )  # fmt: skip
    engines = {
        name: engine.model_copy(update={"rank": data.draw(st.integers(1, 4))})
        for name, engine in arch.copy_.items()
    }
    graph = lower(prepared(proto, "net"), "fp32", Lower(compared=1000))
    nests = CopyRows().apply(graph, WITHOUT)
    assert not any(isinstance(step, HostNode) for step in nests.steps)
    (wanted,) = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_array_equal(run(nests, feeds)["y"], wanted)
    host = arch.host.model_copy(update={"latency": Delay(1e9, True)})
    found = compiled(proto, arch.model_copy(update={"copy_": engines, "host": host}), **feeds)
    assert not found["host"] and gathers(found["program"])


@pytest.mark.parametrize(
    ("table", "arch", "copies"),
    [((8, 64, 16), FLOATS, 1), ((8, 64, 16), WITHOUT, 0), ((16, 4), FLOATS, 0)],
)
def test_rows_of_a_short_axis_are_copied_or_compared_whichever_is_quicker(
    table: tuple[int, ...], arch: Arch, copies: int
) -> None:
    """Four of eight matrices are whole bursts; a row of four numbers is less than one."""
    inside = "".join(f", {n}" for n in table[1:])
    proto = network(
        f"""g (int64[4] i, float[{table[0]}{inside}] x) => (float[4{inside}] y) {{
            e = Gather (x, i)
            y = Neg (e) }}"""
    )
    values = np.random.default_rng(0).standard_normal(table).astype(np.float32)
    found = compiled(proto, arch, CompileOptions(), i=np.array([0, -1, 3, 3]), x=values)
    assert not found["host"]
    assert len(gathers(found["program"])) == copies


def graph_of(proto: onnx.ModelProto) -> NestGraph:
    return lower(prepared(proto, "net"), "fp32")


def test_readers_read_the_table_itself() -> None:
    graph = graph_of(embedding())
    assert "host (e) = Gather(i)" in print_graph(graph)
    made = ReadRows().apply(graph).ir
    lines = print_graph(made).splitlines()
    assert next(x for x in lines if x.startswith("tensor e:")).endswith(
        "at e + 0 by (96, 16, 1) picks words by i along 0"
    )
    again = read_again(made)
    assert again.tensors["e"].picked == made.tensors["e"].picked
    assert print_graph(again) == print_graph(made)
    ids = {"i": np.arange(12).reshape(2, 6)}
    written = ReadRows(directly=False).apply(graph).ir
    assert any(line.startswith("e[d0=2") for line in print_graph(written).splitlines())
    for other in (made, written):
        np.testing.assert_array_equal(run(other, ids)["y"], run(graph, ids, run_node)["y"])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("row", [(16,), (3, 16), (1,)])
@pytest.mark.parametrize("listed", [(7,), (2, 3), ()])
def test_the_price_is_the_instruction_s(
    axis: int, row: tuple[int, ...], listed: tuple[int, ...]
) -> None:
    shape = (*row[:axis], 50, *row[axis:])
    table = Tensor("t", shape, "fp32", Storage("t", 0, contiguous(shape, 1)))
    index = Tensor("i", listed, "int64", Storage("i", 0, contiguous(listed, 1)))
    made = (*shape[:axis], *listed, *shape[axis + 1 :])
    rows = Tensor("e", made, "fp32", Storage("e", 0, contiguous(made, 1)), picked=Picked(
        table, index, axis
    ))  # fmt: skip
    steps = contiguous(shape, 4)
    near = contiguous(made, 4)
    order = (*range(axis, axis + len(listed)), *range(axis), *range(axis + len(listed), len(made)))
    one = Gather(
        engine="load",
        src=Operand("dram", Address(0), (50, *row), (steps[axis], *steps[:axis],
                    *steps[axis + 1 :]), "fp32"),
        index=Operand("dram", Address(0), listed, contiguous(listed, 8), "int64"),
        dst=Operand("local", Address(0), tuple(made[a] for a in order),
                    tuple(near[a] for a in order), "fp32"),
    )  # fmt: skip
    assert one.unencodable(FLOATS) is None
    box = Path(FLOATS, 1, "dram", "local").box(rows, made)
    flows = [flow for flow in one.traffic(FLOATS) if flow.operand.memory == "dram"]
    moved = sum(flow.bytes for flow in flows)
    assert box.bytes == moved
    bound = max(one.cycles(FLOATS), moved / FLOATS.dram_bytes_per_cycle)
    assert box.cycles == pytest.approx(one.startup(FLOATS) + bound, abs=1)


def test_single_elements_are_the_host_s_where_it_is_quicker() -> None:
    """20 000 elements, each a burst of DRAM and 4 cycles at least; the host moves three words for
    each."""
    proto = network(
        "g (int64[20000] i) => (float[20000] y) { e = Gather (t, i) y = Neg (e) }",
        t=np.zeros(WORDS, np.float32),
    )
    graph = graph_of(proto)
    (node,) = (step for step in graph.steps if isinstance(step, HostNode))
    said = lacks(node, graph, FLOATS)
    assert said is not None and "other ways are quicker" in said
