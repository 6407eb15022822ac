"""`archgen compile --report`, `--json`, `--after`, and schedules that a user asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from host_only import invoke, refused
from nest_reader import parse_graph
from rich.console import Console
from role_nets import LAYERS, conv_net

from archgen.cli.compile_report import parts
from archgen.outcomes.bottleneck import Verdict
from archgen.report.search_results import ANSWER, FRONT, LADDERS, PAIRS, TORNADO, Findings, findings
from archgen.report.sheet import Sheet
from archgen.scheduling import DEFAULT, OptionError, Scheduling, choice, choices
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Explained, Explanation, Simulated
from compiler.estimate.network_bound import Attainable
from compiler.explain.dump import FORMS
from compiler.explain.forms import FormReport
from compiler.explain.rejected import Choice, RejectedOption
from compiler.explain.report import BufferReport, Constants, GroupReport, LayerReport
from compiler.schedule_ir.schedule import Estimate
from compiler.search.best_program import SimulatedProgram
from compiler.tensor_ir.text import print_graph
from simmodel.arch.record import Arch
from simmodel.metrics import Waterfall
from simmodel.program.program import Program
from simmodel.trace import Trace

MANY, PLAIN, ONE_CORE = "ascend-310-like", "neuroncore-v2-like", "soma-edge"
"""`MANY` walks the network in tiles, `PLAIN` takes it all at once."""


pytestmark = pytest.mark.usefixtures("own_cache")


def report(folder: Path, arch: str, *arguments: str, odd: bool = False) -> dict[str, Any]:
    path = conv_net(folder / "conv_net.onnx", odd=odd)
    result = invoke("compile", arch, "-m", str(path), "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def example() -> Explanation:
    """A group of two layers, made by hand."""
    layers = (
        LayerReport(
            ("a",), "Conv", "matrix", "cols 4 o: 25 % of the array", "h 1 of 8", (1, 4, 8, 8),
            "local", (),
        ),
        LayerReport(
            ("b", "relu"), "Conv+Relu", "matrix+vector", "", "all at once", (1, 4, 8, 8), "dram",
            (Constants(2048, "weights", True, "6 KiB more to load"),),
            (
                FormReport("b", "engine", "matrix", 400.0, (
                    RejectedOption("host", 9000.0, 400.0),
                    RejectedOption("vector", None, 400.0, "npu has no vector.ternary.fma"),
                )),
                FormReport("b", "matrix.conv", "4 x [16 x 4 x 36]", 100.0, ()),
                FormReport("relu", "vector.unary.relu", "2 x 3 x [4 x 8]", 60.0, (
                    RejectedOption("48 x [4]", 480.0, 60.0),
                )),
            ),
        ),
    )  # fmt: skip
    buffers = (
        BufferReport("x", "local", "input", 512, 2, 0, 0, 0),
        BufferReport("a.y", "local", "between layers", 1024, 1, 1024, 0, 1),
    )
    joined = RejectedOption("one group with group 1", None, 2100.0, "does not fit")
    cut = RejectedOption("cut before b", 900.0, 1000.0, "partition line was better as simulated")
    group = GroupReport(
        0, "a .. b", ("a", "b", "relu"), "h 2 of 8", 4, "rolling", "2 cores, h / 2",
        Estimate(1000, 800, 100, 500, 4096), 1000.0, (
            Choice("group", "2 layers share tiles", cut),
            Choice("halo", "rolling", RejectedOption("recompute, h 4 of 8", 1200.0, 1000.0)),
            Choice("cores", "2 cores, h / 2", None),
        ),
        (joined, cut), layers, buffers, {"local": 2048}, (),
    )  # fmt: skip
    took = Simulated(1100, 0, 1100, 3000, 1096, {"matrix": 1500}, {"data": 70, "fill": 30},
                     (200, 700))  # fmt: skip
    return Explanation(
        "net", "npu", "int8", 1e9, DEFAULT, 1000.0, 1100,
        Attainable(matrix=748.2, vector=20.0, bandwidth=880.0, weights=0.0, host=0.0),
        Waterfall(
            {"products": 700.0, "products again": 0.0, "start-ups": 50.0, "data": 35.0}
            | {"fill": 15.0, "no_work": 300.0},
            {"compulsory": 400.0, "again": 100.0, "idle": 600.0},
        ),
        (Explained(group, took),),
        {"local": 4096}, (), "line", (SimulatedProgram("optimal", 4096, 1200),
            SimulatedProgram("line", 4096, 1100)),
        ("nothing is kept between groups, because with it there is no room",),
    )  # fmt: skip


def rendered(made: Explanation, width: int) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        for part in parts(made, Verdict("bandwidth", 0.8)):
            console.print(part)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_text_of_a_small_report() -> None:
    golden = Path(__file__).with_name("report.txt").read_text(encoding="utf-8")
    assert "\n".join(rendered(example(), 100)) + "\n" == golden


def test_the_report_of_a_network_adds_up(tmp_path: Path) -> None:
    found = report(tmp_path, MANY)
    nodes = [node for group in found["groups"] for node in group["nodes"]]
    assert sorted(nodes) == sorted([*LAYERS, "sum"])
    assert sum(g["simulated"]["added"] for g in found["groups"]) == found["simulated_cycles"]
    assert sum(g["adds"] for g in found["groups"]) == found["estimated_cycles"]
    for account in found["waterfall"].values():
        assert sum(account.values()) == pytest.approx(found["simulated_cycles"])
    for group in found["groups"]:
        assert len(group["simulated"]["layers"]) == len(group["layers"])
        forms = [form for layer in group["layers"] for form in layer["forms"]]
        assert any(form["taken"].endswith("]") for form in forms)
        assert any(other["what"] == "host" for form in forms for other in form["rejected"])
        for form in forms:
            costs = [each["cycles"] for each in form["rejected"] if not each["why"]]
            assert all(form["cycles"] <= other for other in costs)
        for memory, size in group["peaks"].items():
            assert 0 < size <= found["memories"][memory]
        for buffer in group["buffers"]:
            end = buffer["address"] + buffer["bytes"] * buffer["slots"]
            assert end <= found["memories"][buffer["memory"]]


def test_every_decision_has_what_it_was_chosen_among(tmp_path: Path) -> None:
    # Ahead of it a group of its own lays out the image.
    *_, group = report(tmp_path, PLAIN, "--effort", "0")["groups"]
    taken = {each["decision"]: each for each in group["choices"]}
    halo = {"halo"} & set(taken)  # rows of this group may be cut so that none is needed
    assert set(taken) == {"group", "tiles", "cores", "between"} | halo
    total = group["estimate"]["total"]
    rejected = [each["rejected"] for each in taken.values() if each["rejected"] is not None]
    assert len(rejected) >= 2 + len(halo)
    for option in rejected:
        assert option["against"] == total
        assert option["cycles"] is None or option["cycles"] >= total
    kinds = {option["what"] for option in group["neighbours"]}
    assert "every layer alone" in kinds
    assert any(what.startswith("cut before") for what in kinds)


def test_the_cycles_of_the_host_are_told_apart(tmp_path: Path) -> None:
    found = report(tmp_path, MANY, odd=True)
    assert [node["operator"] for node in found["host"]] == ["Det"]
    groups = sum(g["simulated"]["added"] for g in found["groups"])
    assert groups + found["host_cycles"] == found["simulated_cycles"]
    assert found["host_cycles"] > 0


@pytest.mark.parametrize("schedule", ["optimal", "none", "branch"])
def test_what_looks_cheaper_says_why_it_was_not_taken(tmp_path: Path, schedule: str) -> None:
    groups = report(tmp_path, MANY, "--fusion", schedule)["groups"]
    options = [option for group in groups for option in group["neighbours"]]
    options += [c["rejected"] for group in groups for c in group["choices"] if c["rejected"]]
    looks = [o for o in options if o["cycles"] is None or round(o["cycles"]) < round(o["against"])]
    assert options
    assert all(option["why"] for option in looks)
    assert not any(option["why"] for option in options if option not in looks)


def test_no_program_is_an_answer_and_no_wrong_input(tmp_path: Path) -> None:
    path = conv_net(tmp_path / "conv_net.onnx", odd=True)
    for more, words in (
        (("--no-host",), ("no program: ", "Det")),
        (("-b", "1000000000"), ("DRAM needs", "input image")),
    ):
        done = invoke("compile", MANY, "-m", path, *more)
        assert done.exit_code == 1
        assert all(word in done.stderr for word in words)
    unknown = refused("compile", MANY, "-m", path, "--dtype", "fp32")
    assert "dtype fp32: ascend-310-like runs" in unknown


@pytest.mark.parametrize("stage", FORMS)
def test_every_stage_can_be_printed(tmp_path: Path, stage: str) -> None:
    path = conv_net(tmp_path / "conv_net.onnx")
    result = invoke("compile", MANY, "-m", str(path), "--after", stage, "--effort", "0")
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in LAYERS)
    assert result.stdout.endswith("\n")


def test_stages_are_printed_as_they_are_at_that_time(tmp_path: Path) -> None:
    path = conv_net(tmp_path / "conv_net.onnx")

    def after(stage: str, *more: object, arch: str = MANY) -> str:
        return invoke("compile", arch, "-m", path, "--after", stage, *more).stdout

    onnx.parser.parse_model(after("normalize-axes"))
    lowered = after("lower")
    data = {f"{name}.w": np.zeros((8, 8, 3, 3), np.float16) for name in LAYERS}
    assert print_graph(parse_graph(lowered, data)) == lowered
    assert after("fuse-tails").count("layer") == len(LAYERS)
    assert "rolling" not in after("tree", "--halo", "recompute")
    emitted, ordered = (after(s, "--effort", 0, arch="gemmini-16") for s in ("emit", "order"))
    assert emitted != ordered


def test_a_stage_is_shown_although_a_later_one_fails(tmp_path: Path) -> None:
    path, arch = str(conv_net(tmp_path / "conv_net.onnx")), str(tmp_path / "small.yaml")
    dram = "24 KiB"  # room for input and weights, not for what layers leave to others too
    Path(arch).write_text(f"extends: {MANY}\nname: small\nmemories: {{dram: {{size: {dram}}}}}\n")
    result = invoke("compile", arch, "-m", path, "--after", "tree", "--effort", "0")
    assert result.exit_code == 0, result.output
    assert "first" in result.stdout
    late = invoke("compile", arch, "-m", path, "--after", "order", "--effort", "0")
    assert late.exit_code == 1
    assert "memories.dram.size of at least" in late.stderr


def test_the_list_of_stages_needs_no_model() -> None:
    assert invoke("compile", "--after", "list").stdout.split() == list(FORMS)
    assert len(set(FORMS)) == len(FORMS)


def test_a_compilation_takes_one_schedule() -> None:
    text = refused("compile", "--fusion", "none,optimal")
    assert all(part in text for part in ("no architecture", "no --model", "archgen study"))


def test_choices_combine() -> None:
    found, mistakes = choices(["none", "line", "none"], ["auto"], ["latency", "memory"], [0, 1])
    assert not mistakes
    assert len(set(found)) == len(found) == 8
    assert choice("optimal", "auto", "latency", 1) == DEFAULT
    with pytest.raises(OptionError, match=r"fusion 'x'.*\n.*effort 9"):
        choice("x", "auto", "latency", 9)
    with pytest.raises(OptionError, match=r"^effort '0': expected the number 0, got text$"):
        choice(effort="0")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"^efort: there is no such choice; did you mean 'ef"):
        choice(efort=0)
    assert choices([], ["auto"]) == ([], ["no fusion given"])


def test_choices_reach_the_compiler() -> None:
    stages = Scheduling("line", "recompute", "energy-proxy", 0).stages
    assert type(stages.partition).__name__ == "Line"
    assert (stages.tile.rolling, stages.tile.objective) == (False, "energy")
    assert Scheduling(effort=3).stages.partition != Scheduling(effort=0).stages.partition


def test_a_study_compares_ways_to_fuse(tmp_path: Path) -> None:
    path = conv_net(tmp_path / "conv_net.onnx")
    out = tmp_path / "out"
    first = study([PLAIN], [path], fusion=["none"], out=out, plots=False)
    both = study([PLAIN], [path], fusion=["none", "optimal"], out=out, plots=False)
    assert (first.reused, both.reused) == (0, 1)
    frame = both.frame.set_index("fusion")
    assert list(frame.index) == ["none", "optimal"]
    assert frame["verified"].all()
    assert frame["latency_cycles"]["optimal"] < frame["latency_cycles"]["none"]
    assert set(both.layers["fusion"]) == {"none", "optimal"}


@pytest.mark.parametrize(("effort", "runs"), [(0, 1), (1, 0)])
def test_the_winner_is_simulated_once(tmp_path: Path, effort: int, runs: int) -> None:
    counted: list[str] = []
    arch = "tpu-v3-like"  # whose banks are interleaved: there is one program at effort 0

    def counting(program: Program, arch: Arch) -> Trace:
        counted.append(program.name)
        return STANDARD.simulate(program, arch)

    path = conv_net(tmp_path / "conv_net.onnx")
    tools = replace(STANDARD, simulate=counting, tries=False)
    found = study([arch], [path], verify=False, effort=[effort], executor="here", tools=tools)
    assert len(counted) == runs
    (row,) = found.frame.to_dict("records")
    assert row["simulate_s"] > 0
    usual = study([arch], [path], verify=False, effort=[effort]).frame
    assert row["latency_cycles"] == usual["latency_cycles"][0]


# The report's sections on a search and a sensitivity: read from the tables in their folder.

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
