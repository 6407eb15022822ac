"""What inputs are held to be, which axis the batch binds, and what values they are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, parser
from role_nets import DECODER, GRAPH_NET, LEFT_OVER, PICTURE, SPEECH, STREAMING, net, saved

from archgen.api import states
from archgen.check.quantize import quantize
from archgen.check.reference import run_reference, sample_inputs
from archgen.models.load import BatchError, ModelError, SourceModel, open_model, roles_of
from archgen.models.roles import infer_roles


def shapes(model: SourceModel) -> dict[str, list[int]]:
    return {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.proto.graph.input
    }


def test_a_state_of_fixed_size_runs_as_it_is_and_in_a_batch(tmp_path: Path) -> None:
    path = saved(net(STREAMING), tmp_path)
    assert shapes(open_model(path, batch=1)) == {"frame": [1, 4, 10], "conv_cache": [2, 1, 4, 2]}
    batched = open_model(path, batch=3)
    assert shapes(batched) == {"frame": [3, 4, 10], "conv_cache": [2, 3, 4, 2]}
    made = run_reference(batched.proto, sample_inputs(batched.proto))
    assert made["y"].shape == (3, 4, 10)
    assert made["conv_cache_out"].shape == (2, 3, 4, 2)


def test_inputs_that_nothing_reads_are_no_batch(tmp_path: Path) -> None:
    path = saved(net(LEFT_OVER), tmp_path)
    assert shapes(open_model(path, batch=1))["mean_0"] == [16]
    assert shapes(open_model(path, batch=2)) == {
        "image": [2, 3, 8, 8], "mean_0": [16], "w_1": [4, 3, 3, 3]
    }  # fmt: skip


RECURRENCE = """
walk (float[8] h0, float[4,8] x) => (float[8] hn, float[4,8] y) {
  hn, y = Scan (h0, x) <num_scan_inputs = 1, body = b (float[8] h, float[8] e)
    => (float[8] ho, float[8] o) { ho = Add (h, e) o = Sigmoid (ho) }>
}
"""
"""A walk along time, from a state of as many features as data have."""
SUM = "kept (float[8] m, float[4,8] x) => (float[8] n) { s = ReduceSum (x) n = Add (m, s) }"


@pytest.mark.parametrize(("text", "roles"), [(RECURRENCE, {"h0": "state"}), (SUM, {"m": "state"})])
def test_a_state_alone_carries_no_batch(tmp_path: Path, text: str, roles: dict[str, str]) -> None:
    model = open_model(saved(net(text), tmp_path), batch=1, roles=roles)
    name = next(iter(shapes(model)))
    found = infer_roles(model.proto).roles[name]
    assert (shapes(model)[name], found.shown) == ([8], "state")
    assert "no batch: a state" in found.axis_evidence


def test_a_state_that_meets_the_batch_of_data_has_it() -> None:
    text = """
    walk (float[2,8] h0, float[2,4,8] x) => (float[2,8] hn, float[4,2,8] y) <float[4,4,1] w> {
      d = Conv (x, w)
      c = Transpose <perm = [1,0,2]> (d)
      hn, y = Scan (h0, c) <num_scan_inputs = 1, body = b (float[2,8] h, float[2,8] e)
        => (float[2,8] ho, float[2,8] o) { ho = Add (h, e) o = Sigmoid (ho) }>
    }
    """
    roles = infer_roles(net(text)).roles
    assert (roles["x"].shown, roles["h0"].axis) == ("data:0", 0)


SEQUENCE_FIRST = """
tagger (float[time, people, 4] x) => (float[time, people, 3] y)
<float[4, 3] w>
{ h = MatMul (x, w)
  y = Softmax <axis = 0> (h) }
"""


def test_a_shape_inside_that_fixes_the_batch_is_told(tmp_path: Path) -> None:
    # Shape inference takes Reshape's word; what comes out would follow the batch.
    proto = net("""
        net (float[1, 8] x) => (float[1, 4] y) <float[8, 8] w, float[8, 4] v, int64[2] s = {1, 8}> {
          a = MatMul (x, w)
          b = Reshape (a, s)
          c = Add (b, x)
          y = MatMul (c, v)
        }""")
    path = saved(proto, tmp_path)
    assert open_model(str(path), 1)
    with pytest.raises(BatchError, match=r"Reshape 'b' makes a fixed shape of another size"):
        open_model(str(path), 2)


def test_the_batch_may_be_another_axis(tmp_path: Path) -> None:
    path = saved(net(SEQUENCE_FIRST), tmp_path)
    with pytest.raises(ModelError, match="named 'people'"):
        open_model(path, batch=3, dims={"time": 5})
    model = open_model(path, batch=3, dims={"time": 5}, roles={"x": "batch:1"})
    assert shapes(model) == {"x": [5, 3, 4]}
    named = saved(net(SEQUENCE_FIRST.replace("people", "batch")), tmp_path, "named")
    assert shapes(open_model(named, batch=3, dims={"time": 5})) == {"x": [5, 3, 4]}


def test_what_is_stated_goes_over_evidence_and_into_the_model(tmp_path: Path) -> None:
    path = saved(net(STREAMING), tmp_path)
    plain = open_model(path, batch=1)
    stated = open_model(path, batch=1, roles={"conv_cache": "parameter"})
    assert stated.content_key != plain.content_key
    assert infer_roles(stated.proto).roles["conv_cache"].shown == "parameter"
    assert (sample_inputs(stated.proto)["conv_cache"] > 0).all()
    again = saved(stated.proto, tmp_path, "stated")
    assert roles_of(again).roles["conv_cache"].shown == "parameter"
    assert roles_of(again, roles={"conv_cache": "state:1"}).roles["conv_cache"].shown == "state:1"


RENAMED = """
renamed (float[1, 4] x, float[1, 4] a, float[1, 4] b)
  => (float[1, 4] y, float[1, 4] p, float[1, 4] q)
{ p = Add (x, b)
  q = Mul (x, a)
  y = Add (p, q) }
"""
"""Nothing tells that `a` is `p` in the next inference and `b` is `q`."""


def test_what_a_state_becomes_may_be_said(tmp_path: Path) -> None:
    path = saved(net(RENAMED), tmp_path)
    assert states(open_model(path)) == {}
    said = open_model(path, roles={"a": "state::p", "b": "state:0:q"})
    assert states(said) == {"a": "p", "b": "q"}
    roles = infer_roles(said.proto).roles
    assert (roles["a"].shown, roles["a"].evidence) == (
        "state:0",
        "as stated, it becomes output 'p'",
    )
    with pytest.raises(ModelError) as caught:
        open_model(path, roles={"a": "state::pp", "b": "data:0:q"})
    assert [line.replace(str(path), "net.onnx") for line in caught.value.mistakes] == [
        "--role a=state::pp: there is no output 'pp'; did you mean 'p'? (outputs: y, p, q) "
        "(net.onnx)",
        "--role b=data:0:q: only a state becomes an output, such as state::q (net.onnx)",
    ]


GIVEN_WEIGHTS = """
given (float[1, 4] x, float[4, 8] w, float[8] b) => (float[1, 8] y)
{ a = MatMul (x, w)
  y = Add (a, b) }
"""
MASKED = """
scores (float[batch, 4, 8] q, float[batch, 4, 8] k, float[1, 4, 4] mask) => (float[batch, 4, 4] p)
{ t = Transpose <perm = [0, 2, 1]> (k)
  s = MatMul (q, t)
  m = Add (s, mask)
  p = Softmax (m) }
"""
VOICE = """
voice (float[1, 1, 4] x, float[2, 1, 8] state) => (float[1, 1, 1, 8] y, float[2, 1, 8] stateN)
<float[1, 32, 4] w, float[1, 32, 8] r, int64 zero = {0}, int64 one = {1}, int64[1] first = {0}>
{ h0 = Gather <axis = 0> (state, zero)
  c0 = Gather <axis = 0> (state, one)
  h = Unsqueeze (h0, first)
  c = Unsqueeze (c0, first)
  y, yh, yc = LSTM <hidden_size = 8> (x, w, r, , , h, c)
  stateN = Concat <axis = 0> (yh, yc) }
"""
WHOLE_SET = """
set (float[n, 4] x) => (float[n, 4] y)
{ t = Transpose (x)
  s = MatMul (x, t)
  p = Softmax <axis = -1> (s)
  y = MatMul (p, x) }
"""
IN_PLACE = """
cached (float[1, 1, 8] x, float[1, 16, 8] cache, int64[1] pos) => (float[1, 16, 8] new_cache)
<int64[1, 1, 1] none = {0}, int64[3] single = {1, 1, 1}>
{ i = Reshape (pos, single)
  z = Mul (i, none)
  at = Concat <axis = -1> (z, i)
  new_cache = ScatterND (cache, at, x) }
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STREAMING, "frame=data:0 conv_cache=state:1"),
        (GRAPH_NET, "x=data edge_index=index"),
        (SPEECH, "input=index:0 input_lengths=data:0 scales=parameter"),
        (LEFT_OVER, "image=data:0 mean_0=parameter w_1=parameter"),
        (PICTURE, "image=data"),
        (DECODER, "input_ids=index:0 attention_mask=mask:0 position_ids=index:0 "
                  "past_key=state:0 past_value=state:0"),
        (GIVEN_WEIGHTS, "x=data:0 w=parameter b=parameter"),
        (MASKED, "q=data:0 k=data:0 mask=mask"),
        (VOICE, "x=data:1 state=state:1"),
        (WHOLE_SET, "x=data"),
        (IN_PLACE, "x=data:0 cache=state:0 pos=index"),
    ],
)  # fmt: skip
def test_roles_are_found_by_what_operators_do(text: str, expected: str) -> None:
    found = infer_roles(net(text)).roles
    assert " ".join(f"{name}={role.shown}" for name, role in found.items()) == expected


def test_a_cache_written_in_place_has_positions() -> None:
    assert infer_roles(net(IN_PLACE)).roles["pos"].high == 15


def test_an_output_that_fixes_the_batch_is_told(tmp_path: Path) -> None:
    proto = net(MASKED)
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    path = saved(proto, tmp_path)
    assert shapes(open_model(path, batch=1))["q"] == [1, 4, 8]
    with pytest.raises(BatchError, match=r"fixes that of its output 'p' at 1.*at --batch 1"):
        open_model(path, batch=2)


# Values.


def test_a_graph_network_is_given_edges_between_its_nodes(tmp_path: Path) -> None:
    model = open_model(saved(net(GRAPH_NET), tmp_path), dims={"N": 5, "E": 40})
    inputs = sample_inputs(model.proto)
    assert set(np.unique(inputs["edge_index"])) == set(range(5))
    assert run_reference(model.proto, inputs)["y"].shape == (5, 3)
    quantized = quantize(model, None, tmp_path)
    same = sample_inputs(quantized.proto)
    assert all(np.array_equal(same[name], inputs[name]) for name in inputs)


def test_a_decoder_is_given_places_and_words_it_has(tmp_path: Path) -> None:
    model = open_model(saved(net(DECODER), tmp_path), batch=2, dims={"new": 1, "past": 7, "all": 8})
    inputs = sample_inputs(model.proto)
    assert inputs["position_ids"].max() < 16
    assert (inputs["attention_mask"] == 1).all()
    assert 0 < inputs["past_key"].std() < 1
    assert run_reference(model.proto, inputs)["logits"].shape == (2, 1, 8)


def test_scales_are_positive(tmp_path: Path) -> None:
    model = open_model(saved(net(SPEECH), tmp_path), dims={"phonemes": 6})
    scales = sample_inputs(model.proto)["scales"]
    assert (scales > 0.5).all()
    assert (scales <= 1).all()
    assert np.isfinite(run_reference(model.proto, sample_inputs(model.proto))["y"]).all()


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Gather <axis = 1> (t, x)", 0, 4),
        ("i = Add (x, three) y = Gather (t, i)", 0, 5),
        ("i = Sub (x, three) y = Gather (t, i)", 0, 11),
        ("i = Mod (x, three) y = Gather (t, i)", 0, 5),
        ("i = Clip (x, three, eight) y = Gather (t, i)", 0, 0),
        ("i = Cast <to = 6> (x) j = Abs (x) y = Gather (t, i)", 0, 8),
        ("a = Gather (t, x) y = Gather <axis = 1> (t, x)", 0, 4),
        ("n = Less (x, zero) p = Add (x, nine) i = Where (n, p, x) y = Gather (t, i)", -9, -1),
        ("i = Unsqueeze (x, last) y = GatherND (t, i)", 0, 8),
        ("i = Unsqueeze (x, last) m = Mod (i, three) p = Concat <axis = -1> (m, i) "
         "y = GatherND (t, p)", 0, 4),
        ("y = OneHot <axis = -1> (x, eight, values)", 0, 7),
    ],
)  # fmt: skip
def test_indices_stay_where_operators_can_take_them(body: str, low: int, high: int) -> None:
    constants = "int64 zero = {0}, int64 three = {3}, int64 eight = {8}, int64 nine = {9}"
    lists = "int64[1] last = {-1}, float[2] values, float[9, 5] t"
    proto = net(f"g (int64[400] x) => (y)\n<{constants}, {lists}>\n{{ {body} }}")
    role = infer_roles(proto).roles["x"]
    assert (role.kind, role.low, role.high) == ("index", low, high)
    assert "y" in run_reference(proto, sample_inputs(proto))


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Div (a, b)", 1, 7),
        ("y = Mod (a, b)", 1, 7),
        ("i = Unsqueeze (b, one) d = Squeeze (i, one) y = Div (a, d)", 1, 7),
        ("d = Add (b, three) y = Div (a, d)", 0, 4),
        ("d = Sub (b, three) y = Mod (a, d)", 4, 10),
        ("d = Mod (b, three) y = Div (a, d)", 1, 1),
        ("d = Add (b, b) y = Div (a, d)", 1, 1),
        ("d = Mul (b, b) y = Div (a, d)", 1, 1),
        ("d = Max (b, three) y = Div (a, d)", 1, 1),
        ("d = Div (a, b) g = Gather (t, b) y = Add (d, g)", 1, 4),
    ],
)  # fmt: skip
def test_whole_numbers_are_divided_by_none_that_is_zero(body: str, low: int, high: int) -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[1,64] a, int64[1,64] b) => '
        "(int64[1,64] y) <int64[1] one = {1}, int64 three = {3}, int64[5] t = {1,2,3,4,5}> "
        f"{{ {body} }}"
    )
    inputs = sample_inputs(proto)
    assert (inputs["b"].min(), inputs["b"].max()) == (low, high)
    assert inputs["a"].min() == 0
    run_reference(proto, inputs)


def test_indices_are_followed_into_branches_and_functions() -> None:
    branch = parser.parse_graph("branch () => (float[4, 2] z) { z = Gather (t, x) }")
    proto = net("g (bool on, int64[4] x) => (float[4, 2] y)\n<float[6, 2] t>\n{ a = Identity (t) }")
    node = helper.make_node("If", ["on"], ["y"], then_branch=branch, else_branch=branch)
    proto.graph.node.append(node)
    found = infer_roles(proto).roles
    assert (found["x"].kind, found["x"].high) == ("index", 5)
    assert found["on"].evidence == "chooses the branch of If"
    inside = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (int64[4] x) => (float[4, 2] y) <float[6, 2] t> { y = own.pick (t, x) }\n"
        '<domain: "own", opset_import: ["" : 17]> pick (t, x) => (y) { y = Gather (t, x) }'
    )
    assert infer_roles(inside).roles["x"].high == 5


# Only the batch.

EXTENTS = st.integers(2, 5)
READINGS = ("", "z = Softmax <axis = 0> (other)", "z = ReduceMax <axes = [0]> (other)",
            "z = Gather <axis = 0> (other, zero)", "z = MatMul (whole, other)")  # fmt: skip


@st.composite
def networks(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Data with a free batch beside an input of any shape that is read in any of some ways."""
    rank = draw(st.integers(1, 3))
    fixed = [draw(EXTENTS) for _ in range(rank)]
    read = draw(st.sampled_from(READINGS[: 5 if rank == 2 else 4]))
    free = draw(st.booleans())
    more = ", z" if read else ""
    proto = net(f"""g (float[batch, 4] x, float{fixed} other) => (float[batch, 4] y{more})
      <int64 zero = {{0}}, float[1, {fixed[0]}] whole> {{ y = Relu (x) {read} }}""")
    if free:
        first = proto.graph.input[1].type.tensor_type.shape.dim[0]
        first.dim_param = draw(st.sampled_from(["side", "count", "?"]))
    return proto, {"other:0": fixed[0]} if free and read else {}


@settings(max_examples=60, database=None)
@given(made=networks(), batch=st.integers(1, 6))
def test_binding_changes_no_axis_but_the_batch(
    tmp_path_factory: pytest.TempPathFactory,
    made: tuple[onnx.ModelProto, dict[str, int]],
    batch: int,
) -> None:
    proto, dims = made
    path = saved(proto, tmp_path_factory.mktemp("nets"))
    told = roles_of(path)
    bound = shapes(open_model(path, batch, dims))
    assert bound["x"] == [batch, 4]
    assert told.roles["other"].axis is None
    for extent, size in zip(told.inputs["other"].dims, bound["other"], strict=True):
        assert size == (extent if isinstance(extent, int) else dims.get("other:0", 1))
