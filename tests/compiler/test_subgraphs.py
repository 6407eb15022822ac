"""What an If, a Loop or a Scan makes has a shape: found through its body, counted, or declared."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from machines import machine
from networks import model_of
from one_node import agree, executed, reference

from archgen.check.reference import sample_inputs
from archgen.schema import load_arch
from compiler.api import CompileOptions, compile_model
from compiler.frontend.importer import Load, load
from compiler.lowering.lower import lower
from compiler.options import stages_for
from compiler.tensor_ir.nest import HostNode
from simmodel.execute import execute
from simmodel.verify import verify

ON = "co = Identity (c)"


def loop(results: str, body: str, *, of: str = "n, t, x", takes: str = "float[1,8] v") -> str:
    made = ", ".join(f"float[1,8] {name}" for name in ("vo", "so")[: results.count(",") + 1])
    return (
        f"{results} = Loop ({of}) <body = b (int64 i, bool c, {takes}) "
        f"=> (bool co, {made}) {{ {body} }}>"
    )


CONSTANTS = "<int64 n = {3}, bool t = {1}, int64[1] zero = {0}, float two = {2}, float far = {100}>"
GROWS = f"{ON} k = Identity (v) vo = Concat <axis = 0> (k, x)"
Shapes = dict[str, tuple[int, ...]]
SHAPES: dict[str, tuple[str, str, Shapes]] = {
    "counted": (
        "g (float[1,8] x) => (float[1,8] y, float[3,1,8] s)",
        loop("y, s", f"{ON} vo = Mul (v, two) so = Tanh (vo)"),
        {"y": (1, 8), "s": (3, 1, 8)},
    ),
    "inside": (
        "g (float[1,8] x) => (float[1,8] y)",
        loop("k", f"{ON} vo = Mul (v, two)") + " y = Relu (k)",
        {"k": (1, 8)},
    ),
    "while": (
        "g (float[1,8] x) => (float[1,8] y)",
        loop("y", "vo = Add (v, v) a = Abs (vo) m = ReduceMax <keepdims = 0> (a) "
                  "co = Less (m, far)", of=", t, x"),
        {"y": (1, 8)},
    ),
    "other extents": (
        "g (float[2,8] x) => (float[2,8] y)",
        loop("y", f"{ON} k = Shape (v) e = Exp (v) vo = Reshape (e, k)"),
        {"y": (2, 8)},
    ),
    "grows": (
        "g (float[1,8] x) => (float[4,8] y)",
        loop("y", GROWS),
        {"y": (4, 8)},
    ),
    "nested": (
        "g (float[1,8] x) => (float[1,8] y)",
        loop("y", f"{ON} k = Loop (n, t, v) <body = d (int64 j, bool f, float[1,8] w) "
                  "=> (bool fo, float[1,8] wo) { fo = Identity (f) wo = Add (w, x) }> "
                  "vo = Relu (k)"),
        {"y": (1, 8)},
    ),
    "scan": (
        "g (float[4,8] x) => (float[8] h, float[8,4] y)",
        "z = ReduceSum <keepdims = 0> (x, zero) h, y = Scan (z, x) <num_scan_inputs = 1, "
        "scan_output_axes = [1], body = b (float[8] s, float[8] e) => (float[8] so, float[8] o) "
        "{ so = Add (s, e) o = Sigmoid (so) }>",
        {"h": (8,), "y": (8, 4)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_results_of_bodies_have_shapes_and_run(name: str) -> None:
    head, nodes, expected = SHAPES[name]
    proto = model_of(f"{head} {CONSTANTS} {{ {nodes} }}")
    assert_shapes_and_results(proto, expected)


OLD: dict[str, tuple[int, str, str, Shapes]] = {
    "attributes in a body": (
        11,
        "g (float[1,8] x) => (float[1,8] y)",
        loop("y", f"{ON} e = Unsqueeze <axes = [0]> (v) f = Squeeze <axes = [0]> (e) "
                  "vo = Tanh (f)"),
        {"y": (1, 8)},
    ),
    "samples in front of a scan": (
        8,
        "g (float[2,8] z, float[2,4,8] x) => (float[2,8] h, float[2,4,8] y)",
        'h, y = Scan ("", z, x) <num_scan_inputs = 1, body = b (float[8] s, float[8] e) '
        "=> (float[8] so, float[8] o) { so = Add (s, e) o = Sigmoid (so) }>",
        {"h": (2, 8), "y": (2, 4, 8)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_bodies_keep_the_forms_of_their_operator_set(name: str) -> None:
    opset, head, nodes, expected = OLD[name]
    assert_shapes_and_results(model_of(f"{head} {CONSTANTS} {{ {nodes} }}", opset), expected)


def assert_shapes_and_results(proto: onnx.ModelProto, expected: Shapes) -> None:
    """Shapes of nodes that are not unfolded, results of those that are where they can be."""
    loaded = load(proto, "old", Load(unroll=1))
    found = {str(v.name): v.shape.numpy() for node in loaded.graph for v in node.outputs if v.shape}
    assert {value: found[value] for value in expected} == expected

    inputs = {name: values / 8 for name, values in sample_inputs(proto).items()}
    _, outputs = executed(proto, inputs, load_arch("stcp920"), CompileOptions("fp16"))
    agree(outputs, reference(proto, inputs), 5e-3, 5e-3)


BRANCHES = (
    "y = If (c) <then_branch = a () => (float[2,8] u) { u = Tanh (x) }, "
    "else_branch = b () => (float[2,8] w) { BODY }>"
)
SCAN = (
    "h, y, r = Scan (z, x, x) <num_scan_inputs = 2, scan_input_axes = [1, -1], "
    "scan_input_directions = [0, 1], scan_output_axes = [1, 0], scan_output_directions = [1, 0], "
    "body = b (float[4] s, float[4] e, float[4] f) => (float[4] so, float[4] o, float[4] p) "
    "{ k = Constant <value = float[4] {1, 2, 3, 4}> () so = Add (s, e) "
    "o = Mul (so, k) p = Sub (f, s) }>"
)
NATIVE = {
    "rounds": (
        "(float[1,8] x) => (float[1,8] y, float[3,1,8] s)",
        loop("y, s", f"{ON} vo = Mul (v, two) so = Tanh (vo)"),
    ),
    "number of the round": (
        "(float[1,8] x) => (float[1,8] y)",
        loop("y", f"{ON} k = Cast <to = 1> (i) m = Add (k, two) vo = Mul (v, m)"),
    ),
    "a state handed through": (
        "(float[1,8] x) => (float[1,8] y, float[1,8] z)",
        "y, z = Loop (n, t, x, x) <body = b (int64 i, bool c, float[1,8] v, float[1,8] w) "
        f"=> (bool co, float[1,8] vo, float[1,8] w) {{ {ON} vo = Tanh (v) }}>",
    ),
    "inside of each other": SHAPES["nested"][:2],
    "growing": SHAPES["grows"][:2],
    "axes and directions": (
        "(float[4] z, float[4,6] x) => (float[4] h, float[4,6] y, float[6,4] r)", SCAN,
    ),
    "a choice": ("(float[2,8] x, bool c) => (float[2,8] y)",
                 BRANCHES.replace("BODY", "e = Neg (x) w = Mul (e, two)")),
    "a choice of the whole": ("(float[2,8] x, bool[1] c) => (float[2,8] y)",
                              BRANCHES.replace("BODY", "w = Relu (x)")),
}  # fmt: skip


@pytest.mark.parametrize("name", NATIVE)
def test_control_flow_that_is_known_runs_on_the_engines(name: str) -> None:
    head, nodes = NATIVE[name]
    proto = model_of(f"{head if head.startswith('g') else 'g ' + head} {CONSTANTS} {{ {nodes} }}")
    arch = machine()
    made = compile_model(proto, arch, CompileOptions("fp32", stages=stages_for(0)))
    verify(made.program, arch)
    assert not made.host
    for condition in (True, False):
        inputs = sample_inputs(proto)
        inputs |= {"c": np.full_like(inputs["c"], condition)} if "c" in inputs else {}
        agree(execute(made.program, inputs, arch), reference(proto, inputs), atol=1e-6)


def test_constants_of_a_body_are_there_once() -> None:
    head, nodes = NATIVE["axes and directions"]
    loaded = load(model_of(f"g {head} {CONSTANTS} {{ {nodes} }}"), "once")
    found = [v for v in loaded.graph.initializers.values() if v.shape == [4] and v.uses()]
    assert [len(value.uses()) for value in found] == [6]


UNCOUNTED = ("g (float[1,8] x, int64 k) => (float[1,8] y)", loop("y", f"{ON} vo = Abs (v)",
                                                                 of="k, t, x"))  # fmt: skip
MANY = " ".join(f"e{i + 1} = Neg (e{i})" for i in range(40))
HOSTS = {
    "how many rounds it has depends on data": UNCOUNTED,
    "its 3 steps have 6 operators, those of a network unfold into at most 5 (load: unroll)": (
        "g (float[1,8] x) => (float[1,8] y)", loop("y", f"{ON} vo = Abs (v)"),
    ),
    "its branches have 43 operators; of at most 32 both are computed": (
        "g (float[2,8] x, bool c) => (float[2,8] y)",
        BRANCHES.replace("BODY", f"e0 = Relu (x) {MANY} w = Abs (e40)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "operator",
    [
        "k, s = Scan (x, x) <num_scan_inputs = 1, body = b (float[4] v, float[4] e) => "
        "(float[4] vo, float[4] so) <float[4] w = {1, 2, 3, 4}> "
        "{ vo = Mul (v, w) so = Add (vo, e) }>",
        "k = If (t) <then_branch = b () => (float[4] r) <float[4] w = {1, 2, 3, 4}> "
        "{ r = Mul (x, w) }, else_branch = c () => (float[4] r) { r = Exp (x) }>",
    ],
    ids=["Scan", "If"],
)
def test_a_file_keeps_the_names_of_constants_in_its_bodies(operator: str) -> None:
    text = operator.replace("Scan (x, x)", "Scan (first, x)")
    given = "float[4] x" if "If" in operator else "float[4] first, float[3, 4] x"
    proto = model_of(
        f"g ({given}) => (float[4] y) <bool t = {{1}}, float[4] w = {{4, 3, 2, 1}}>"
        f"{{ {text} y = Add (k, w) }}"
    )
    before = proto.SerializeToString()
    load(proto, "net")
    assert proto.SerializeToString() == before


@pytest.mark.parametrize("reason", HOSTS)
def test_control_flow_is_left_to_the_host_with_the_reason(reason: str) -> None:
    head, nodes = HOSTS[reason]
    model = load(model_of(f"{head} {CONSTANTS} {{ {nodes} }}"), "host", Load(unroll=5))
    (host,) = lower(model, "fp32").steps
    assert isinstance(host, HostNode)
    assert host.reason == reason


DATA = "g (float[1,8] x, int64 k) => (float[Q,8] y"


def test_what_cannot_be_told_is_as_declared() -> None:
    head = DATA.replace("[Q,8]", "[2,8]")
    loaded = load(model_of(f"{head}) {CONSTANTS} {{ {loop('y', GROWS, of='k, t, x')} }}"), "said")
    assert loaded.graph.outputs[0].shape == [2, 8]
