"""What no engine can run goes to the host; what lies around it still compiles and agrees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from machines import machine
from networks import Net, check, feeds_of
from onnx import parser

from archgen.check.reference import run_node, run_reference, sample_inputs
from archgen.outcomes.points import Point
from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.codegen.host_pieces import called_in_time, first_tiles
from compiler.codegen.nodes import instructions
from compiler.codegen.program import PlacedGroup
from compiler.cost.overlap import host_cycles
from compiler.errors import Undecided
from compiler.estimate import network_bound
from compiler.explain.report import report
from compiler.frontend.importer import load
from compiler.frontend.reference_types import small_constant
from compiler.numerics.host_error import tied
from compiler.options import Stages
from compiler.schedule.residency.table import added
from compiler.target.place_on_host import PlaceOnHost
from compiler.tensor_ir.nest import Array
from simmodel.execute import execute, run
from simmodel.isa import HOST, Arrive, Await, HostCall, Item
from simmodel.machine.run import simulate
from simmodel.program.assembly import constant_data, print_program
from simmodel.program.assembly_reader import parse_program
from simmodel.verify import verify

KEPT = Stages(host=PlaceOnHost(kept="Acos, Asin, Atan, Equal, IsNaN, Mod, Not, Where"))
"""Operators that engines have as well stay on the host."""
HEADER = '<ir_version: 10, opset_import: ["" : 17]>\n'


def checked(
    text: str | onnx.ModelProto, arch_name: str = "stcp920", dtype: str = "fp16", **feeds: Any
) -> CompileResult:
    """Compile, verify, execute, compare with ONNX Runtime."""
    model = parser.parse_model(HEADER + text) if isinstance(text, str) else text
    arch = load_arch(arch_name)
    result = compile_model(model, arch, CompileOptions(dtype, stages=KEPT))
    verify(result.program, arch)
    inputs = sample_inputs(model) | feeds
    outputs = execute(result.program, inputs, arch, host=run_node)
    for name, expected in run_reference(model, inputs).items():
        assert outputs[name].shape == expected.shape and outputs[name].dtype == expected.dtype
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(outputs[name], expected, rtol=5e-3, atol=5e-3)
        else:
            np.testing.assert_array_equal(outputs[name], expected)
    return result


def calls(result: CompileResult) -> int:
    return sum(isinstance(item, HostCall) for item in result.program.cores[0])


def kinds(result: CompileResult) -> Sequence[str]:
    return [node.kind for node in result.host]


HOSTED = {
    "AffineGrid": """net (float[1,2,3] x) => (float[1,3,4,2] y) <int64[4] n = {1,3,3,4}>
        { y = AffineGrid (x, n) }""",
    "BatchNormalization": """net (float[3,2,4] x, float[2] s, float[2] b, float[2] m)
        => (float[3,2,4] y, float[2] n, float[2] w)
        { y, n, w = BatchNormalization <training_mode = 1> (x, s, b, m, s) }""",
    "Col2Im": """net (float[1,8,6] x) => (float[1,2,4,6] y) <int64[2] n = {4,6}, int64[2] k = {2,2}>
        { y = Col2Im <strides = [2,2]> (x, n, k) }""",
    "ConvTranspose": """net (float[1,2,4,4] x, float[2,3,2,2] w) => (float[1,3,5,5] y)
        { y = ConvTranspose (x, w) }""",
    "DeformConv": """net (float[1,2,4,4] x, float[2,2,2,2] w, float[1,8,3,3] o)
        => (float[1,2,3,3] y) { y = DeformConv (x, w, o) }""",
    "Det": "net (float[2,3,3] x) => (float[2] y) { y = Det (x) }",
    "GridSample": """net (float[1,2,4,4] x, float[1,3,3,2] p) => (float[1,2,3,3] y)
        { y = GridSample (x, p) }""",
    "MaxPool": """net (float[1,2,6] x) => (float[1,2,5] y, int64[1,2,5] i)
        { y, i = MaxPool <kernel_shape = [2]> (x) }""",
    "MaxUnpool": """net (float[1,1,2] x) => (float[1,1,4] y) <int64[1,1,2] i = {1,2}>
        { y = MaxUnpool <kernel_shape = [2], strides = [2]> (x, i) }""",
    "NegativeLogLikelihoodLoss": """net (float[4,3] x) => (float y) <int64[4] t = {2,0,1,2}>
        { y = NegativeLogLikelihoodLoss (x, t) }""",
    "ReverseSequence": """net (float[4,3] x) => (float[4,3] y) <int64[3] n = {4,2,1}>
        { y = ReverseSequence (x, n) }""",
    "RoiAlign": """net (float[1,2,6,6] x) => (float[1,2,2,2] y)
        <float[1,4] r = {0.5,1,4,5}, int64[1] b = {0}>
        { y = RoiAlign <output_height = 2, output_width = 2> (x, r, b) }""",
    "SoftmaxCrossEntropyLoss": """net (float[4,3] x) => (float y) <int64[4] t = {2,0,1,2}>
        { y = SoftmaxCrossEntropyLoss (x, t) }""",
    "TfIdfVectorizer": """net (int64[2,5] x) => (float[2,3] y) { y = TfIdfVectorizer <mode = "TF",
        min_gram_length = 1, max_gram_length = 1, max_skip_count = 0, ngram_counts = [0],
        ngram_indexes = [0,1,2], pool_int64s = [1,2,3]> (x) }""",
    "Trilu": "net (float[3,4] x, int64 k) => (float[3,4] y) { y = Trilu (x, k) }",
}
"""Operators, or uses of them, that have no decomposition: operator -> network."""


@pytest.mark.parametrize("operator", HOSTED)
def test_operators_without_decomposition_are_calls_of_the_host(operator: str) -> None:
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 22]>\n' + HOSTED[operator])
    assert kinds(checked(model)) == [operator]


def test_calls_are_in_the_estimate() -> None:
    result = checked("""
        g (int64[64, 512] i, float[64, 512] x) => (float[64, 512] y)
        <int64 two = {2}>
        { m = Mod (i, two)  f = Cast <to = 1> (m)  s = Relu (x)  t = Relu (s)  y = Add (t, f) }
    """)
    arch = load_arch("stcp920")
    taken = simulate(result.program, arch)
    (host,) = (engine for engine in taken.engines if engine.core is None)
    assert host.busy > taken.cycles / 2
    assert network_bound.expected(result, arch) == pytest.approx(taken.cycles, rel=0.05)


def test_nothing_overlaps_with_a_call_of_the_host() -> None:
    net = Net()
    x = net.op("Relu", net.op("MatMul", net.input(64, 512), net.weight(512, 256)))
    x = net.op("Sigmoid", net.op("MatMul", x, net.weight(256, 256)))
    x = net.op("MatMul", net.op("Asin", x), net.weight(256, 512))
    result = checked(net.model(x))
    assert result.search is not None and kinds(result) == ["Asin"]
    arch, prices = load_arch("stcp920"), result.search.costs
    decided = {made.step: made.group for made in result.decisions}
    steps = [decided.get(at, step) for at, step in enumerate(result.steps)]
    assert any(prices.overlap_ends(made.group)[0] for made in result.decisions)
    groups = added([step for step in steps if not isinstance(step, PlacedGroup)], prices)
    assert sum(group.adds for group in report(result, arch)) == pytest.approx(groups)
    calls = sum(host_cycles(call, result.search.graph.tensors, arch) for call in result.host)
    assert network_bound.expected(result, arch) == pytest.approx(groups + calls)
    late = changed(arch, {"host.per_inference": "1 ms"})
    assert network_bound.expected(result, late) == pytest.approx(groups + calls + late.clock / 1e3)


def test_types_that_the_machine_lacks_stay_on_the_host() -> None:
    result = checked("""
        g (int64[4] i, float[4, 8] x) => (float[4, 8] y, bool[4] m)
        <int64 two = {2}>
        { h = Mod (i, two)  z = Cast <to = 7> (h)  m = Equal (z, two)  y = Relu (x) }
    """)
    assert "Mod" in kinds(result)
    assert calls(result) == 1


def test_host_nodes_with_a_view_between_are_one_call() -> None:
    result = checked("""
        g (float[4, 8] x) => (float[8, 4] y)
        {
          a = IsNaN (x)   t = Transpose (a)   n = Not (t)
          r = Relu (x)    s = Transpose (r)   y = Where (n, s, s)
        }
    """)
    assert len(result.host) >= 2
    assert calls(result) == 1


def test_the_host_waits_for_the_accelerator_in_between() -> None:
    result = checked("""
        g (float[4, 8] x) => (float[4, 8] y)
        { a = Acos (x)  c = Cos (x)  b = Relu (c)  d = Atan (b)  e = Add (a, d)  y = Abs (e) }
    """, x=np.linspace(-0.9, 0.9, 32, dtype=np.float32).reshape(4, 8))  # fmt: skip
    assert kinds(result) == ["Acos", "Atan"]
    assert calls(result) == 1


@pytest.mark.parametrize(
    "text",
    [
        "g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) { y = Relu (x) z = Identity (y) }",
        "g (float[4, 8] x) => (float[8, 4] y) { y = Transpose (x) }",
        "g (float[4, 8] x) => (float[4, 8] y) { y = Identity (x) }",
        "g (float[4, 8] x) => (float[2, 8] y) <int64[1] a = {1}, int64[1] b = {3}>"
        "{ y = Slice (x, a, b, a) }",
        "g (float[4] x) => (float[2] y, float[4] z) { y = Constant <value_floats = [1., 2.]> ()"
        " z = Abs (x) }",
        "g (float x) => (float y) { y = Exp (x) }",
        "g (float x) => (float y) { y = Acos (x) }",
        "g (float[4] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }",
        "g (float[0, 4] x, float[2, 4] z) => (float[2, 4] y) { y = Concat <axis = 0> (x, z) }",
        "g (float[0, 4] x) => (float[0, 4] y) { y = Relu (x) }",
        "g (float[4, 8] x) => (float[8, 8] y) { a = Acos (x) y = Concat <axis = 0> (a, a) }",
        "g (float[0, 4] x) => (float[0, 4] y) { y = Atan (x) }",
        "g (float[0, 4] x) => (float[1, 4] y) <int64[1] a = {0}> { y = ReduceSum (x, a) }",
        "g (float[4, 8] x, float[4, 8] z) => (float[4, 8] y, float[4, 8] w)"
        "{ y = Add (x, z) w = Add (x, z) }",
        "g (float[4, 8] x) => (float[8, 8] y) { a = Atan (x) y = Concat <axis = 0> (a, x) }",
        "g (float[4, 8] x, int64[1] k) => (float[4, 3] y, int64[4, 3] i)"
        "{ n = Constant <value_ints = [3]> () y, i = TopK (x, n) }",
    ],
)
def test_edges_of_the_graph(text: str) -> None:
    shape = () if "(float x)" in text else (4, 8)
    small = {"x": np.full(shape, 0.5, np.float32)}  # within what Acos is defined on
    checked(text, "stcp920", "fp16", **(small if "Acos" in text else {}))


def test_subgraphs_read_what_surrounds_them() -> None:
    # More operators than are worth computing in vain: the branches stay branches.
    many = "m0 = Neg (a)" + "".join(f" m{i} = Neg (m{i - 1})" for i in range(1, 34))
    result = checked(f"""
        g (float[4, 8] x, bool c) => (float[4, 8] y)
        {{
          a = Relu (x)
          b = If (c) <
            then_branch = t () => (float[4, 8] p) {{ {many} p = Add (m33, x) }},
            else_branch = e () => (float[4, 8] q) {{ q = Abs (a) }}
          >
          y = Sqrt (b)
        }}
    """, x=np.abs(np.random.default_rng(0).standard_normal((4, 8))).astype(np.float32))  # fmt: skip
    assert "If" in kinds(result)


@pytest.mark.parametrize("arch", ["gemmini-16", "gemmini-16-loop"])
def test_phases_of_a_transposed_convolution_go_together(arch: str) -> None:
    """Each phase of one that was left float is a nest that the machine lacks, and no value of the
    model."""
    random = np.random.default_rng(0)
    model = parser.parse_model(HEADER + """
        g (float[1, 8, 6, 6] x) => (float[1, 4, 12, 12] y)
        { a = Relu (x)  u = ConvTranspose <strides = [2, 2]> (a, w)  y = Abs (u) }
    """)  # fmt: skip
    weights = random.standard_normal((8, 4, 2, 2)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    result = checked(model, arch, "int8")
    assert kinds(result).count("ConvTranspose") == 1


def test_integer_operators_on_a_host_that_knows_only_onnx() -> None:
    """Weights with a zero point per channel have no nest."""
    model = parser.parse_model(HEADER + """
        g (uint8[1, 3, 6, 6] x) => (uint8[1, 2, 4, 4] y)
        <float xs = {0.1}, uint8 xz = {120}, float[2] ws = {0.02, 0.03}, uint8[2] wz = {130, 120},
         float ys = {0.2}, uint8 yz = {128}>
        {
          a = DequantizeLinear (x, xs, xz)  b = DequantizeLinear <axis = 0> (w, ws, wz)
          c = Conv (a, b)  d = Relu (c)  y = QuantizeLinear (d, ys, yz)
        }
    """)  # fmt: skip
    weights = np.random.default_rng(0).integers(0, 255, (2, 3, 3, 3)).astype(np.uint8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    result = checked(model, "cocco-simba-1c", "int8")
    assert kinds(result) == ["QConv"]
    assert result.host[0].operations == 2 * 32 * 27


# What a host operator may be off by is measured: its constants are moved, and what moves then.


def deviations(text: str, *inputs: Array) -> Array:
    """What the result of a network moves by at most."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> host {text}')
    (found,) = tied(run_node, proto.SerializeToString(), list(inputs))
    return found


def test_an_integer_moves_where_its_scale_puts_it_on_a_tie() -> None:
    text = """(float[3] x) => (int8[n] y) <float scale = {0.5}, int8 zero = {0}>
      { y = QuantizeLinear (x, scale, zero) }"""
    found = deviations(text, np.array([1.0, 1.25, 1.4], np.float32))
    assert found.tolist() == [0, 1, 0]  # 2.5 may be 2 or 3


def test_ratios_of_extents_are_not_rounded() -> None:
    text = """(float[1,1,2,2] x) => (float[a,b,c,d] y) <float[4] scales = {1, 1, 2, 2}>
      { y = Resize <mode = "nearest"> (x, , scales) }"""
    found = deviations(text, np.ones((1, 1, 2, 2), np.float32))
    assert found.shape == (1, 1, 4, 4) and not found.any()


def test_what_depends_on_a_threshold_may_be_anything() -> None:
    text = """(float[3] x) => (int64[1,n] y) <float limit = {1}>
      { large = Greater (x, limit) y = NonZero (large) }"""
    assert np.isinf(deviations(text, np.array([0, 1, 2], np.float32))).all()


def test_a_tie_behind_a_mean_moves_though_both_scales_round_alike() -> None:
    """Means of 2.25 and 2 over 4 steps of a half: 4.5 steps may be 4 or 5."""
    text = """(float[1,2,4,1] x) => (int8[a,b,c,d] y)
      <float scale = {0.1}, float half = {0.05}, int8 zero = {0}> {
        q = Cast <to = 3> (x)
        d = DequantizeLinear (q, scale)
        p = GlobalAveragePool (d)
        y = QuantizeLinear (p, half, zero) }"""
    given = np.array([[1, 2, 3, 3], [1, 2, 3, 2]], np.float32).reshape(1, 2, 4, 1)
    assert deviations(text, given).ravel().tolist() == [1, 0]


def test_numbers_without_a_name_of_their_own_have_that_of_their_value() -> None:
    """As passes leave them: a product of integers on the host lost its weights."""
    weights = ir.Value(name="w", const_value=ir.tensor(np.ones((2, 3), np.int8)))
    named = small_constant(weights)
    assert named is not None and named.name == "w" and list(named.dims) == [2, 3]


# Tails whose sizes are known when they run: the host's, behind the program, with what it finds.

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
NONZERO = """
chosen (float[2, 3, 4] x) => (int64[3, k] places, float[m] values, float[2, 3, 4] y)
{ y = Relu (x)
  places = NonZero (y)
  rows = Transpose <perm = [1, 0]> (places)
  values = GatherND (y, rows) }
"""
"""y has places of its own, in the program; how many places are not 0 is known when it ran."""
BOXES = """
boxes (float[1, 6, 4] b, float[1, 2, 6] s) => (int64[k, 3] picked)
<int64[1] most = {2}, float[1] overlap = {0.5}, float[1] least = {0.6}>
{ boxes = Abs (b)
  scores = Sigmoid (s)
  picked = NonMaxSuppression (boxes, scores, most, overlap, least) }
"""
COMPRESSED = """
compressed (float[3, 4] x, bool[3] which) => (float[k, 4] y, float[1] total)
<int64[1] axes = {0}>
{ more = Add (x, x)
  y = Compress <axis = 0> (more, which)
  sums = ReduceSum <keepdims = 0> (y, axes)
  total = ReduceMax <axes = [0]> (sums) }
"""
BACK = """
back (float[3, 4] x) => (float[k, 5] y)
<float[2, 5] w>
{ more = Add (x, x)
  places = NonZero (more)
  rows = Transpose <perm = [1, 0]> (places)
  real = Cast <to = 1> (rows)
  y = MatMul (real, w) }
"""
AGAIN = """
again (float[3, 4] x) => (int64[2, k] y)
{ more = Add (x, x)
  places = NonZero (more)
  rows = Transpose <perm = [1, 0]> (places)
  y = NonZero (rows) }
"""


def proto(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("text", [NONZERO, BOXES, COMPRESSED])
def test_results_have_the_size_that_they_turn_out_to_have(text: str, share: float) -> None:
    model, arch = proto(text), machine(types=("fp32",))
    made = compile_model(model, arch, CompileOptions(dtype="fp32"))
    feeds = {name: values + np.float32(4 * share - 2) for name, values in feeds_of(model).items()}
    if "which" in feeds:
        feeds["which"] = np.arange(3) < round(3 * share)
    wanted = run_reference(model, feeds)
    again = parse_program(print_program(made.program), constant_data(made.program))
    for program in (made.program, again):
        found = run(program, feeds, arch, run_node).outputs
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)


def test_the_host_is_reckoned_with_the_most_there_can_be() -> None:
    (call,) = compile_model(proto(BOXES), machine(types=("fp32",)), CompileOptions("fp32")).host
    assert call.kind == "Tail"
    assert call.reason.startswith("sizes behind NonMaxSuppression 'NonMaxSuppression_2'")
    assert call.reason.endswith("reckoned with the most there can be: picked [4, 3]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BACK,
         "node 'MatMul_4' (ai.onnx.MatMul) behind it would need what has no size on the engines"),
        (AGAIN,
         "how large what follows may become is not known: sizes behind it depend on data again, at "
         "node 'NonZero_3' (ai.onnx.NonZero)"),
        ("alone (float[2, 3] x) => (int64[2, k] y) { y = NonZero (x) }",
         "nothing stands before it that engines could do"),
    ],
)  # fmt: skip
def test_what_would_have_to_come_back_is_refused(text: str, why: str) -> None:
    model = parser.parse_model(HEAD + text)
    for value in model.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weights = onnx.numpy_helper.from_array(np.ones(shape, np.float32), value.name)
        model.graph.initializer.append(weights)
    with pytest.raises(Undecided) as refused:
        load(model, "net")
    assert "NonZero" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize(("arch", "dtype"), [("ascend-310-like", "fp16"), ("soma-edge", "int8")])
def test_a_study_verifies_what_leads_to_the_tail(arch: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "boxes.onnx"
    onnx.save(proto(BOXES), path)
    row = Workbench(STANDARD).run(Point("key", load_arch(arch), str(path), 1, dtype)).row
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 1), row


# Calls of the host in pieces, beside the tiles of the loop that reads what it makes.


@pytest.mark.parametrize(
    ("done", "latency", "each", "tiles"),
    [
        ([10, 20, 30, 40], 0, 20, (0, 1, 2, 3)),  # 10 + 4 x 20 = 90
        ([10, 20, 30, 40], 100, 20, (0,)),  # 140 + 4 x 20 = 220; two pieces: 240 and a tile
        # The host is slower: 450 + 4 x 60 in one; 350 and 500 + 60 in two; 550 + 60 in three.
        ([100, 200, 300, 400], 50, 60, (0, 3)),
        ([], 10, 10, ()),
    ],
)
def test_where_the_last_tile_ends_soonest(
    done: list[int], latency: int, each: int, tiles: tuple[int, ...]
) -> None:
    assert first_tiles(done, latency, each) == tiles


def test_calls_come_when_the_piece_before_is_awaited() -> None:
    calls = [HostCall(payload=0, origin=0, operations=n) for n in range(3)]
    opens = [Arrive(engine=HOST, barrier=name, origin=0) for name in ("a", "b", "c")]
    waits = [Await(engine="load", barrier=name, origin=1) for name in ("a", "b", "c")]
    host = [item for pair in zip(calls, opens, strict=True) for item in pair]
    expected: list[Item] = [
        calls[0], opens[0], calls[1], waits[0], opens[1], calls[2], waits[1], opens[2], waits[2]
    ]  # fmt: skip
    assert [*called_in_time([*host, *waits])] == expected
    assert [*called_in_time(host)] == host  # nobody waits for any
    late = Await(engine=HOST, barrier="d", origin=0)
    assert [*called_in_time([*host, late, calls[0]])] == [*host, late, calls[0]]


def test_cores_begin_with_the_first_piece() -> None:
    net = Net(quantized=True)
    image = net.input(1, 3, 96, 96)
    x = net.op("Conv", image, net.weight(32, 3, 5, 5), pads=[2] * 4)
    y = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    few = {"memories.local.size": "128 KiB", "host.latency": "1 us"}
    found = check(net.model(y), changed(load_arch("nvdla-2048"), few), "int8")
    program = found.compiled.program
    calls = [item for item in instructions(program.cores[0]) if isinstance(item, HostCall)]
    pieces = [call for call in calls if call.origin == calls[0].origin]
    assert len(pieces) > 2
    assert sum(call.outputs[0].elements for call in pieces) == 3 * 96 * 96
    host, conv = found.trace.origins[:2]
    assert host.kind == "QuantizeLinear" and conv.kind == "QConv" and conv.first < host.last / 2
    # The host writes pixels as the array reads them: no load moves them one by one.
    assert {call.outputs[0].strides[1:] for call in pieces} == {(1, 3 * 96, 3)}
