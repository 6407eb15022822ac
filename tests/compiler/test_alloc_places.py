"""Placement: buffers that live at the same time never overlap, on chip and in DRAM."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, machine
from networks import Net

from compiler.memory.on_chip import PlaceBuffers
from compiler.pipeline import compile_model
from compiler.plan.make_plan import Plan
from compiler.schedule.residency.buffer import GRAIN, LiveRange, TileBuffer, alive, place
from compiler.schedule_ir.group import Group
from simmodel.arch.dtype import size_of
from simmodel.arch.record import Arch


@st.composite
def spans(draw: st.DrawFn) -> list[LiveRange]:
    made = []
    for number in range(draw(st.integers(0, 14))):
        first = draw(st.integers(0, 6))
        size = draw(st.sampled_from((1, 63, 64, 65, 500)))
        made.append(LiveRange(f"b{number}", size, first, first + draw(st.integers(0, 4)), GRAIN))
    return made


@given(spans(), st.sampled_from((0, 64, 640)))
def test_buffers_in_dram_do_not_meet(found: list[LiveRange], start: int) -> None:
    addresses, end = place(found, start)
    assert set(addresses) == {span.name for span in found}
    for number, a in enumerate(found):
        low = addresses[a.name]
        assert low % GRAIN == 0 and start <= low and low + a.size <= end
        for b in found[:number]:
            together = a.first <= b.last and b.first <= a.last
            apart = low + a.size <= addresses[b.name] or addresses[b.name] + b.size <= low
            assert apart or not together


def test_space_in_dram_is_used_again() -> None:
    chain = [LiveRange(f"b{i}", 640, i, i + 1) for i in range(20)]
    assert place(chain)[1] == 2 * 640


class Sketch(Plan):
    """A plan of buffers alone."""

    def __init__(self, buffers: list[TileBuffer]) -> None:
        for name, value in (
            ("buffers", {b.name: b for b in buffers}),
            ("layers", (None,)),
            ("schedule", SimpleNamespace(group=Group((), ()), loops=())),
        ):
            object.__setattr__(self, name, value)


@st.composite
def sketches(draw: st.DrawFn) -> tuple[Sketch, Arch]:
    alignment = draw(st.sampled_from((1, 2, 16, 64)))
    mapping = draw(st.sampled_from(("blocked", "interleaved")))
    buffers = []
    for number in range(draw(st.integers(1, 8))):
        dtype = draw(st.sampled_from(("int8", "fp16", "fp32")))
        grain = max(alignment, size_of(dtype))
        size = draw(st.integers(1, 20)) * grain
        buffers.append(TileBuffer(f"b{number}", "local", dtype, (), (), size,
                              draw(st.integers(1, 3)), 0))  # fmt: skip
    total = sum(b.bytes * b.slots for b in buffers)
    room = draw(st.sampled_from((0, 0, 256, 4096)))
    size = -(-(total + room) // 256) * 256 if room else -(-total // 64) * 64
    banks = 4 if size % 256 == 0 else 1
    local = {
        "size": size, "banks": banks, "bank_width": 16, "alignment": alignment, "mapping": mapping,
    }  # fmt: skip
    return Sketch(buffers), machine(local=local)


@settings(max_examples=150)
@given(sketches())
def test_whatever_fits_by_its_sum_is_placed(case: tuple[Sketch, Arch]) -> None:
    plan, arch = case
    places = PlaceBuffers(conflicts="blind").apply(plan, arch)
    taken: list[tuple[int, int]] = []
    for buffer in plan.buffers.values():
        base, pitch = places[buffer.name]
        for slot in range(buffer.slots):
            low = base + slot * pitch
            assert low % arch.memories.local.alignment == 0 and low % size_of(buffer.dtype) == 0
            taken.append((low, low + buffer.bytes))
    taken.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(taken))
    assert taken[0][0] >= 0 and taken[-1][1] <= arch.memories.local.size


@pytest.mark.parametrize("arch", NAMED.values(), ids=NAMED.keys())
def test_the_buffers_of_a_program_do_not_meet(arch: Arch) -> None:
    net = Net()
    x = net.input(1, 8, 9, 9)
    y = net.op("Relu", net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4))
    z = net.op("Add", net.op("Conv", y, net.weight(8, 8, 1, 1)), x)
    model = net.model(net.op("MaxPool", z, kernel_shape=[2, 2]))
    for decision in compile_model(model, arch).decisions:
        last = len(decision.plan.layers) - 1
        buffers = list(decision.plan.buffers.values())
        for number, a in enumerate(buffers):
            for b in (b for b in buffers[:number] if b.role == a.role):
                together = any(alive(a, p, last) and alive(b, p, last) for p in range(last + 1))
                (low, high), (other, end) = (_span(x, decision.places[x.name]) for x in (a, b))
                assert high <= other or end <= low or not together, (a, b)


def _span(buffer: TileBuffer, place: tuple[int, int]) -> tuple[int, int]:
    return place[0], place[0] + place[1] * (buffer.slots - 1) + buffer.bytes
