"""Which machine can do whatever another can: every field of the schema has its place."""

from __future__ import annotations

from typing import Any

import pytest

from archgen.schema import load_arch, shipped_names
from archgen.schema.rewritten import changed
from archgen.schema.variants import LESS, MORE, is_one_of
from archgen.studies.schedule_transfer import at_least, fields_of

OTHER_HARDWARE = (
    "clock", "types", "matrix.*", "vector.*", "isa.*", "scalar.types",
    "memories.shared", "memories.weights", "memories.flash",
    "memories.accumulators", "memories.*.bank_width", "memories.*.mapping",
    "memories.*.alignment", "memories.*.level", "memories.dram.burst", "memories.flash.burst",
    "memories.dram.on_chip", "memories.dram.kind",
    "copy.*.rank", "copy.*.request", "copy.*.pad", "copy.*.widens", "copy.*.widens.*",
    "copy.*.broadcast", "copy.*.peer", "links.*",
    "front_end.instruction_bytes", "front_end.bundle", "front_end.sync", "encoding", "encoding.*",
    "price", "price.*",
)  # fmt: skip
"""Fields in which machines have to agree: what they say is not an amount, or more of it is not
always as good (a wider bank moves more for each short run)."""


def fields_with(field: str, value: Any) -> object:
    """The fields of soma-edge with one of them, given by its path, set."""
    arch = load_arch("soma-edge")
    return fields_of(changed(arch, {field: value}) or arch)


@pytest.mark.parametrize(
    ("field", "less", "more"),
    [
        ("cores", 2, 4), ("memories.local.size", 1 << 20, 1 << 21), ("memories.local.banks", 4, 8),
        ("memories.dram.bandwidth", "16 GB/s", "32 GB/s"), ("front_end.tokens", 8, 64),
        ("front_end.queue_depth", 2, 4), ("memories.dram.latency", "100 ns", "50 ns"),
        ("vector.startup", "9 cycles", "3 cycles"), ("vector.lanes", 64, 256),
        ("vector.cost", {"special": 16}, {"special": 4}), ("matrix.cols", 16, 32),
        ("matrix.units", 1, 2), ("vector.units", 1, 2),
    ],
)  # fmt: skip
def test_more_of_a_thing_is_at_least_as_much(field: str, less: Any, more: Any) -> None:
    small, large = (fields_with(field, value) for value in (less, more))
    assert at_least(large, small) and not at_least(small, large)
    assert at_least(small, small)


def test_ports_are_more_where_all_others_are_among_them() -> None:
    arch = load_arch("wormhole-like")
    one, two, apart = (
        fields_of(changed(arch, {"links.noc.ports": ports}) or arch) for ports in ([4], [4, 9], [9])
    )
    assert at_least(two, one) and at_least(two, apart)
    assert not at_least(one, two) and not at_least(one, apart)


def test_a_shared_memory_and_the_ways_to_it_are_more() -> None:
    shared = {"size": "1 MiB", "banks": 8, "bank_width": "64 B", "latency": "4 cycles"}
    ways = {key: ["dram", "shared"] for key in ("copy.load.from", "copy.store.to")}
    arch = load_arch("soma-edge")
    with_it, without = (
        fields_of(changed(arch, {"memories.shared": shared, **ways}) or arch),
        fields_of(arch),
    )
    assert at_least(with_it, without) and not at_least(without, with_it)


def test_more_of_one_thing_and_less_of_another_is_neither() -> None:
    one, other = fields_with("memories.local.banks", 64), fields_with("front_end.tokens", 128)
    assert not at_least(one, other) and not at_least(other, one)


@pytest.mark.parametrize(
    ("field", "value"), [("matrix.granularity", "tile"), ("memories.local.bank_width", 8)]
)
def test_another_kind_of_hardware_is_not_more_of_it(field: str, value: Any) -> None:
    one, other = fields_of(load_arch("soma-edge")), fields_with(field, value)
    assert one != other
    assert not at_least(one, other) and not at_least(other, one)


def test_a_name_and_energies_are_nothing_that_a_cycle_depends_on() -> None:
    arch = load_arch("soma-edge")
    assert fields_with("energy.node", "7 nm") == fields_of(arch)
    assert fields_of(arch.model_copy(update={"name": "other"})) == fields_of(arch)


@pytest.mark.parametrize("name", shipped_names())
def test_every_field_has_its_place(name: str) -> None:
    places = (*MORE, *LESS, *OTHER_HARDWARE)
    assert [field for field in fields_of(load_arch(name)) if not is_one_of(field, places)] == []
