"""Rows that a list names are copied from where they lie, and new ones to where they go: what is
computed, and what moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import changed, machine
from nest_reader import read_again
from networks import feeds_of
from one_node import agree, executed
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from archgen.check.reference import run_node
from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.cost.transfer import Path
from compiler.frontend.operators import places
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


def with_engines(arch: Arch, change: Callable[[], dict[str, Any]]) -> Arch:
    """`arch`, each of whose copy engines is changed."""
    engines = {name: engine.model_copy(update=change()) for name, engine in arch.copy_.items()}
    return arch.model_copy(update={"copy_": engines})


def any_machine(data: st.DataObject) -> Arch:
    """One core or three, whose copy engines have any rank."""
    sync, cores = (data.draw(st.sampled_from(n)) for n in (["tokens", "interlock"], [1, 3]))
    arch = machine(types=("fp32",), cores=cores, sync=sync)
    return with_engines(arch, lambda: {"rank": data.draw(st.integers(1, 4))})


WITHOUT = with_engines(FLOATS, lambda: {"indirect": None})
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
    arch = any_machine(data)
    graph = lower(prepared(proto, "net"), "fp32", Lower(compared=1000))
    nests = CopyRows().apply(graph, WITHOUT)
    assert not any(isinstance(step, HostNode) for step in nests.steps)
    (wanted,) = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_array_equal(run(nests, feeds)["y"], wanted)
    found = compiled(proto, changed(arch, "host", latency=Delay(1e9, True)), **feeds)
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


# New rows of a cache at places that are inputs: alone, or compared with every place.

WITH = machine(types=("fp32",), vector={"types": ("fp32", "int32", "int8")})


def scattered(past: tuple[int, ...], rows: int, given: bool, **attributes: Any) -> onnx.ModelProto:
    """One TensorScatter, by default along the second axis from the end."""
    new = list(past)
    new[attributes.get("axis", -2)] = rows
    at, port = (", at", f", int64[{past[0]}] at") if given else ("", "")
    cache = f"float{[*past]}"
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 24]>
        g ({cache} past, float{new} new{port}) => ({cache} y)
        {{ y = TensorScatter (past, new{at}) }}""")
    found = [helper.make_attribute(name, value) for name, value in attributes.items()]
    proto.graph.node[0].attribute.extend(found)
    return proto


def sampled(proto: onnx.ModelProto, seed: int, last: int) -> dict[str, np.ndarray]:
    """Numbers, and places from 0 to `last`."""
    found = feeds_of(proto)
    if "at" in found:
        found["at"] = np.random.default_rng(seed).integers(0, last + 1, found["at"].shape)
    return found


@settings(max_examples=40)
@given(st.data())
def test_rows_lie_where_onnx_puts_them(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([(), (2,), (1, 3)]))
    length, rows = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 2))
    circular = data.draw(st.booleans())
    attributes: dict[str, Any] = {"mode": "circular"} if circular else {}
    if not heads and data.draw(st.booleans()):
        attributes["axis"] = 1
    proto = scattered((2, *heads, length, 3), rows, data.draw(st.booleans()), **attributes)
    feeds = sampled(proto, data.draw(st.integers(0, 9)), length - 1 if circular else length - rows)
    (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    graph = lower(prepared(proto, "net"), "fp32")
    for arch in (WITH, with_engines(WITH, lambda: {"indirect": None})):
        nests = ReadRows().apply(CopyRows().apply(graph, arch)).ir
        assert not any(isinstance(step, HostNode) and step.pick is None for step in nests.steps)
        np.testing.assert_array_equal(run(nests, feeds)["y"], expected)


def made_by(proto: onnx.ModelProto, arch: Arch, last: int) -> CompileResult:
    """The verified program, which computes what ONNX says."""
    feeds = sampled(proto, 0, last)
    made, found = executed(prepared(proto, "net"), feeds, arch, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), atol=1e-6)
    return made


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(("mode", "rows"), [("linear", 1), ("linear", 12), ("circular", 1)])
def test_a_cache_of_fixed_room_takes_its_new_rows_and_nothing_else(
    mode: str, rows: int, samples: int, cores: int
) -> None:
    """Samples of 3 heads; a row of 16 numbers is a burst. Loaded are the new rows, and a burst
    with each sample's place, for each core's part."""
    arch = machine(types=("fp32",), cores=cores)
    made = made_by(scattered((samples, 3, 64, 16), rows, True, mode=mode), arch, 64 - rows)
    assert not made.host
    traffic = simulate(made.program, arch).traffic
    assert traffic["dram.write"] == samples * 3 * rows * 64
    assert traffic["dram.read"] <= samples * 3 * rows * 64 + samples * cores * 64
    ports = (*made.program.inputs, *made.program.outputs)
    lies = {port.name: port.operand.address.base for port in ports}
    assert lies["past"] == lies["y"]


@pytest.mark.parametrize(
    ("place", "put"),
    [
        ("int64[1, 1, 1, 3] at", "y = ScatterND (past, at, row)"),
        ("int64[1, 1, 1, 1] at", "i = Expand (at, l) y = ScatterElements <axis = 2> (past, i, x)"),
    ],
)
def test_a_row_is_written_in_place_however_its_place_is_said(place: str, put: str) -> None:
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 1, 64, 16] past, float[1, 1, 1, 16] x, {place}) => (float[1, 1, 64, 16] y)
            <int64[4] l = {{1, 1, 1, 16}}> {{
            row = Identity (x)
            {put}
        }}"""
    )
    feeds = feeds_of(proto)
    feeds["at"] = np.array([0, 0, 37])[-feeds["at"].shape[-1] :].reshape(feeds["at"].shape)
    made, found = executed(proto, feeds, WITH, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), 0, 0)
    assert not made.host
    assert simulate(made.program, WITH).traffic["dram.write"] < 16 * 64


def test_a_row_of_constants_is_put_too() -> None:
    """A constant stands in the payload and is no input of its node; its row is copied by itself."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[64, 16] past, int64[1, 1] at) => (float[64, 16] y) <float[1, 16] row = {
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}> {
            y = ScatterND (past, at, row)
        }"""
    )
    feeds = feeds_of(proto) | {"at": np.array([[37]])}
    made, found = executed(proto, feeds, WITH, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), 0, 0)
    assert not made.host


def test_what_is_read_later_is_copied_first() -> None:
    """The cache as it was is an operand behind the new rows: then it may not be changed."""
    proto = scattered((1, 3, 64, 16), 1, True)
    proto.graph.node.append(helper.make_node("Sub", ["y", "past"], ["d"]))
    proto.graph.output.append(helper.make_tensor_value_info("d", TensorProto.FLOAT, (1, 3, 64, 16)))
    made = made_by(proto, WITH, 63)
    assert not made.host
    assert simulate(made.program, WITH).traffic["dram.write"] >= 2 * 3 * 64 * 64


@pytest.mark.parametrize("late", [False, True])
def test_places_that_the_network_computes_are_there_when_rows_are_put(late: bool) -> None:
    lines = ["n = Neg (x)", "at = Add (first, one)"][:: 1 if late else -1]
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 24]>
        g (float[1, 3, 64, 16] past, float[1, 3, 1, 16] x, int64[1] first)
            => (float[1, 3, 64, 16] y) <int64[1] one = {{1}}> {{
            {lines[0]}
            {lines[1]}
            y = TensorScatter <axis = 2> (past, n, at)
        }}"""
    )
    feeds = {**feeds_of(proto), "first": np.array([5])}
    made, found = executed(proto, feeds, WITH, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), 0, 0)
    assert simulate(made.program, WITH).traffic["dram.write"] < 64 * 64


def test_a_row_beyond_the_cache_is_said_with_its_node() -> None:
    proto = scattered((1, 3, 64, 16), 2, True)
    proto.graph.node[0].name = "cache.update"
    program = compile_model(prepared(proto, "net"), WITH, CompileOptions()).program
    with pytest.raises(
        NoSuchRow, match=r"cache.update \(TensorScatter\): index 63 is out of range"
    ):
        execute(program, sampled(proto, 0, 0) | {"at": np.array([63])}, WITH)


@settings(max_examples=20)
@given(st.data())
def test_rows_of_a_computed_table(data: st.DataObject) -> None:
    """ScatterND of whole rows, into what the network makes or is given, of what it makes or is
    given: by any engine's rank, on one core or three, with what others make of the result."""
    row = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(1, 2)))]
    count, rows = data.draw(st.integers(40, 60)), data.draw(st.integers(1, 5))
    table, update = data.draw(st.sampled_from(["x", "t"])), data.draw(st.sampled_from(["u", "v"]))
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float{[count, *row]} x, int64[{rows}, 1] i, float{[rows, *row]} u)
            => (float{[count, *row]} z, float{[count, *row]} s) {{
            t = Relu (x)
            v = Neg (u)
            s = ScatterND ({table}, i, {update})
            z = Add (s, t)
        }}"""
    )
    arch = any_machine(data)
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    feeds = {
        "x": random.standard_normal((count, *row)).astype(np.float32),
        "u": random.standard_normal((rows, *row)).astype(np.float32),
        "i": random.permutation(np.arange(-count, 0))[:rows, None],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "COMPARED", 0)
        made, found = executed(proto, feeds, arch, CompileOptions())
    agree(found, ReferenceEvaluator(proto).run(None, feeds), 1e-6, 0)
    assert not made.host
