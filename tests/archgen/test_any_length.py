"""Networks whose lengths are open, at random lengths, beside what ONNX Runtime computes there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from role_nets import net, saved, text

from archgen.models.extents import SizeRange
from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Array, Compiled, Request, compile_request

PIECES = "gpt2:layers=1,hidden=8,heads=2,vocabulary=10,positions=16"
LLAMA = "llama:sequence=1,layers=1,hidden=16,heads=2,groups=1,wide=16"


@cache
def bench(model: str, arch: str) -> Workbench:
    """A bench of its own for each network and machine: it keeps the program for a range."""
    del model, arch
    return Workbench(STANDARD)


def row_of(
    model: str, arch: str, dtype: str, dims: Mapping[str, int],
    workbench: Workbench | None = None, **most: SizeRange,
) -> Row:  # fmt: skip
    """What a study says of lengths of a network, whose program is for ranges of them."""
    point = Point(
        key="", arch=load_arch(arch), model=model, batch=dims.get("batch", 1), dtype=dtype,
        dims=tuple(dims.items()), ranges=tuple(most.items()), scheduling=Scheduling(effort=0),
    )  # fmt: skip
    return (workbench or bench(model, arch)).run(point).row


def check(model: str, arch: str, dtype: str, dims: Mapping[str, int], **most: SizeRange) -> None:
    """That a program for ranges computes right at one length of each."""
    row = row_of(model, arch, dtype, dims, **most)
    assert row.get("verified") is True, row


def file_of(name: str, folder: Path) -> str:
    """The file of a network of `nets`."""
    return str(saved(net(text(name)), folder, name))


def written(path: Path, nodes: str, ports: str, **constants: tuple[int, ...]) -> str:
    """The file of a network of `nodes`; constants are of these shapes, normal numbers."""
    graph = onnx.parser.parse_graph(f"net ({ports}) {{ {nodes} }}")
    random = np.random.default_rng(0)
    graph.initializer.extend(
        onnx.numpy_helper.from_array(random.normal(size=shape).astype("f4"), name)
        for name, shape in constants.items()
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.save(proto, path)
    return str(path)


@pytest.mark.parametrize(
    ("name", "arch", "dtype"),
    [
        pytest.param("pooled", "stcp920", "fp16", id="means over time"),
        pytest.param("pooled", "soma-edge", "int8", id="means of integers"),
        pytest.param("image", "ascend-310-like", "fp16", id="a mean over a length twice"),
        pytest.param("pooled", "gemmini-16", "int8", id="means that the host computes"),
        pytest.param("angles", "soma-edge", "int8", id="constants as they are folded"),
        pytest.param("angles", "mcu-npu", "int8", id="constants that the host has inside"),
        pytest.param("running", "stcp920", "fp16", id="sums up to each position"),
        pytest.param("running", "soma-edge", "int8", id="the same beside integers"),
        pytest.param("rotation", "stcp920", "fp16", id="weights that are rows of a table"),
        pytest.param("convolved", "stcp920", "fp16", id="windows over time, in parts by cores"),
        pytest.param(
            "convolved", "soma-edge", "int8", id="borders of integers, and much room on chip"
        ),
        pytest.param("convolved", "ascend-310-like", "int8", id="windows as products"),
        pytest.param("features", "stcp920", "int8", id="windows over time and frequency"),
    ],
)
def test_a_network_for_a_range_is_right_at_any_length(
    name: str, arch: str, dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = file_of(name, tmp_path_factory.mktemp("any"))

    @settings(max_examples=3)
    @given(st.integers(1, 30))
    def at(length: int) -> None:
        check(model, arch, dtype, {"rows": length}, rows=SizeRange(1, 30))

    at()


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "low"),
    [
        pytest.param("listening", "stcp920", "fp16", 1, id="every second frame"),
        pytest.param("listening", "gemmini-16", "int8", 1, id="the same as products of integers"),
        pytest.param("raw", "soma-edge", "int8", 1, id="twelve steps, rounded once"),
        pytest.param("raw", "cocco-simba-2c", "int8", 1, id="in parts by cores"),
        pytest.param("raw", "ascend-310-like", "fp16", 1, id="windows as products"),
        pytest.param("halved", "soma-edge", "int8", 1, id="branches of an image"),
        pytest.param("halved", "gemmini-16", "int8", 1, id="pools that the host computes"),
        pytest.param("halved", "cocco-simba-2c", "int8", 1, id="branches in parts by cores"),
        pytest.param("halved", "ascend-310-like", "fp16", 1, id="depthwise in real numbers"),
        pytest.param("patches", "cocco-simba-2c", "int8", 4, id="shares of shares"),
        pytest.param("levels", "soma-edge", "int8", 1, id="sums of shares"),
        pytest.param("averages", "stcp920", "fp16", 1, id="means of what is there"),
        pytest.param("averages", "soma-edge", "int8", 1, id="the same of integers"),
        pytest.param("averages", "gemmini-16", "int8", 1, id="the same by the host"),
        pytest.param("surroundings", "ascend-310-like", "fp16", 1, id="means of two lengths"),
        pytest.param("largest", "gemmini-16", "int8", 1, id="ends that the host pads"),
    ],
)
def test_windows_in_steps_are_right_at_all_lengths(
    name: str, arch: str, dtype: str, low: int, tmp_path: Path
) -> None:
    model = file_of(name, tmp_path)
    for length in range(low, 14):
        check(model, arch, dtype, {"rows": length}, rows=SizeRange(low, 13))


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [
        pytest.param("gemmini-16", "int8", id="that the array finishes"),
        pytest.param("neuroncore-v2-like", "fp16", id="that the vector engine finishes"),
        pytest.param("ascend-310-like", "fp16", id="in one instruction"),
    ],
)
def test_sums_over_a_length_end_at_all_lengths(arch: str, dtype: str, tmp_path: Path) -> None:
    """gemmini-16 multiplies 16 at once."""
    model = file_of("summed", tmp_path)
    for length in (1, 15, 16, 17, 31, 32, 33, 49, 50):
        check(model, arch, dtype, {"rows": length}, rows=SizeRange(1, 50))


@pytest.mark.parametrize("arch", ["gemmini-16", "ethos-u65-like"])
def test_a_mean_that_engines_of_integers_do_not_finish_is_made_by_the_host(
    arch: str, tmp_path: Path
) -> None:
    """Of one length it is a sum in steps that follow from it; of all, a product with a share."""
    model = written(
        tmp_path / "net.onnx",
        "c = Conv <kernel_shape=[3], pads=[1, 1]> (x, w) g = GlobalAveragePool (c)"
        " f = Flatten (g) y = MatMul (f, v)",
        "float[1,8,rows] x) => (float[1,4] y", w=(16, 8, 3), v=(16, 4),
    )  # fmt: skip
    for length in (1, 7, 20):
        check(model, arch, "int8", {"rows": length}, rows=SizeRange(1, 20))


def test_windows_in_steps_whose_share_many_cores_have(tmp_path: Path) -> None:
    model = file_of("patches", tmp_path)
    for length in (4, 7, 33, 63, 64):
        check(model, "stcp920", "fp16", {"rows": length}, rows=SizeRange(4, 64))


@settings(max_examples=3)
@given(past=st.integers(1, 40))
def test_a_cache_of_integers_of_any_size(past: int) -> None:
    check(LLAMA, "soma-edge", "int8", {"past": past}, past=SizeRange(1, 40))


PROMPT = {"past": SizeRange(1, 9), "sequence": SizeRange(1, 6)}
"""A prompt in pieces, after some tokens. A single token has nothing that a mask hides, so at
`sequence` 1 the network lacks the operator that hides it."""


@settings(max_examples=2)
@given(past=st.integers(1, 9), sequence=st.integers(1, 6))
@example(past=4, sequence=1)
def test_a_prompt_in_pieces_of_any_size(past: int, sequence: int) -> None:
    check(PIECES, "stcp920", "fp16", {"past": past, "sequence": sequence}, **PROMPT)


SHARED = "llama:layers=1,hidden=32,heads=4,groups=2,wide=16"


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "ranges"),
    [
        pytest.param(
            SHARED, "soma-edge", "int8", {"past": 40, "sequence": 8}, id="heads that share keys"
        ),
        pytest.param(
            SHARED, "tpu-v3-like", "bf16", {"batch": 3, "past": 9, "sequence": 8}, id="three"
        ),
        pytest.param(
            LLAMA.replace("sequence=1,", ""), "soma-edge", "int8",
            {"batch": 4, "past": 5, "sequence": 5}, id="other functions next to the edge",
        ),
        pytest.param(
            PIECES.replace("16", "64"), "gemmini-16", "int8", {"past": 40, "sequence": 20},
            id="sums over both, longer than an instruction",
        ),
        pytest.param(
            "moe:hidden=16,wide=16,experts=4,active=2,gathered=1", "soma-edge", "int8",
            {"batch": 3, "sequence": 5}, id="tokens of all sequences, for experts",
        ),
    ],
)  # fmt: skip
def test_several_lengths_at_once(name: str, arch: str, dtype: str, ranges: dict[str, int]) -> None:
    spans = {dim: SizeRange(1, most) for dim, most in ranges.items()}

    @settings(max_examples=3)
    @given(st.tuples(*(st.integers(1, most) for most in ranges.values())))
    def at(lengths: tuple[int, ...]) -> None:
        check(name, arch, dtype, dict(zip(ranges, lengths, strict=True)), **spans)

    at()


@pytest.mark.parametrize(
    ("name", "arch", "dtype"),
    [
        pytest.param("flat", "soma-edge", "int8", id="one matrix of integers"),
        pytest.param("flat", "stcp920", "fp16", id="one matrix, in parts by cores"),
        pytest.param("totals", "ascend-310-like", "fp16", id="sums up to each row of a batch"),
        pytest.param("totals", "soma-edge", "int8", id="the same beside integers"),
        pytest.param("clips", "soma-edge", "int8", id="images of films"),
        pytest.param("clips", "gemmini-16", "int8", id="images whose means the host computes"),
        pytest.param("channels", "ascend-310-like", "fp16", id="signals side by side"),
        pytest.param("attention", "soma-edge", "int8", id="heads of integers"),
        pytest.param("attention", "ascend-310-like", "fp16", id="heads"),
        pytest.param("attention", "gemmini-16", "int8", id="heads whose sums the array finishes"),
        pytest.param("flat", "gemmini-16", "int8", id="rows that the host normalizes"),
    ],
)
def test_open_dimensions_that_a_network_merges(
    name: str, arch: str, dtype: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = file_of(name, tmp_path_factory.mktemp("merged"))
    most = {"batch": SizeRange(1, 4), "rows": SizeRange(1, 20)}

    @settings(max_examples=3)
    @given(st.integers(1, 4), st.integers(1, 20))
    @example(1, 20)
    def at(batch: int, rows: int) -> None:
        check(model, arch, dtype, {"batch": batch, "rows": rows}, **most)

    at()


def test_open_rows_of_a_fixed_batch_that_a_network_merges(tmp_path: Path) -> None:
    model = file_of("flat", tmp_path)
    check(model, "stcp920", "fp16", {"batch": 3, "rows": 5}, rows=SizeRange(1, 9))


@pytest.mark.parametrize(
    ("nodes", "last"),
    [("y = Relu (m)", "Relu_3"), ("c = Softmax <axis=0> (m) y = Reshape (c, o)", "Softmax_3")],
)
def test_merged_dimensions_that_stay_merged_are_refused(
    tmp_path: Path, nodes: str, last: str
) -> None:
    path = written(
        tmp_path / "net.onnx",
        "f = Constant <value_ints=[-1, 4]> ()"
        f" o = Shape (x) m = Reshape (x, f) {nodes}",
        "float[batch,rows,4] x) => (float[a,b,c] y" if "Softmax" in nodes
        else "float[batch,rows,4] x) => (float[a,b] y",
    )  # fmt: skip
    most = {"batch": SizeRange(1, 3), "rows": SizeRange(1, 9)}
    row = row_of(path, "stcp920", "fp16", {"batch": 3, "rows": 5}, **most)
    assert row["status"] == "unsupported"
    assert last in str(row["reason"])


def test_a_mask_that_hides_something_from_a_single_token_is_found() -> None:
    def hiding(request: Request) -> Compiled:
        """The program, whose mask behind 4 tokens hides the first of them."""
        family = request.model

        def constants(names: Collection[str], lengths: Mapping[str, int]) -> dict[str, Array]:
            found = {name: each.copy() for name, each in family.constants(names, lengths).items()}
            for values in found.values():
                if values.dtype == np.bool_ and lengths["past"] == 4:
                    values[0, 0, 0, 0] = False
            return found

        return compile_request(replace(request, model=replace(family, constants=constants)))

    wrong = Workbench(replace(STANDARD, compile=hiding))
    for past, right in ((4, False), (3, True)):
        row = row_of(PIECES, "stcp920", "fp16", {"past": past, "sequence": 1}, wrong, **PROMPT)
        assert row["verified"] is right
        assert right or str(row["note"]).startswith("h.0.attn.weights: off by")
