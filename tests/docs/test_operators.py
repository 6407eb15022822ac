"""docs/operators.md says where operators run today: it names all, and a sample is made anew."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from pages import ROOT

SAMPLE = ("Relu", "Conv", "MatMul", "Softmax", "NonZero", "StringSplit", "Where", "Bernoulli")


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("operators")


def test_every_operator_has_a_row(operators: ModuleType) -> None:
    text = operators.PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == operators.operators()
    assert text.startswith(operators.HEAD)
    assert text.endswith(f"{operators.microsoft_table()}\n")


def test_rows_are_up_to_date(
    operators: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path))
    text = operators.PAGE.read_text(encoding="utf-8")
    chosen = operators.representatives(operators.cases())
    stale = [name for name in SAMPLE if operators.line(name, chosen) not in text.splitlines()]
    assert not stale, "run: python docs/operators.py"
