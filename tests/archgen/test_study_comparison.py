"""Two studies compared, by hand: ratios, causes that add up, layers, points without a partner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from host_only import HOST_ONLY, invoke, small_model

import archgen
from archgen.cli import compare as verb
from archgen.cli.compare import compare, comparison_lines, gate_lines, pairs_table
from archgen.cli.summary import screenful
from archgen.comparison.comparison import ComparedStudy, StudyComparison, gates_of, judged, share_of
from archgen.comparison.comparison import compare as compared
from archgen.outcomes.answer import answer
from archgen.outcomes.axes import with_swept
from archgen.outcomes.columns import STALLS
from archgen.outcomes.frame import results_frame
from archgen.outcomes.points import Outcome, Row
from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from archgen.studies.design import StudyError
from archgen.studies.results import Study
from archgen.studies.sweep import study
from simmodel.arch.record import Arch

NONE = dict.fromkeys((f"stall_{cause}" for cause in STALLS), 0.0)


def point(arch: str = "edge", batch: int = 1, cycles: int = 1000, **more: Any) -> Outcome:
    """A finished point of 1 GHz, half of it computing and half waiting for data."""
    identity = {"arch": arch, "model": "net", "batch": batch, "dtype": "int8"}
    identity |= {"fusion": "optimal", "halo": "auto", "objective": "latency", "effort": 1}
    row: dict[str, Any] = {
        **identity, "status": "ok", "latency_cycles": cycles, "latency_ms": cycles / 1e6,
        "energy_mj": cycles / 1e3, "dram_read_bytes": 300, "dram_write_bytes": 100,
        "peak_local_bytes": 64, "matrix_busy": 0.5, **NONE, "stall_data": 0.5,
    }  # fmt: skip
    ends = more.pop("ends", {"first+relu": cycles // 2, "second": cycles})
    layers = [
        {**identity, "node": node, "start_cycle": 0, "end_cycle": end, "dram_read_bytes": 50}
        for node, end in ends.items()
    ]
    return Outcome(f"{arch} {batch}", "", row | more, layers)


def of(*outcomes: Outcome, **options: Any) -> Study:
    return Study(outcomes, ())


def one(before: Outcome, after: Outcome, **options: Any) -> Any:
    pairs = compared(of(before), of(after), **options).pairs
    assert len(pairs) == 1
    return pairs[0]


def test_ratios_are_after_to_before() -> None:
    pair = one(point(cycles=1000), point(cycles=500, dram_write_bytes=500, peak_local_bytes=16))
    ratios = {name: change.ratio for name, change in pair.figures.items()}
    assert ratios == {
        "latency_ms": 0.5, "energy_mj": 0.5, "dram_bytes": 2.0, "peak_local_bytes": 0.25,
    }  # fmt: skip
    assert pair.verdict == "better"


def test_causes_and_layers_add_up_to_the_change_of_latency() -> None:
    before = point(cycles=1000)
    after = point(
        cycles=1500, matrix_busy=0.4, stall_data=0.5, stall_engine=0.1,
        ends={"first+relu": 500, "second": 1300, "third": 1500},
    )  # fmt: skip
    pair = one(before, after)
    changes = {name: change.difference for name, change in pair.causes.items()}
    assert {name: by for name, by in changes.items() if by} == pytest.approx(
        {"busy": 100, "data": 250, "engine": 150}
    )
    assert sum(changes.values()) == pytest.approx(500)
    layers = {each.node: each.added.difference for each in pair.layers}
    assert layers == {"second": 300, "third": 200, "first+relu": 0}
    assert [each.node for each in pair.layers][:2] == ["second", "third"]
    assert sum(layers.values()) == 500
    assert pair.layers[1].dram.difference == 50
    assert pair.why == (
        "stalls for data +250 cycles, stalls for engine +150 cycles, computing +100 cycles; "
        "most in second +300 cycles, third +200 cycles"
    )


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (point(cycles=1009), "same"),
        (point(cycles=1011), "worse"),
        (point(cycles=989), "better"),
        (point(cycles=900, energy_mj=2.0), "mixed"),
        (point(verified=False), "lost"),
        (point(status="does_not_fit", reason="needs 2, has 1"), "lost"),
    ],
)
def test_verdicts_at_one_percent(after: Outcome, verdict: str) -> None:
    pair = one(point(verified=True), after)
    assert pair.verdict == verdict
    back = one(after, point(verified=True))
    mirrored = {"worse": "better", "better": "worse", "lost": "gained"}
    if after.row.get("verified") is not False:
        assert back.verdict == mirrored.get(verdict, verdict)


def test_means_are_geometric_and_points_alone_are_listed() -> None:
    before = of(point(batch=1), point(batch=2), point(batch=4))
    after = of(point(batch=1, cycles=500), point(batch=2, cycles=2000), point(batch=8))
    [found] = compared(before, after).against
    assert found.means["latency_ms"] == pytest.approx(1.0)
    assert [key["batch"] for key in found.only_before] == [4]
    assert [key["batch"] for key in found.only_after] == [8]
    assert [pair.verdict for pair in found.pairs] == ["better", "worse"]


def test_two_machines_are_compared_by_the_columns_given() -> None:
    before, after = of(point("edge")), of(point("server", cycles=250))
    assert compared(before, after).pairs == ()
    found = compared(before, after, on=["model", "batch"])
    assert found.pairs[0].key == {"model": "net", "batch": 1}
    assert found.frame.loc[0, "latency_ms_ratio"] == 0.25


def test_points_of_studies_that_differ_in_an_option_of_the_compiler_are_pairs() -> None:
    quick = compared(of(point(effort=1)), of(point(effort=0)))
    assert len(quick.pairs) == 1 and "effort is 1 in study 1 and 0 in study 2" in comparison_lines(
        quick
    )
    switch = "pass.skip_masked.enabled"
    before, off = point(), point(cycles=2000, **{switch: False})
    found = compared(of(before), of(off))
    assert [pair.verdict for pair in found.pairs] == ["worse"]
    said = f"{switch} is not given in study 1 and False in study 2"
    assert said in comparison_lines(found)
    # Of a study that has several values of it, it tells points apart.
    both = compared(of(point(**{switch: False})), of(off, point(**{switch: True})))
    assert len(both.pairs) == 1 and not both.options_apart(both.against[0])


def test_the_frame_has_a_row_for_each_pair() -> None:
    frame = compared(of(point()), of(point(cycles=500))).frame
    row = frame.iloc[0]
    assert (row["arch"], row["verdict"], row["change_unit"]) == ("edge", "better", "cycles")
    assert (row["latency_ms_before"], row["latency_ms_after"]) == (0.001, 0.0005)
    assert (row["busy_change"], row["data_change"]) == (-250, -250)
    assert "stalls for data" in row["why"]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    found = []
    for name, archs in (("a", ["soma-edge", "gemmini-16"]), ("b", ["soma-edge"])):
        out = tmp_path / name
        model = small_model(tmp_path / "small.onnx")
        study(archs, [model], out=out, plots=False, tools=HOST_ONLY)
        found.append(str(out))
    return found[0], found[1]


def test_folders_are_compared_on_the_command_line(folders: tuple[str, str]) -> None:
    result = CliRunner().invoke(compare, [*folders, "--fail-if-worse", "usual"])
    assert result.exit_code == 0, result.output
    assert "1 pair: 1 same" in result.output
    assert f"only in {folders[0]}: gemmini-16" in result.output
    assert archgen.compare(*folders).against[0].means["latency_ms"] == 1.0


def test_several_studies_stand_beside_the_first() -> None:
    """Two points; the second study is quicker at one, the third has lost one and has another."""
    first = of(point(batch=1), point(batch=2))
    second = of(point(batch=1, cycles=500), point(batch=2))
    third = of(point(batch=2, cycles=2000), point(batch=4))
    found = compared(first, second, third)
    assert found.baseline == "study 1"
    rows = [(row["study"], row["batch"], row["verdict"]) for _, row in found.frame.iterrows()]
    assert rows == [("study 2", 1, "better"), ("study 2", 2, "same"), ("study 3", 2, "worse")]
    assert comparison_lines(found)[-4:] == [
        "study 2: 2 pairs: 1 better, 1 same",
        "only in study 1, not in study 3: edge net batch 1",
        "only in study 3: edge net batch 4",
        "study 3: 1 pair: 1 worse",
    ]
    with pytest.raises(StudyError, match="give at least two studies"):
        compared(first)


def test_machines_of_a_folder_are_sides_of_their_own(folders: tuple[str, str]) -> None:
    whole, _ = folders
    found = compared(f"{whole}:soma-edge", f"{whole}:gemmini-16", f"{whole}:g*")
    assert "arch" not in found.on
    assert [len(each.pairs) for each in found.against] == [1, 1]
    assert found.pairs[0].after["arch"] == "gemmini-16"
    with pytest.raises(StudyError, match="no machine 'soma-egde'; did you mean 'soma-edge'"):
        compared(f"{whole}:soma-egde", whole)
    with pytest.raises(StudyError, match="holds no study"):
        compared(f"{whole}s:soma-edge", whole)


def test_columns_that_do_not_tell_points_apart_are_refused() -> None:
    twice = of(point("a0"), point("b0"))
    said = "study 2: there are several points with model=net; add arch to the columns"
    with pytest.raises(StudyError, match=said):
        compared(of(point("a0")), twice, on=["model"])


def stopped(before: Outcome, after: Outcome, *words: str) -> list[str]:
    """What the gates `words` say of a pair."""
    found = compared(of(before), of(after))
    columns = [*before.row, *after.row]
    return gate_lines(found, judged(found, gates_of(words, 0.01, columns)))


def test_gates_stop_what_got_worse_by_more_than_allowed() -> None:
    before = point(cycles=1000, throughput_ips=100.0)
    after = point(cycles=1025, throughput_ips=97.5)
    assert stopped(before, after, "LATENCY:3%", "energy:0.03", "throughput:3%") == []
    assert stopped(before, after, "latency:2%") == [
        "worse: edge net batch 1: latency_ms 0.001 ms -> 0.001025 ms (+2.50 %; allowed 2 %)"
    ]
    assert stopped(before, after, "throughput_ips:2%", "energy")[0].startswith(
        "worse: edge net batch 1: throughput_ips 100 samples/s -> 97.5 samples/s (-2.50 %"
    )
    assert len(stopped(before, after, "energy")) == 1
    larger = stopped(point(area_mm2=10.0), point(area_mm2=12.5), "area:10%")
    assert larger[0].endswith(": area_mm2 10 mm2 -> 12.5 mm2 (+25.00 %; allowed 10 %)")
    assert stopped(before, before, "latency:0%") == []


def test_wrong_gates_are_told_all_at_once() -> None:
    with pytest.raises(StudyError) as told:
        gates_of(["latncy:2%", "energy:200%", "status:1%", "peak_local_byte"], 0.01, point().row)
    assert told.value.mistakes == [
        "'latncy:2%': 'latncy' is no figure of the results; did you mean 'latency'?",
        "'energy:200%': expected a share below 100%, such as 2% or 0.02, not 200%",
        "'status:1%': 'status' is nothing that a run gives as a number"
        "; `archgen explain columns` lists them",
        "'peak_local_byte': 'peak_local_byte' is no figure of the results; did you mean "
        "'peak_local_bytes'?",
    ]


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ((), 0),
        (("--fail-if-worse", "usual"), 3),
        (("--fail-if-worse", "latency:2%"), 3),
        (("--fail-if-worse=LATENCY:60%,energy:60%",), 0),
        (("--fail-if-worse", "latency:60%", "--fail-if-worse", "energy"), 3),
        (("--fail-if-worse", "dram"), 0),
        (("--fail-if-worse", "area"), 5),
        (("--fail-if-worse", "latncy:1%"), 2),
        (("--fail-if-worse", "latency:abc"), 2),
    ],
)
def test_gates_end_with_a_code_of_their_own(
    monkeypatch: pytest.MonkeyPatch, gates: tuple[str, ...], code: int
) -> None:
    """Half as long again."""
    worse = compared(of(point(area_mm2=None)), of(point(cycles=1500, area_mm2=None)))
    given: list[object] = []

    def answer(*studies: object, **options: object) -> StudyComparison:
        given.extend(studies)
        return worse

    monkeypatch.setattr(verb, "compared", answer)
    monkeypatch.setattr(verb, "side_of", lambda text, _: ComparedStudy(text, of()))
    result = invoke("compare", *gates, "before", "after")
    assert given == [ComparedStudy("before", of()), ComparedStudy("after", of())]
    assert (2 if isinstance(result.exception, StudyError) else result.exit_code) == code


def test_the_pairs_are_written_as_csv_and_json(folders: tuple[str, str], tmp_path: Path) -> None:
    csv = tmp_path / "pairs.csv"
    result = CliRunner().invoke(compare, [*folders, "--csv", str(csv), "--json"])
    assert "latency_ms_ratio" in csv.read_text()
    said = json.loads(result.stdout)
    assert said["pairs"][0]["verdict"] == "same"
    [against] = said["against"].values()
    assert against["geometric_means"]["latency_ms"] == 1.0
    assert against["only_baseline"][0]["arch"] == "gemmini-16"


def test_nothing_to_compare_is_no_success(folders: tuple[str, str]) -> None:
    whole, _ = folders
    sides = [f"{whole}:soma-edge", f"{whole}:gemmini-16"]
    alone = CliRunner().invoke(compare, [*sides, "--on", "arch"])
    assert alone.exit_code == 5 and "no point is in both studies" in alone.output
    result = CliRunner().invoke(compare, [*sides, "--on", "arch", "--fail-if-worse", "usual"])
    assert result.exit_code == 5
    assert "nothing compared" in result.output


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("2.5 %", 0.025), ("0.1", 0.1)])
def test_shares_are_read(text: str, share: float) -> None:
    assert share_of(text) == pytest.approx(share)


# What a study answers in five sentences: worked out by hand from rows.


def machine(banks: int) -> Arch:
    base = load_arch("mcu-npu")
    arch = changed(base, {"memories.local.banks": banks}) or base  # which has 4
    return arch.model_copy(update={"name": f"banks-{banks}"})


def row(
    banks: int, ms: float, area: float, model: str = "net", of_bound: float = 0.9, **more: Any
) -> Row:
    return {
        "arch": f"banks-{banks}", "family": "mcu-npu", "model": model, "batch": 1, "dtype": "int8",
        "status": "ok", "latency_ms": ms, "throughput_ips": 1000 / ms, "area_mm2": area,
        "bound_by": "bandwidth", "held_by": "bandwidth", "verified": True,
        "of_bound": of_bound, "bound_share": of_bound,
        "arch.memories.local.banks": banks, **more,
    }  # fmt: skip


def said(*rows: Row) -> list[str]:
    archs = {f"banks-{n}": machine(n) for n in (2, 4, 8)}
    outcomes = [Outcome(str(at), "", each) for at, each in enumerate(rows)]
    return answer(with_swept(results_frame(outcomes), archs.values()), archs)


def test_the_best_the_smallest_that_is_nearly_as_good_and_what_lies_beyond() -> None:
    assert said(row(2, 4.0, 1.0), row(4, 2.1, 1.5), row(8, 2.0, 3.0)) == [
        "Fastest is banks-8: 2 ms for net, 500 samples/s; the next, banks-4, takes 5 % longer.",
        "The smallest within 10 % of it is banks-4: 1.5 mm2 instead of 3, 5 % longer.",
        "What holds banks-8 up: DRAM traffic takes 90 % of the time.",
        "The best lies at an end of what was tried: local.banks 8; try values beyond.",
    ]


def test_of_equals_the_smallest_is_named_first() -> None:
    first, *_ = said(row(2, 1.0, 3.0), row(4, 1.0, 1.0), row(8, 1.0, 2.0))
    assert (
        first
        == "Fastest is banks-4: 1 ms for net, 1,000 samples/s; the next, banks-8, is as quick."
    )


def test_where_nothing_smaller_comes_near_it_says_what_less_area_costs() -> None:
    held = {"held_by": "work_padding", "work_padding": 0.57}
    assert said(row(2, 8.0, 1.0), row(4, 2.0, 3.0, **held), row(8, 2.0, 3.5)) == [
        "Fastest is banks-4: 2 ms for net, 500 samples/s; the next, banks-8, is as quick.",
        "Less area costs time: banks-2 has 1 mm2 instead of 3 and takes 4 times as long.",
        "What holds banks-4 up: array padding takes 57 % of the matrix engines' time.",
    ]


def test_with_several_in_flight_another_may_be_first() -> None:
    flying = [
        row(banks, ms, 1.0, in_flight=4, interval_ms=every)
        for banks, ms, every in ((2, 1.0, 0.5), (4, 2.0, 0.4))
    ]
    alone, several, *_ = said(*flying)
    assert "1,000 samples/s with 4 inferences in flight, one every 0.5 ms; the next" in alone
    assert several == (
        "With several in flight banks-4 is first: an inference every 0.4 ms; the next, banks-2, "
        "takes 25 % longer."
    )
    assert not any("in flight" in each for each in said(row(2, 1.0, 1.0), row(4, 2.0, 1.0)))


def test_a_longer_interval_is_worse_and_stops_the_usual_gates() -> None:
    found = one(point(interval_ms=0.1), point(interval_ms=0.2))
    assert (found.verdict, found.figures["interval_ms"].ratio) == ("worse", 2.0)
    study = compared(of(point(interval_ms=0.1)), of(point(interval_ms=0.2)))
    (stopped,) = judged(study, gates_of(["usual"], 0.01, point().row)).stopped
    assert stopped.gate.figure == "interval_ms"
    assert "interval" in [str(each.header) for each in pairs_table(study).columns]


def test_over_several_networks_machines_that_lack_one_are_left_out() -> None:
    rows = [row(2, 1.0, 1.0), row(2, 4.0, 1.0, "other", of_bound=0.8), row(4, 0.1, 1.0)]
    assert said(*rows) == [
        "banks-2 takes 2 ms, geometric mean of 2 networks.",
        "What holds banks-2 up: DRAM traffic takes 80 % of the time on other; DRAM traffic takes "
        "90 % of the time on net.",
    ]


def test_a_network_without_work_counts_in_no_mean() -> None:
    assert said(row(2, 1.0, 1.0), row(2, 1e-6, 1.0, "empty", latency_cycles=0)) == said(
        row(2, 1.0, 1.0)
    )
    idle = point(cycles=0, latency_ms=1e-6, model="empty")
    (both,) = compared(of(point(), idle), of(point(cycles=2000), idle)).against
    assert len(both.pairs) == 2 and both.means["latency_ms"] == 2.0


def test_what_holds_a_machine_up_is_said_of_each_of_a_few_networks_as_its_run_says() -> None:
    host = {
        "bound_by": "host",
        "held_by": "host",
        "of_bound": 0.7,
        "bound_share": None,
    }  # an older study
    every = [row(2, 4.0, 1.0), row(2, 1.0, 1.0, "kws", **host)]
    every += [row(2, 0.5, 1.0, f"n{i}") for i in range(2)]
    three = "DRAM traffic takes 90 % of the time on net; the host takes 70 % of the time on kws; "
    three += "DRAM traffic takes 90 % of the time on n0."
    assert f"What holds banks-2 up: {three}" in said(*every[:3])
    assert "What holds banks-2 up: DRAM traffic takes 90 % of the time on net." in said(*every)
    # Of what ran beside estimates, the run has the word: it waited, which no estimate knows.
    waited = {"estimated_ms": 0.1, "held_by": "stall_data", "stall_data": 0.6, "of_bound": 0.3}
    found = said(row(2, 0.2, 1.0, **waited), row(4, 0.3, 1.0, status="estimated", verified=None))
    wait = "waiting for operands to be loaded takes 60 % of the matrix engines' time"
    assert f"What holds banks-2 up: {wait}." in found
    # One answer for a table's cell and a sentence, however small its share.
    (_, sentence, *_) = said(row(2, 1.0, 1.0, status="estimated", verified=None, of_bound=0.5))
    assert sentence == "What holds banks-2 up: DRAM traffic takes 50 % of the estimated time."


def test_estimates_say_what_they_do_not_know() -> None:
    rows = [row(n, 1.0 / n, 1.0, status="estimated", verified=None) for n in (2, 4)]
    assert said(*rows) == [
        "Fastest is banks-4: 0.25 ms as estimated (-23 to +39 % on shipped machines) for net, "
        "4,000 samples/s; "
        "the next, banks-2, takes 2 times as long.",
        "What holds banks-4 up: DRAM traffic takes 90 % of the estimated time.",
        "Estimates leave out waits, and bank conflicts beyond the peak of all banks: runs on "
        "shipped machines took 0.77 to 1.39 times the estimated time and 0.82 to 2.90 times the "
        "estimated energy; --best 5 runs the best.",
        "The best lies at an end of what was tried: local.banks 4; try values beyond.",
    ]
    ran = row(4, 0.3, 1.0, estimated_ms=0.25, energy_mj=2.0, estimated_mj=1.6)
    first, *_, left, _ = said(rows[0] | {"energy_mj": 3.0}, ran)
    assert "0.25 ms as estimated (+20 % when run) for net, 0.3 ms when it was run" in first
    assert "1 of these points was run and took 1.20 times the estimated time and 1.25 times" in left


@pytest.mark.parametrize("more", [{"status": "failed"}, {"verified": False}])
def test_what_has_no_right_result_is_no_answer(more: Row) -> None:
    assert said(row(2, 1.0, 1.0) | more) == []


def test_a_table_of_many_points_shows_the_quickest_of_each_network() -> None:
    times = [5.0, 1.0, 4.0, 2.0, *range(6, 24)]
    rows = [row(2, float(ms), 1.0, model) for model in ("net", "other") for ms in times]
    frame = results_frame([Outcome(str(at), "", each) for at, each in enumerate(rows)])
    shown, left = screenful(frame, everything=False)
    assert left == ["the quickest 20 of 44 points (--all prints every one)"]
    assert shown["model"].tolist() == ["net"] * 10 + ["other"] * 10
    assert shown["latency_ms"].tolist()[:5] == [1.0, 2.0, 4.0, 5.0, 6.0]
    assert screenful(frame, everything=True) == (frame, [])
    first, left = screenful(frame, everything=False, ordered=True)
    assert first["latency_ms"].tolist()[:2] == [5.0, 1.0]
    assert left == ["the first 20 of 44 points (--all prints every one)"]
