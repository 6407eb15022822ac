"""The report's sections on a search and a sensitivity: read from the tables in their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from archgen.report.found import ANSWER, FRONT, LADDERS, PAIRS, TORNADO, Findings, findings
from archgen.report.sheet import Sheet

TABLES = {
    FRONT: """arch,memories.local.size,matrix,latency_ms,area_mm2
quick,1 MiB,"{'cols': 8}",0.050079,2.9851
small,128 KiB,,0.052184,1.0767
""",
    TORNADO: """parameter,low_value,high_value,low,high,metric,gain_per_mm2,gain_per_gb_per_s,enough
vector.lanes,8,32,0.01,,latency_ms,,,
matrix.cols,16,64,0.015,-0.2,latency_ms,0.3,,16
""",
    LADDERS: """parameter,value,own,latency_ms,change,area_mm2,dram_gb_per_s,gain,reason
matrix.cols,16,False,0.11,0.1,3.46,16,,
matrix.cols,32,True,0.10,0,3.67,16,0.0909,
""",
    PAIRS: """first,first_value,second,second_value,first_alone,second_alone,together,interaction
matrix.cols,64,clock,2 GHz,-0.2,-0.3,-0.6,-0.1
""",
}


def card(name: str) -> str:
    return {"quick": "review-1"}.get(name, "")


def found(folder: Path, *names: str) -> Findings:
    for name in names:
        (folder / name).write_text(TABLES[name], encoding="utf-8")
    return findings(folder, card)


def shown(sheet: Sheet | None) -> list[dict[str, str]]:
    assert sheet is not None
    names = [heading.name for heading in sheet.headings]
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in sheet.rows]


def test_the_front_is_a_table_that_leads_to_cards(tmp_path: Path) -> None:
    made = found(tmp_path, FRONT)
    first, second = shown(made.front)
    assert first == {
        "machine": "quick", "memories.local.size": "1 MiB", "matrix": "{'cols': 8}",
        "latency_ms": "0.05008", "area_mm2": "2.985",
    }  # fmt: skip
    assert second["matrix"] == "–"
    assert made.front is not None
    assert [row[0].link for row in made.front.rows] == ["review-1", ""]
    assert made.fields == ()


def test_what_fields_are_worth_is_told_with_the_one_that_matters_on_top(tmp_path: Path) -> None:
    made = found(tmp_path, TORNADO, LADDERS, PAIRS)
    alone, ladders, pairs = map(shown, made.fields)
    assert [row["parameter"] for row in alone] == ["matrix.cols", "vector.lanes"]
    assert [(row["low"], row["high"]) for row in alone] == [
        ("+1.5\u00a0%", "−20\u00a0%"), ("+1.0\u00a0%", "–"),
    ]  # fmt: skip
    assert alone[0]["enough"] == "16"
    assert [row["own"] for row in ladders] == ["False", "True"]
    assert (pairs[0]["first"], pairs[0]["first_value"]) == ("matrix.cols", "64")
    assert pairs[0]["interaction"] == "−10\u00a0%"
    assert made.metric == "latency_ms"
    assert [drawing.name for drawing in made.drawings] == ["figure-tornado"]
    assert made.front is None


def test_the_machine_of_a_target_is_named(tmp_path: Path) -> None:
    (tmp_path / ANSWER).mkdir()
    (tmp_path / ANSWER / "tiny.yaml").write_text("extends: edge\n", encoding="utf-8")
    assert found(tmp_path).answer == "tiny"


@pytest.mark.parametrize("text", ["", "\n", "arch\n", "other,columns\n1,2\n", '"', "\0"])
def test_a_table_that_is_empty_or_damaged_has_no_section(tmp_path: Path, text: str) -> None:
    for name in TABLES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert findings(tmp_path, card) == Findings()


def test_a_study_has_neither(tmp_path: Path) -> None:
    assert findings(tmp_path, card) == findings(None, card) == Findings()
