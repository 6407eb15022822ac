"""The benchmark scripts: they import, their tables have what they promise, and reasons are rows."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from archgen.schema import load_arch
from compiler.alloc.on_chip import PlaceBuffers
from compiler.fuse.strategies import STRATEGIES
from compiler.homes import ChooseHomes
from compiler.stages import Stages

FOLDER = Path(__file__).parents[2] / "studies" / "benchmarks"
SCRIPTS = [
    "latency", "edge", "fusion", "microcontroller", "ablation", "conflicts", "estimates", "energy",
    "fuzz", "lengths", "levers", "outlook",
]  # fmt: skip
TINY = "resnet18:image=32,width=0.25"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The folder of the scripts as Python sees it when one is started, and a cache of its own."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path))
    yield
    for name in ("tables", *SCRIPTS):
        sys.modules.pop(name, None)


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_tells_how_it_is_used(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = module(name)
    with pytest.raises(SystemExit, match="0"):
        script.main(["--help"])
    said = capsys.readouterr().out
    assert f"python studies/benchmarks/{name}.py" in said
    assert name in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_bytes_of_lengths_that_were_not_made_lie_on_lines_between_those_that_were() -> None:
    """1, 2, 3, 4 bytes and 6, 8: 24; of a range that begins below and ends above, its ends too."""
    lengths = module("lengths")
    span = module("archgen.models.extents").Range
    assert lengths.total({1: 1, 4: 4, 6: 8}, span(1, 6)) == 24
    assert lengths.total({2: 5, 3: 7}, span(1, 4)) == 5 + 5 + 7 + 7


def test_pairs_of_points_that_differ_in_one_field_and_in_their_cycles() -> None:
    """Of 8 and 16 banks, and of two sizes at 8: a step of half, one of 1 % that says nothing."""
    outlook, pandas = module("outlook"), module("pandas")
    rows = [(8, 1, 100, 90), (16, 1, 50, 90), (8, 2, 101, 80)]
    own = pandas.DataFrame(rows, columns=["arch.banks", "arch.size", "cycles", "estimate"])
    own = own.assign(family="m")
    assert list(outlook.steps(own)) == [(-0.5, 0.0)]
    assert outlook.row("s", "net", own)[-3:] == (1, 1, 0)


def test_case_is_executed_and_matches() -> None:
    tables = module("tables")
    arch = load_arch("stcp920")
    result = tables.run(tables.Case(arch, TINY), execute=True)
    assert result.matched == "yes", result.reason
    made = result.figures
    assert made.cycles >= max(made.matrix_cycles(arch), made.dram_cycles(arch))
    assert sum(group.advance for group in made.groups) == made.cycles
    assert made.constant_bytes > 0
    assert made.on_chip <= tables.on_chip_size(arch)


def test_refusal_is_a_row_with_its_reason() -> None:
    tables, fusion = module("tables"), module("fusion")
    arch = tables.with_local(load_arch("soma-edge"), size=64)
    result = tables.run(tables.Case(arch, TINY))
    assert result.figures is None
    assert result.reason in fusion.row(result, result)
    assert fusion.summary([(result, result)]) == "nothing to compare"


def test_fusion_lessens_dram_traffic() -> None:
    tables, fusion = module("tables"), module("fusion")
    arch = load_arch("cocco-simba-2c")
    dram = ChooseHomes(shared=False)
    plain, fused = (
        tables.run(tables.Case(arch, TINY, 1, Stages(partition=STRATEGIES[name](), homes=dram)))
        for name in ("none", "optimal")
    )
    before, after = fusion.row(plain, fused)[6:8]
    assert after < before
    assert len(fused.figures.groups) < len(plain.figures.groups)


def test_stages_of_the_network_share_its_cycles() -> None:
    tables, ablation = module("tables"), module("ablation")
    arch = load_arch("stcp920")
    made = tables.run(tables.Case(arch, TINY)).figures
    by_stage = ablation.utilization(made, arch)
    assert {"stem", "layer1", "layer4"} <= set(by_stage) <= set(ablation.STAGES)
    assert all(0 <= share <= 1.5 for share in by_stage.values())


def test_schedules_of_a_group_alone_are_estimated_and_simulated() -> None:
    tables, estimates = module("tables"), module("estimates")
    case = tables.Case(
        load_arch("stcp920"), TINY, 1, Stages(partition=STRATEGIES["none"]()), "apart"
    )
    found = estimates.measured(case)
    assert found.cycles and not found.reason
    groups = {pair.group for pair in found.pairs}
    assert len(groups) == estimates.GROUPS < len(found.pairs)
    for group in groups:
        expected = [pair.estimate for pair in found.pairs if pair.group == group]
        assert expected == sorted(expected)
    assert all(0 < pair.cycles < found.cycles for pair in found.pairs)


def test_blocked_variants_only_of_few_banks() -> None:
    conflicts = module("conflicts")
    found = list(conflicts.variants([load_arch("soma-edge"), load_arch("stream-32x32")]))
    assert [memory for _, memory in found] == ["interleaved", "blocked +0.5", "interleaved"]
    assert conflicts.BLIND.alloc == PlaceBuffers(apart=False, conflicts="blind")


def test_published_chips_are_near_the_model() -> None:
    energy = module("energy")
    lines = {(line.chip, line.figure): line for line in (*energy.areas(), *energy.powers())}
    assert all(line.model.low < line.model.value < line.model.high for line in lines.values())
    for name, line in lines.items():
        if line.status == "more":
            assert line.model.value < line.published, name
        else:
            assert line.model.low < line.published < line.model.high, name
    sizes = [lines["NVDLA 28 nm", f"{n} MACs"].model.value for n in (32, 64, 256, 512, 1024, 2048)]
    assert sizes == sorted(sizes)


def test_table_aligns_numbers_to_the_right() -> None:
    tables = module("tables")
    text = tables.table("title", ("name", "cycles"), [("a", 1_000_000), ("bc", None), ("d", 0.5)])
    assert text.splitlines()[1:] == [
        "title",
        "name     cycles",
        "----  ---------",
        "a     1,000,000",
        "bc            -",
        "d         0.500",
    ]


SAMPLE = 100
"""Node tests that are run here; all of them are in `.ci/run`."""


def test_a_sample_of_onnx_node_tests_has_not_become_worse() -> None:
    """One case of every other operator type, those whose names have the smallest checksums."""
    nodes = module("onnx_nodes")
    committed = nodes.floor()
    chosen = {}
    for case in sorted(nodes.cases(), key=lambda case: zlib.crc32(case.name.encode())):
        if committed.get(case.name, ("refused",))[0] != "refused":
            chosen.setdefault(case.operator, case)
    sample = sorted(chosen.values(), key=lambda case: zlib.crc32(case.name.encode()))[:SAMPLE]
    assert len(sample) == SAMPLE
    assert not list(nodes.worse(map(nodes.row, sample), committed))


def test_the_committed_table_of_node_tests_has_no_crash_and_nothing_wrong() -> None:
    nodes = module("onnx_nodes")
    words = [word for answers in nodes.floor().values() for word in answers]
    assert len(words) > 3000
    assert set(words) == {"native", "host", "refused"}


def test_a_case_below_the_floor_is_named() -> None:
    nodes = module("onnx_nodes")
    fell, held = (
        nodes.Row(name, "Relu", (nodes.Answer(word, "why"), nodes.Answer("native")))
        for name, word in (("test_fell", "host"), ("test_held", "native"))
    )
    broke = nodes.Row("test_new", "Relu", (nodes.Answer("crash", "why"), nodes.Answer("refused")))
    committed = {"test_fell": ("native", "native"), "test_held": ("host", "native")}
    assert list(nodes.worse([fell, held, broke], committed)) == [
        "test_fell (plain): native -> host: why",
        "test_new (plain): refused -> crash: why",
    ]
