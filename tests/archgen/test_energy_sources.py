"""Figures of memories from a library: asked as its release wants it, or refused in words."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from statistics import geometric_mean
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from archgen.cli.machines import check
from archgen.energy import costs_of
from archgen.energy.ranges import at_node
from archgen.energy.sram import MissingSource, Sram, cacti_cost, sram_cost
from archgen.energy.table import SHIPPED, shipped_table
from archgen.schema import load_arch
from simmodel.arch.costs import EnergyTable
from simmodel.arch.record import Arch


def asking() -> Arch:
    """A machine that asks for the library."""
    return load_arch("soma-edge").model_copy(update={"energy": EnergyTable(source="hwcomponents")})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", None)
    with pytest.raises(MissingSource, match="pip install hwcomponents-cacti"):
        costs_of(asking())


def test_check_names_the_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", None)
    path = tmp_path / "mine.yaml"
    path.write_text("extends: gemmini-16\nname: mine\nenergy: {source: hwcomponents}\n")
    result = CliRunner().invoke(check, [str(path), "tpu-v1"])
    assert result.exit_code == 2
    assert "mine: arch.energy.source: energy.source is 'hwcomponents'" in result.stderr
    assert "tpu-v1" in result.stdout


@pytest.mark.parametrize("pair", [False, True])
def test_a_library_answers_in_joules_of_an_access(
    monkeypatch: pytest.MonkeyPatch, pair: bool
) -> None:
    """A stand-in with the library's interface: joules, or joules and seconds; area in m2."""
    asked: dict[str, Any] = {}

    def sram(**given: Any) -> SimpleNamespace:
        asked.update(given)
        answer = (3.2e-11, 1e-9) if pair else 3.2e-11
        return SimpleNamespace(read=lambda: answer, write=lambda: answer, area=2e-7)

    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", cast(Any, SimpleNamespace(SRAM=sram)))
    cost = cacti_cost(Sram(64 * 1024, 16, ports=2, banks=4, node=28.0))
    assert (cost.read, cost.write, cost.area) == pytest.approx((2.0, 2.0, 0.2))
    assert asked == {
        "tech_node": pytest.approx(28e-9), "width": 128, "depth": 4096, "n_rw_ports": 2,
        "n_banks": 4,
    }  # fmt: skip


def test_a_release_that_wants_bits_in_all_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def sram(*, tech_node: float, width: int, size: int, n_rw_ports: int, n_banks: int) -> Any:
        asked.update(width=width, size=size)
        return SimpleNamespace(read=lambda: 3.2e-11, write=lambda: 3.2e-11, area=2e-7)

    monkeypatch.setitem(sys.modules, "hwcomponents_cacti", cast(Any, SimpleNamespace(SRAM=sram)))
    cacti_cost(Sram(64 * 1024, 16, banks=4))
    assert asked == {"width": 128, "size": 8 * 64 * 1024}


def _installed(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


@pytest.mark.skipif(not _installed("hwcomponents_cacti"), reason="hwcomponents-cacti is missing")
def test_the_library_is_near_the_fit() -> None:
    memory = Sram(128 * 1024, 16, node=22.0)
    ratio = cacti_cost(memory).read / sram_cost(memory, shipped_table()).read
    assert 1 / 4 < ratio < 4


# Published interfaces to DRAM beside the table that prices them.

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


def test_every_kind_of_dram_outside_of_the_chip_has_an_interface() -> None:
    assert FIGURES.interface.keys() == FIGURES.dram.keys() - {"sram", "flash"}
