"""Figures of memories from a library: asked as its release wants it, or refused in words."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from archgen.cli.machines import check
from archgen.energy import costs_of
from archgen.energy.sram import MissingSource, Sram, cacti_cost, sram_cost
from archgen.energy.table import shipped_table
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
