"""Networks whose lengths are open, at random lengths, beside what ONNX Runtime computes there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
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


def spans(most: Mapping[str, int]) -> dict[str, SizeRange]:
    return {dim: SizeRange(1, last) for dim, last in most.items()}


LLAMAS = "llama:layers=1,hidden=32,heads=4,groups=2,wide=16"
PROMPT = {"past": 9, "sequence": 6}
"""A prompt in pieces, after some tokens. A single token has nothing that a mask hides, so at
`sequence` 1 the network lacks the operator that hides it."""
ROWS, MERGED = {"rows": 30}, {"batch": 4, "rows": 20}


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "most"),
    [
        pytest.param("pooled", "stcp920", "fp16", ROWS, id="means over time"),
        pytest.param("pooled", "soma-edge", "int8", ROWS, id="means of integers"),
        pytest.param("image", "ascend-310-like", "fp16", ROWS, id="a mean over a length twice"),
        pytest.param("pooled", "gemmini-16", "int8", ROWS, id="means that the host computes"),
        pytest.param("angles", "soma-edge", "int8", ROWS, id="constants as they are folded"),
        pytest.param("angles", "mcu-npu", "int8", ROWS, id="constants that the host has inside"),
        pytest.param("running", "stcp920", "fp16", ROWS, id="sums up to each position"),
        pytest.param("running", "soma-edge", "int8", ROWS, id="the same beside integers"),
        pytest.param("rotation", "stcp920", "fp16", ROWS, id="weights that are rows of a table"),
        pytest.param("convolved", "stcp920", "fp16", ROWS, id="windows, in parts by cores"),
        pytest.param("convolved", "soma-edge", "int8", ROWS, id="borders of integers, and room"),
        pytest.param("convolved", "ascend-310-like", "int8", ROWS, id="windows as products"),
        pytest.param("features", "stcp920", "int8", ROWS, id="windows over time and frequency"),
        # Open dimensions that a network merges.
        pytest.param("flat", "soma-edge", "int8", MERGED, id="one matrix of integers"),
        pytest.param("flat", "stcp920", "fp16", MERGED, id="one matrix, in parts by cores"),
        pytest.param("totals", "ascend-310-like", "fp16", MERGED, id="sums to each row of a batch"),
        pytest.param("totals", "soma-edge", "int8", MERGED, id="such sums beside integers"),
        pytest.param("clips", "soma-edge", "int8", MERGED, id="images of films"),
        pytest.param("clips", "gemmini-16", "int8", MERGED, id="whose means the host computes"),
        pytest.param("channels", "ascend-310-like", "fp16", MERGED, id="signals side by side"),
        pytest.param("attention", "soma-edge", "int8", MERGED, id="heads of integers"),
        pytest.param("attention", "ascend-310-like", "fp16", MERGED, id="heads"),
        pytest.param("attention", "gemmini-16", "int8", MERGED, id="sums the array finishes"),
        pytest.param("flat", "gemmini-16", "int8", MERGED, id="rows that the host normalizes"),
        # Several lengths at once, and caches.
        pytest.param(LLAMA, "soma-edge", "int8", {"past": 40}, id="a cache of integers"),
        pytest.param(PIECES, "stcp920", "fp16", PROMPT, id="a prompt in pieces"),
        pytest.param(LLAMAS, "soma-edge", "int8", {"past": 40, "sequence": 8}, id="shared keys"),
        pytest.param(
            LLAMAS, "tpu-v3-like", "bf16", {"batch": 3, "past": 9, "sequence": 8}, id="three"
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
def test_a_network_for_ranges_is_right_at_any_length(
    name: str, arch: str, dtype: str, most: dict[str, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    model = name if ":" in name else file_of(name, tmp_path_factory.mktemp("any"))
    alone = tuple(1 if dim in ("batch", "sequence") else last for dim, last in most.items())

    @settings(max_examples=3)
    @given(st.tuples(*(st.integers(1, last) for last in most.values())))
    @example(alone)
    def at(lengths: tuple[int, ...]) -> None:
        check(model, arch, dtype, dict(zip(most, lengths, strict=True)), **spans(most))

    at()


SMALL, ENDS = range(1, 14), (1, 15, 16, 17, 31, 32, 33, 49, 50)


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "lengths"),
    [
        # Windows in steps.
        pytest.param("listening", "stcp920", "fp16", SMALL, id="every second frame"),
        pytest.param("listening", "gemmini-16", "int8", SMALL, id="as products of integers"),
        pytest.param("raw", "soma-edge", "int8", SMALL, id="twelve steps, rounded once"),
        pytest.param("raw", "cocco-simba-2c", "int8", SMALL, id="in parts by cores"),
        pytest.param("raw", "ascend-310-like", "fp16", SMALL, id="windows as products"),
        pytest.param("halved", "soma-edge", "int8", SMALL, id="branches of an image"),
        pytest.param("halved", "gemmini-16", "int8", SMALL, id="pools that the host computes"),
        pytest.param("halved", "cocco-simba-2c", "int8", SMALL, id="branches in parts by cores"),
        pytest.param("halved", "ascend-310-like", "fp16", SMALL, id="depthwise in real numbers"),
        pytest.param("patches", "cocco-simba-2c", "int8", range(4, 14), id="shares of shares"),
        pytest.param("patches", "stcp920", "fp16", (4, 7, 33, 63, 64), id="shares of many cores"),
        pytest.param("levels", "soma-edge", "int8", SMALL, id="sums of shares"),
        pytest.param("averages", "stcp920", "fp16", SMALL, id="means of what is there"),
        pytest.param("averages", "soma-edge", "int8", SMALL, id="the same of integers"),
        pytest.param("averages", "gemmini-16", "int8", SMALL, id="the same by the host"),
        pytest.param("surroundings", "ascend-310-like", "fp16", SMALL, id="means of two lengths"),
        pytest.param("largest", "gemmini-16", "int8", SMALL, id="ends that the host pads"),
        # Sums over a length: gemmini-16 multiplies 16 at once.
        pytest.param("summed", "gemmini-16", "int8", ENDS, id="sums that the array finishes"),
        pytest.param("summed", "neuroncore-v2-like", "fp16", ENDS, id="the vector engine does"),
        pytest.param("summed", "ascend-310-like", "fp16", ENDS, id="sums in one instruction"),
        # Of one length it is a sum in steps that follow from it; of all, a product with a share.
        pytest.param("mean", "gemmini-16", "int8", (1, 7, 20), id="a mean by the host"),
        pytest.param("mean", "ethos-u65-like", "int8", (1, 7, 20), id="the same elsewhere"),
    ],
)
def test_a_network_for_a_range_is_right_at_all_of_its_lengths(
    name: str, arch: str, dtype: str, lengths: Sequence[int], tmp_path: Path
) -> None:
    model = file_of(name, tmp_path)
    for length in lengths:
        check(model, arch, dtype, {"rows": length}, rows=SizeRange(lengths[0], lengths[-1]))


def test_open_rows_of_a_fixed_batch_that_a_network_merges(tmp_path: Path) -> None:
    model = file_of("flat", tmp_path)
    check(model, "stcp920", "fp16", {"batch": 3, "rows": 5}, rows=SizeRange(1, 9))


@pytest.mark.parametrize(
    ("nodes", "shape", "last"),
    [
        ("y = Relu (m)", "a,b", "Relu_3"),
        ("c = Softmax <axis=0> (m) y = Reshape (c, o)", "a,b,c", "Softmax_3"),
    ],
)
def test_merged_dimensions_that_stay_merged_are_refused(
    tmp_path: Path, nodes: str, shape: str, last: str
) -> None:
    text = f"""net (float[batch,rows,4] x) => (float[{shape}] y)
      {{ f = Constant <value_ints=[-1, 4]> () o = Shape (x) m = Reshape (x, f) {nodes} }}"""
    path, most = str(saved(net(text), tmp_path)), spans({"batch": 3, "rows": 9})
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
        row = row_of(
            PIECES, "stcp920", "fp16", {"past": past, "sequence": 1}, wrong, **spans(PROMPT)
        )
        assert row["verified"] is right
        assert right or str(row["note"]).startswith("h.0.attn.weights: off by")
