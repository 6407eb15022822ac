"""Networks whose lengths are open, at random lengths, beside what ONNX Runtime computes there."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from archgen.models.extents import Range
from archgen.outcomes.point import Point
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.standard import STANDARD
from archgen.studies.run import Workbench

LLAMA = "llama:sequence=1,layers=1,hidden=16,heads=2,groups=1,wide=16"


@cache
def bench(model: str, arch: str) -> Workbench:
    """A bench of its own for each network and machine: it keeps the program for a range."""
    del model, arch
    return Workbench(STANDARD)


def check(model: str, arch: str, dtype: str, name: str, length: int, span: Range) -> None:
    """That a program for a range computes right at one length of it."""
    point = Point(
        key="", arch=load_arch(arch), model=model, batch=1, dtype=dtype, dims=((name, length),),
        ranges=((name, span),), scheduling=Scheduling(effort=0),
    )  # fmt: skip
    row = bench(model, arch).run(point).row
    assert row.get("verified") is True, (row["status"], row["note"])


@settings(max_examples=3, deadline=None)
@given(past=st.integers(1, 40))
def test_a_cache_of_integers_of_any_size(past: int) -> None:
    check(LLAMA, "soma-edge", "int8", "past", past, Range(1, 40))
