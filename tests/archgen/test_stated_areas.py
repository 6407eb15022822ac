"""Areas that a file states: any term that is printed, any part, and terms of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archgen.energy import costs_of
from archgen.energy.area import Area
from archgen.schema import load_arch, load_archs, shipped_names
from archgen.schema.rewritten import changed
from simmodel.arch.record import Arch
from simmodel.arch_rules import area_parts, area_terms

WHOLE = Path(__file__).with_name("whole_machine.yaml")
APART = {"other", "dram"}
"""Parts that are stated by fields of their own."""


def with_areas(arch: Arch, **areas: Any) -> Area:
    made = changed(arch, {"energy.area": areas})
    assert made is not None
    return costs_of(made).area


def test_the_names_that_may_be_stated_are_those_that_are_printed() -> None:
    for arch in [*load_archs(shipped_names()), load_arch(WHOLE)]:
        area = costs_of(arch).area
        shown = {f"{t.part} {t.what.replace(':', '')}" for t in area.terms if t.part != "other"}
        assert set(area_terms(arch)) == shown, arch.name
        assert set(area_parts(arch)) == area.parts.keys() - arch.memories.on_chip().keys() - APART


def test_a_stated_part_counts_once_for_each_core() -> None:
    arch = load_arch("cocco-simba-4c")
    usual, area = costs_of(arch).area, with_areas(arch, parts={"vector": "0.12 mm2"})
    assert area.parts["vector"].value == pytest.approx(4 * 0.12)
    assert area.parts["vector"].stated
    same = usual.parts.keys() - {"vector", "other"}
    assert {area.parts[name] == usual.parts[name] for name in same} == {True}
    assert [term.what for term in area.terms if term.part == "vector"] == ["as stated"]


def test_a_stated_term_leaves_the_others_of_its_part() -> None:
    arch = load_arch(WHOLE)
    usual, area = costs_of(arch).area, with_areas(
        arch, parts={"local banks": "0.3 mm2", "copy load data": "500 um2", "link noc": "0.1 mm2"}
    )  # fmt: skip
    before, after = ({(t.part, t.what): t.mm2.value for t in a.terms} for a in (usual, area))
    assert after["local", "banks"] == pytest.approx(arch.core_count * 0.3)
    assert after["copy", "load: data"] == pytest.approx(arch.core_count * 5e-4)
    assert after["link", "noc"] == pytest.approx(0.1)
    differing = {name for name in before if before[name] != after[name]}
    assert {part for part, _ in differing} == {"local", "copy", "link", "other"}
    assert len(differing) == 4


def test_every_part_of_every_machine_can_be_stated() -> None:
    for arch in load_archs(shipped_names()):
        names = set(area_terms(arch))
        each = with_areas(arch, parts=dict.fromkeys(names, "0.5 mm2"), other="2 mm2")
        assert all(term.mm2.stated for term in each.terms), arch.name
        assert each.total.low == each.total.high
