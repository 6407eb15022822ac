"""Published interfaces to DRAM beside the table that prices them."""

from __future__ import annotations

import csv
from statistics import geometric_mean

import pytest

from archgen.energy.ranges import at_node
from archgen.energy.table import SHIPPED, shipped_table

FIGURES = shipped_table()
Row = dict[str, str]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with (SHIPPED.parent / "interface_points.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pin(row: Row) -> float:
    return float(row["mm2"]) / int(row["pins"])


def gates(row: Row) -> float:
    if row["mgates"]:
        return 1e6 * float(row["mgates"])
    smaller = at_node(FIGURES.area.logic.points, float(row["node"]))
    return 1e6 * float(row["mm2"]) / smaller / FIGURES.area.gates.gate


def test_a_pin_is_the_mean_of_published_ones_and_all_lie_in_its_range(rows: list[Row]) -> None:
    assert {row["kind"] for row in rows} <= FIGURES.interface.keys()
    for kind, known in FIGURES.interface.items():
        own = [row for row in rows if row["kind"] == kind and row["part"] != "controller"]
        measured = [pin(row) for row in own if row["part"] == "phy"]
        if measured:
            assert known.pin == pytest.approx(geometric_mean(measured), rel=0.005), kind
        for row in own:
            assert 0.995 * known.low <= pin(row) <= 1.005 * known.high, row


def test_controllers_are_means_between_the_smallest_and_the_largest(rows: list[Row]) -> None:
    found = {row["kind"]: gates(row) for row in rows if row["part"] == "controller"}
    for name, kinds in {"small": ("ddr3", "lpddr4"), "wide": ("lpddr4", "ddr5", "hbm2")}.items():
        known, sizes = FIGURES.controller[name], [found[kind] for kind in kinds]
        assert known.gates == pytest.approx(geometric_mean(sizes), rel=0.01)
        ends = pytest.approx([min(sizes), max(sizes)], rel=0.01)
        assert [known.low, known.high] == ends
    used = {kind.controller for kind in FIGURES.interface.values()}
    assert used == FIGURES.controller.keys()


def test_every_kind_of_dram_but_the_chips_own_has_an_interface() -> None:
    assert FIGURES.interface.keys() == FIGURES.dram.keys() - {"sram"}
