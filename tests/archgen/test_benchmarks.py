"""The benchmark scripts: they import, their tables have what they promise, and reasons are rows."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from archgen.outcomes.estimated import EstimateError
from archgen.schema import load_arch
from compiler.options import Stages
from compiler.schedule.fusion.optimal import STRATEGIES
from compiler.schedule.residency.shared_memory import ChooseHomes

FOLDER = Path(__file__).parents[2] / "studies" / "benchmarks"
SCRIPTS = [
    "latency", "edge", "fusion", "microcontroller", "ablation", "conflicts", "estimates", "energy",
    "fidelity", "fluid", "fuzz", "lengths", "levers", "outlook", "targets",
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
    span = module("archgen.models.extents").SizeRange
    assert lengths.total({1: 1, 4: 4, 6: 8}, span(1, 6)) == 24
    assert lengths.total({2: 5, 3: 7}, span(1, 4)) == 5 + 5 + 7 + 7


def test_pairs_of_points_that_differ_in_one_field_and_in_their_cycles() -> None:
    """Of 8 and 16 banks, and of two sizes at 8: a step of half, one of 1 % that says nothing."""
    outlook, pandas = module("outlook"), module("pandas")
    rows = [(8, 1, 100, 90), (16, 1, 50, 90), (8, 2, 101, 80)]
    own = pandas.DataFrame(rows, columns=["arch.banks", "arch.size", "cycles", "estimate"])
    own = own.assign(family="m", energy_mj=3.0, mj=2.0)
    assert list(outlook.steps(own)) == [(-0.5, 0.0)]
    assert outlook.row("s", "net", own)[-5:] == ("50.0", "50.0", 1, 1, 0)


def test_the_documented_error_of_estimates_is_that_of_the_benchmark() -> None:
    """Of estimates now: those of runs on shipped machines lie within, and reach its ends."""
    outlook, pandas = module("outlook"), module("pandas")
    runs = pandas.read_csv(outlook.KEPT)
    found = outlook.compared(runs[runs["study"].isin(["energy", "shipped"])])
    documented = EstimateError()
    assert documented.energy is not None
    for ends, ratio in (
        (documented.time, found["cycles"] / found["estimate"]),
        (documented.energy, found["mj"] / found["energy_mj"]),
    ):
        assert ends[0] <= ratio.min() <= 1.03 * ends[0]
        assert 0.97 * ends[1] <= ratio.max() <= ends[1]


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


def test_loadables_to_be_damaged_have_the_first_numbers_of_constants() -> None:
    """Also of those that are made when they are asked for."""
    mutants, archgen = module("loadable_mutants"), module("archgen")
    made = archgen.compile_model(archgen.load_model(TINY), load_arch("soma-edge"), effort=0)
    assert "LazyArray" in {type(constant.data).__name__ for constant in made.constants}
    short = mutants.shortened(made).constants
    assert 0 < len(short) <= mutants.ITEMS and all(c.data.size <= mutants.ITEMS for c in short)


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


def test_measured_points_are_networks_and_schedules_as_they_were_measured(tmp_path: Path) -> None:
    """Integers in and out, channels last; a mapping that splits a kernel's columns is turned."""
    fidelity = module("fidelity")
    arch = load_arch(FOLDER / "fidelity" / "gemmini-rtl.yaml")
    spec = "conv:image=14,channels=32,filters=64,kernel=3,stride=2"
    path = fidelity.network(spec, True, tmp_path / "conv.onnx")
    graph = onnx.load(path).graph
    shape = [size.dim_value for size in graph.output[0].type.tensor_type.shape.dim]
    assert shape == [1, 7, 7, 64]
    mapping = "L3[WIO] R3 P7 - L2[WI] K16X - L1[O] K4 C2 S3 Q7 C16X - L0[W] N1"
    tree = fidelity._tree(mapping, tmp_path / "conv.tree")
    assert Path(tree).read_text().startswith("L3[WIO] S3 Q7 - "), "rows outermost"
    point = fidelity.Measurement(path, 1.0, None, tree, "", "")
    assert fidelity.compiled(arch, point).macs == 7 * 7 * 64 * 32 * 9


def test_points_that_were_measured_can_be_read(tmp_path: Path) -> None:
    fidelity = module("fidelity")
    quick = Namespace(quick=True, only=["add:"])
    arch = load_arch(FOLDER / "fidelity" / "tpu-v4.yaml")
    rows, points = fidelity.points_of("tpu-v4", arch, tmp_path, quick)
    assert [row["kind"] for row in rows] == ["addition"] * 4
    assert points[0].ms == pytest.approx(float(rows[0]["us"]) / 1e3)
    assert all(Path(point.model).is_file() for point in points)
