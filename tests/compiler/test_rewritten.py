"""Operators of ONNX that a Python function says in simpler ones, against ONNX's own meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import cleaned

from archgen.check.reference import run_node, run_reference
from compiler.load import load
from compiler.nest.interp import run
from compiler.nest.ir import Array, HostNode
from compiler.ops.lower import lower

DET = """
<ir_version: 10, opset_import: ["" : 22]>
g (float[{batch}{n},{n}] x) => (float[{shape}] y) {{ y = Det (x) }}
"""


@given(st.integers(1, 4), st.sampled_from([(), (1,), (3,), (2, 2)]), st.integers(0, 99))
@settings(max_examples=25)
def test_determinants_of_few_rows_are_those_of_onnx(
    n: int, batch: tuple[int, ...], seed: int
) -> None:
    said = "".join(f"{each}," for each in batch)
    proto = onnx.parser.parse_model(DET.format(batch=said, n=n, shape=said.rstrip(",")))
    x = np.random.default_rng(seed).normal(size=(*batch, n, n)).astype(np.float32)
    graph = lower(load(proto, "g"), "fp32")
    assert not any(isinstance(step, HostNode) for step in graph.steps)
    y = run(graph, {"x": x}, run_node)["y"]
    assert y.shape == batch
    np.testing.assert_allclose(y, np.linalg.det(x.astype(np.float64)), rtol=1e-5, atol=1e-5)


def computed(text: str, feeds: dict[str, Array]) -> list[Array]:
    """What the nests of a network compute, none of them the host's."""
    graph = lower(cleaned(load(onnx.parser.parse_model(text), "g")), "fp32")
    # Rows that could be copied by a list are compared with it.
    ways = [step.otherwise if isinstance(step, HostNode) else (step,) for step in graph.steps]
    assert all(ways), graph.steps
    graph = replace(graph, steps=tuple(nest for way in ways for nest in way))
    return [*run(graph, feeds, run_node).values()]


def agrees(text: str, feeds: dict[str, Array], atol: float = 1e-5) -> None:
    """With ONNX Runtime, or ONNX's evaluator where that has no kernel."""
    wanted = run_reference(onnx.parser.parse_model(text), feeds)
    for got, values in zip(computed(text, feeds), wanted.values(), strict=True):
        assert got.shape == values.shape and got.dtype == values.dtype
        np.testing.assert_allclose(got, values, rtol=1e-4, atol=atol)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


ROI = """<ir_version: 10, opset_import: ["" : 22]>
  g (float[{batch},3,5,6] x, float[4,4] r, int64[4] b) => (float[4,3,{bins}] y) {{
    y = RoiAlign <mode = "{mode}", output_height = {high}, output_width = {wide},
                  sampling_ratio = 2, spatial_scale = 0.5,
                  coordinate_transformation_mode = "{how}"> (x, r, b) }}"""


@given(
    st.sampled_from(["avg", "max"]), st.sampled_from(["half_pixel", "output_half_pixel"]),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=20)
def test_regions_are_sampled_also_beyond_the_image(
    mode: str, how: str, high: int, wide: int, batch: int, seed: int
) -> None:
    text = ROI.format(batch=batch, bins=f"{high},{wide}", mode=mode, high=high, wide=wide, how=how)
    random = np.random.default_rng(seed)
    corner = random.uniform(-6, 8, (4, 2))
    rois = np.concatenate([corner, corner + random.uniform(0, 9, (4, 2))], axis=1)
    which = random.integers(0, batch, 4)
    agrees(text, {"x": normal(seed, batch, 3, 5, 6), "r": rois.astype(np.float32), "b": which})


def test_regions_with_as_many_samples_as_they_are_large_are_the_hosts() -> None:
    text = ROI.format(batch=1, bins="2,2", mode="avg", high=2, wide=2, how="half_pixel")
    proto = onnx.parser.parse_model(text.replace("sampling_ratio = 2", "sampling_ratio = 0"))
    (host,) = lower(load(proto, "g"), "fp32").steps
    assert isinstance(host, HostNode)
    assert "depends on its size" in host.reason


DEFORMED = """<ir_version: 10, opset_import: ["" : 22]>
  g (float[2,4,5,6] x, float[6,{across},2,3] w, float[2,{moves},{high},{wide}] o, float[6] b,
     float[2,{masks},{high},{wide}] m) => (float[2,6,{high},{wide}] y) {{
    y = DeformConv <group = {group}, offset_group = {offsets}, strides = [{step}, 1],
                    pads = [1, 0, 0, 1], dilations = [{apart}, 1]> (x, w, o, b{mask}) }}"""


@given(
    st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.integers(1, 2), st.integers(1, 2),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=6)
def test_windows_whose_places_move(
    group: int, offsets: int, step: int, apart: int, masked: bool, seed: int
) -> None:
    high, wide = (5 + 1 - apart - 1) // step + 1, 6 + 1 - 3 + 1
    text = DEFORMED.format(
        across=4 // group, moves=offsets * 12, masks=offsets * 6, high=high, wide=wide, group=group,
        offsets=offsets, step=step, apart=apart, mask=", m" if masked else "",
    )  # fmt: skip
    shapes = {"x": (2, 4, 5, 6), "w": (6, 4 // group, 2, 3), "o": (2, offsets * 12, high, wide),
              "b": (6,), "m": (2, offsets * 6, high, wide)}  # fmt: skip
    agrees(text, {name: normal(seed, *shape) for name, shape in shapes.items()}, atol=1e-4)


def test_what_was_largest_goes_back_to_its_place_negative_or_not() -> None:
    """Windows overlap: one element is the largest of several."""
    text = """<ir_version: 10, opset_import: ["" : 22]>
      g (float[1,1,5] x) => (float[1,1,7] y) <int64[3] s = {1, 1, 7}> {
        m, i = MaxPool <kernel_shape = [2]> (x)
        y = MaxUnpool <kernel_shape = [2]> (m, i, s) }"""
    x = np.array([[[-3, -1, -4, -2, 5]]], np.float32)
    (y,) = computed(text, {"x": x})
    assert y.tolist() == [[[0, -1, 0, -2, 5, 0, 0]]]


def test_bits_of_whole_numbers_are_kept() -> None:
    text = """<ir_version: 12, opset_import: ["" : 26]>
      g (int8[3] x) => (uint8[3] y) { y = BitCast <to = 2> (x) }"""
    (y,) = computed(text, {"x": np.array([-1, -128, 5], np.int8)})
    assert y.tolist() == [255, 128, 5]


def test_moments_of_a_batch_move_the_running_ones() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
      g (float[3,2,4] x, float[2] s, float[2] b, float[2] m, float[2] v)
        => (float[3,2,4] y, float[2] n, float[2] w) {
        y, n, w = BatchNormalization <training_mode = 1, momentum = 0.75> (x, s, b, m, v) }"""
    feeds = {name: normal(3, 2) for name in "sbm"}
    agrees(text, {"x": normal(4, 3, 2, 4), **feeds, "v": np.abs(normal(5, 2))})


def test_a_sum_over_no_axes_is_what_it_reads() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
      g (float[2,3] x) => (float[2,3] y) <int64[0] axes = {}> {
        y = ReduceSum <noop_with_empty_axes = 1> (x, axes) }"""
    agrees(text, {"x": normal(6, 2, 3)})


FLEX = """<ir_version: 12, opset_import: ["" : 24, "ai.onnx.preview" : 1]>
  g (float[1,4,3,8] q, float[1,2,5,8] k, float[1,2,5,6] v) => (float[1,4,3,6] y) {
    y = ai.onnx.preview.FlexAttention <scale = 0.5, score_mod = m (float[1,4,3,5] s)
        => (float[1,4,3,5] t) <float half = {0.5}> { t = Mul (s, half) }> (q, k, v) }"""


def test_attention_with_a_score_of_the_models_own() -> None:
    shapes = {"q": (1, 4, 3, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 6)}
    agrees(FLEX, {name: normal(7, *shape) for name, shape in shapes.items()})


@given(
    st.sampled_from(["TF", "IDF", "TFIDF"]), st.integers(1, 3), st.integers(1, 3),
    st.integers(0, 3), st.sampled_from(["int32", "int64"]), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=20)
def test_runs_of_numbers_are_counted(
    mode: str, least: int, most: int, skips: int, kind: str, seed: int
) -> None:
    """Rows of five numbers; a run of three with two others between does not fit."""
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 3, 5]
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
      g ({kind}[3,5] x) => (float[3,8] y) {{ y = TfIdfVectorizer <mode = "{mode}",
        min_gram_length = {min(least, most)}, max_gram_length = {max(least, most)},
        max_skip_count = {skips}, ngram_counts = [0, 4, 10],
        ngram_indexes = [7, 1, 2, 0, 4, 5, 6, 3],
        pool_int64s = {pool}, weights = [0.5, 2.0, 1.0, 3.0, 0.25, 1.0, 4.0, 1.5]> (x) }}"""
    rows = np.random.default_rng(seed).integers(2, 9, (3, 5))
    rows[0] = [2, 3, 5, 4, 5]
    agrees(text, {"x": rows.astype(kind)})


FUSED = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
  g (float[1,4,5,6] x, float[1,6,5,6] z) => (float[1,6,5,6] y)
    <float[6,2,3,3] w = {{{weights}}}, float[6] b = {{1, -2, 0, 0.5, 3, -1}}> {{
    y = com.microsoft.FusedConv <group = 2, pads = [1, 1, 1, 1]{said}> (x, w, b{added}) }}"""


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ("", ", z"),
        (', activation = "Relu"', ", z"),
        (', activation = "Sigmoid"', ""),
        (', activation = "LeakyRelu", activation_params = [0.3]', ", z"),
        (', activation = "HardSigmoid", activation_params = [0.3, 0.4]', ""),
        (', activation = "Clip", activation_params = [-0.5, 0.75]', ", z"),
    ],
)
def test_convolutions_that_onnx_runtime_fused(said: str, added: str) -> None:
    weights = ", ".join(f"{n:.3f}" for n in normal(8, 108))
    text = FUSED.format(weights=weights, said=said, added=added)
    agrees(text, {"x": normal(9, 1, 4, 5, 6), "z": normal(10, 1, 6, 5, 6)})


@pytest.mark.parametrize(
    ("direction", "signed", "by_row"),
    [("forward", True, False), ("reverse", False, True), ("bidirectional", True, True)],
)
def test_an_lstm_of_integers_quantizes_each_step(
    direction: str, signed: bool, by_row: bool
) -> None:
    """Three steps of two sequences, from states that are given."""
    random, several = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    low, kind = (-128, "int8") if signed else (0, "uint8")
    rows = [several, 32] if by_row else [several]
    numbers = {
        **{name: (kind, [several, size, 32]) for name, size in (("w", 4), ("r", 8))},
        **dict.fromkeys(("wz", "rz"), (kind, rows)),
        **dict.fromkeys(("ws", "rs"), ("float", rows)),
        "b": ("float", [several, 64]),
    }
    constants = []
    for name, (of, shape) in numbers.items():
        scales = random.random(shape) * 0.004 + 0.002
        values = scales if of == "float" else random.integers(low, low + 256, shape)
        if name in ("wz", "rz"):  # others by row are no operator of ONNX Runtime's
            values = np.full(shape, low + 128)
        listed = ", ".join(str(value) for value in values.ravel())
        constants.append(f"{of}{shape} {name} = {{{listed}}}")
    state = f"float[{several},2,8]"
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
      g (float[3,2,4] x, {state} h, {state} c)
        => (float[3,{several},2,8] y, {state} hn, {state} cn) <{", ".join(constants)}> {{
        y, hn, cn = com.microsoft.DynamicQuantizeLSTM <hidden_size = 8,
          direction = "{direction}"> (x, w, r, b, , h, c, , ws, wz, rs, rz) }}"""
    states = {name: normal(seed, several, 2, 8) for seed, name in ((3, "h"), (4, "c"))}
    agrees(text, {"x": normal(2, 3, 2, 4)} | states)
