"""Exploration: spaces, constraints, fronts, the search, targets and sensitivities."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from click.testing import CliRunner
from host_only import python, small_model
from hypothesis import given
from hypothesis import strategies as st
from schedule_transfer_tools import BY_SIZE, KIB, OFF, RIGHT, TRADE_OFF, cycles_of

from archgen import api
from archgen.cli.main import cli
from archgen.energy import costs_of
from archgen.exploration.evaluate import EvaluationTools
from archgen.exploration.plan import load_exploration, load_sensitivity_plan, parse_constraint
from archgen.exploration.saving import save_found
from archgen.exploration.search import ExplorationResult, search, smallest
from archgen.exploration.sensitivity import Sensitivities, sensitivities
from archgen.exploration.space import base_value, values_of
from archgen.outcomes.fronts import dominates, pareto_front, pareto_ranks
from archgen.schema import load_arch
from archgen.studies.design import StudyError
from archgen.studies.file import ValueRange
from archgen.studies.options import Running
from archgen.studies.results import Study
from simmodel.arch.record import Arch

BASE = "cocco-simba-1c"
ARCH = load_arch(BASE)
SIZES = ["64 KiB", "128 KiB", "192 KiB", "256 KiB", "384 KiB", "512 KiB"]
COLS = [4, 8, 12, 16, 32]
SPACE = {"memories.local.size": SIZES, "matrix.cols": COLS}


@pytest.fixture(autouse=True)
def _one_version(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "archgen.studies.design.code_version", lambda: "one"
    )  # whoever edits meanwhile


def asked(folder: Path, section: str = "explore", **options: Any) -> dict[str, Any]:
    model = folder / "small.onnx"
    if not model.exists():
        small_model(model)
    parameters = options.pop("parameters", SPACE)
    study = {"archs": BASE, "models": str(model)}
    return {**study, section: {"parameters": parameters, **options}}


def means(out: Path | None = None, estimator: Any = RIGHT, **options: Any) -> EvaluationTools:
    return EvaluationTools(
        Running(out=out, plots=False), tools=TRADE_OFF, estimator=estimator, **options
    )


def found(folder: Path, how: EvaluationTools, **options: Any) -> ExplorationResult:
    return search(load_exploration(asked(folder, **options)), how)


def area(arch: Arch) -> float:
    return costs_of(arch).area.total.value


def brute_force(folder: Path, **options: Any) -> list[Arch]:
    plan = load_exploration(asked(folder, **options))
    return [machine.arch for machine in plan.space.machines()]


def best_by_hand(archs: list[Arch]) -> set[str]:
    costs = {arch.name: (cycles_of(arch), area(arch)) for arch in archs}
    return {
        name
        for name, own in costs.items()
        if not any(o[0] <= own[0] and o[1] <= own[1] and o != own for o in costs.values())
    }


def names(result: ExplorationResult) -> set[str]:
    return {judged.machine.arch.name for judged in result.front}


# Constraints


@pytest.mark.parametrize(
    ("text", "measure", "comparison", "bound"),
    [
        ("latency_ms <= 5", "latency_ms", "<=", 5),
        ("latency_ms<5us", "latency_ms", "<", 0.005),
        ("  latency_ms <= 0.5 s ", "latency_ms", "<=", 500),
        ("area_mm2 <= 10 mm2", "area_mm2", "<=", 10),
        ("area <= 10 mm2", "area_mm2", "<=", 10),
        ("throughput_ips >= 30 fps", "throughput_ips", ">=", 30),
        ("peak_local_bytes <= 512 KiB", "peak_local_bytes", "<=", 512 * KIB),
        ("matrix_utilization > 50 %", "matrix_utilization", ">", 0.5),
        ("energy_mj <= 2 uJ", "energy_mj", "<=", 0.002),
        ("throughput_per_watt >= 1e3", "throughput_per_watt", ">=", 1000),
    ],
)
def test_constraints_are_read(text: str, measure: str, comparison: str, bound: float) -> None:
    read = parse_constraint(text, ARCH)
    assert (read.measure, read.comparison) == (measure, comparison)
    assert read.bound == pytest.approx(bound)


@given(st.sampled_from(["<=", ">=", "<", ">"]), st.floats(-10, 10), st.floats(-10, 10))
def test_an_excess_is_what_is_not_met(comparison: str, bound: float, value: float) -> None:
    read = parse_constraint(f"latency_ms {comparison} {bound!r}", ARCH)
    assert read.met(value) == (read.excess(value) == 0)
    assert not read.met(None)
    assert read.excess(None) == math.inf


# Fronts


COSTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), max_size=25)


@given(COSTS)
def test_nothing_dominates_the_front_and_it_dominates_the_rest(costs: list[tuple[int]]) -> None:
    best = pareto_front(costs)
    assert not any(dominates(other, costs[index]) for index in best for other in costs)
    rest = set(range(len(costs))) - set(best)
    assert all(any(dominates(costs[index], costs[other]) for index in best) for other in rest)


@given(COSTS)
def test_ranks_count_the_fronts_before(costs: list[tuple[int]]) -> None:
    found = pareto_ranks(costs)
    assert [index for index, rank in enumerate(found) if rank == 0] == pareto_front(costs)
    for index, own in enumerate(costs):
        above = [found[other] for other, cost in enumerate(costs) if dominates(cost, own)]
        assert found[index] == (max(above) + 1 if above else 0)


# Spaces


@pytest.mark.parametrize(
    ("given_range", "values"),
    [
        ({"from": "128 KiB", "to": "1 MiB"}, ["128 KiB", "256 KiB", "512 KiB", "1 MiB"]),
        ({"from": 1, "to": 6}, [1, 2, 4, 6]),
        ({"from": "8 GB/s", "to": "32 GB/s", "scale": "linear", "steps": 4},
         ["8 GB/s", "16 GB/s", "24 GB/s", "32 GB/s"]),
        ({"from": "1 MiB", "to": "2 MiB", "scale": "log", "steps": 3},
         ["1 MiB", "1448 KiB", "2 MiB"]),
    ],
)  # fmt: skip
def test_ranges_are_lists(given_range: dict[str, Any], values: list[Any]) -> None:
    assert values_of(ValueRange.model_validate(given_range)) == values


def test_what_rules_forbid_is_told_and_not_counted(tmp_path: Path) -> None:
    parameters = {"memories.local.banks": [4, 3], "memories.local.size": ["64 KiB", "128 KiB"]}
    result = found(tmp_path, means(), parameters=parameters, trials=10)
    assert result.looked == 2
    assert len(result.forbidden) == 2
    assert all("banks 3" in text and "banks" in why for text, why in result.forbidden.items())


def test_a_file_without_the_section_says_so(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"missing key 'explore'.*archgen sensitivity"):
        load_exploration(asked(tmp_path, "sensitivity"))
    with pytest.raises(StudyError, match="one machine"):
        load_exploration({**asked(tmp_path), "archs": [BASE, "soma-edge"]})


# The search


def test_a_whole_space_gives_the_front_of_brute_force(tmp_path: Path) -> None:
    result = found(tmp_path, means(), trials=100, screen={"keep": 1})
    archs = brute_force(tmp_path)
    assert len(result.full) == len(archs) == len(SIZES) * len(COLS)
    assert names(result) == best_by_hand(archs)
    assert 2 < len(result.front) < len(archs)


@pytest.mark.parametrize("estimator", [RIGHT, OFF])
def test_screening_loses_nothing_where_estimates_are_near(tmp_path: Path, estimator: Any) -> None:
    result = found(tmp_path, means(estimator=estimator), trials=100, screen={"keep": 0.2})
    expected = best_by_hand(brute_force(tmp_path))
    assert len(result.full) < len(SIZES) * len(COLS)
    assert len(result.guessed) == len(SIZES) * len(COLS)
    if estimator is RIGHT:
        assert names(result) == expected
    else:
        assert len(names(result) & expected) >= len(expected) / 2


def test_constraints_hold_on_the_front(tmp_path: Path) -> None:
    result = found(tmp_path, means(), trials=100, constraints=["area_mm2 <= 2.9"])
    archs = [arch for arch in brute_force(tmp_path) if area(arch) <= 2.9]
    assert names(result) == best_by_hand(archs)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_a_seed_gives_the_same_machines_and_trials_are_counted(
    tmp_path: Path, sampler: str
) -> None:
    options: dict[str, Any] = {"trials": 12, "batch": 4, "sampler": sampler, "seed": 7}
    one, two = (found(tmp_path, means(), **options) for _ in range(2))
    assert one.looked == two.looked == 12
    assert [j.machine.arch.name for j in one.full] == [j.machine.arch.name for j in two.full]
    other = found(tmp_path, means(), **{**options, "seed": 8})
    assert {j.machine.arch.name for j in one.guessed} != {
        j.machine.arch.name for j in other.guessed
    }


def test_the_front_is_verified(tmp_path: Path) -> None:
    result = found(tmp_path, means(), trials=6)
    assert all(o.row["verified"] is True for judged in result.front for o in judged.outcomes)
    small_model(tmp_path / "wrong.onnx")
    wrong = {**asked(tmp_path, trials=6), "models": str(tmp_path / "wrong.onnx")}
    result = search(load_exploration(wrong), means())
    assert result.full
    assert not result.front


def test_several_networks_count_together(tmp_path: Path) -> None:
    study = {**asked(tmp_path, trials=4, screen={"keep": 1}), "batches": [1, 4]}
    result = search(load_exploration(study), means())
    judged = result.full[0]
    one, four = judged.values("throughput_ips")
    assert one and four and four == pytest.approx(4 * one)
    assert judged.value("throughput_ips") == pytest.approx(math.sqrt(one * four))


KILLED = """
import os, signal
from pathlib import Path
import archgen.studies.design
archgen.studies.design.code_version = lambda: "one"
from test_exploration import asked, load_exploration, means, search
def observe(outcome, done, total):
    if done == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
search(load_exploration(asked(Path({folder!r}), trials=16, batch=8)),
       means(Path({out!r}), observe=observe))
"""


@pytest.mark.parametrize("after", [3, 10, 15])
def test_a_killed_search_goes_on_and_computes_nothing_twice(tmp_path: Path, after: int) -> None:
    out = tmp_path / "out"
    asked(tmp_path)
    killed = python("-c", KILLED.format(after=after, folder=str(tmp_path), out=str(out)))
    _, wrong = killed.communicate(timeout=100)
    assert killed.returncode == -9, wrong
    result = found(tmp_path, means(out), trials=16, batch=8)
    log = Counter((tmp_path / "log").read_text().splitlines())
    assert len(log) > after
    assert set(log.values()) == {1}
    whole = found(tmp_path, means(tmp_path / "whole"), trials=16, batch=8)
    assert {j.machine.arch.name for j in result.full} == {j.machine.arch.name for j in whole.full}
    assert names(result) == names(whole)


TOGETHER = """
from pathlib import Path
import archgen.studies.design
archgen.studies.design.code_version = lambda: "one"
from test_exploration import asked, load_exploration, means, names, search
found = search(load_exploration(asked(Path({folder!r}), trials=30, batch=4)), means(Path({out!r})))
print(len(found.full), *sorted(names(found)))
"""


def test_two_at_a_time_share_the_work_and_find_the_same(tmp_path: Path) -> None:
    asked(tmp_path)
    code = TOGETHER.format(folder=str(tmp_path), out=str(tmp_path / "out"))
    both = [python("-c", code) for _ in range(2)]
    said = [process.communicate(timeout=100)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    log = Counter((tmp_path / "log").read_text().splitlines())
    assert set(log.values()) == {1}
    expected = sorted(best_by_hand(brute_force(tmp_path)))
    assert all(text.split()[1:] == expected for text in said)


def test_more_trials_go_on_from_the_journal(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = found(tmp_path, means(out), trials=8, batch=4)
    before = len((tmp_path / "log").read_text().splitlines())
    again = found(tmp_path, means(out), trials=8, batch=4)
    assert len((tmp_path / "log").read_text().splitlines()) == before
    assert names(first) == names(again)
    assert found(tmp_path, means(out), trials=16, batch=4).looked == 16


# Targets


@pytest.mark.parametrize("estimator", [RIGHT, OFF])
@pytest.mark.parametrize("most", [20_000, 40_000, 60_000, 100_000])
def test_the_smallest_machine_is_that_of_brute_force(
    tmp_path: Path, most: int, estimator: Any
) -> None:
    plan = load_exploration(asked(tmp_path, constraints=["area_mm2 <= 3.1"]))
    limit = most / ARCH.clock * 1e3
    answer = smallest(plan, f"latency_ms <= {limit}", means(estimator=estimator))
    fitting = [a for a in brute_force(tmp_path) if cycles_of(a) <= most and area(a) <= 3.1]
    if not fitting:
        assert answer.machine is None
        return
    assert answer.machine is not None
    assert answer.machine.machine.arch.name == min(fitting, key=area).name
    assert len(answer.full) < answer.machines


def test_no_machine_is_an_answer_and_exact_runs_them_all(tmp_path: Path) -> None:
    plan = load_exploration(asked(tmp_path))
    answer = smallest(plan, "latency_ms <= 1e-6", means())
    assert answer.machine is None
    assert (answer.full, answer.spared) == ((), 30)
    answer = smallest(plan, "latency_ms <= 1e-6", means(), exact=True)
    assert (len(answer.full), answer.spared) == (30, 0)


# Sensitivities


def around(folder: Path, **options: Any) -> Sensitivities:
    study = asked(folder, "sensitivity", **options)
    study["archs"] = {"extends": BASE, "set": {"memories.local.size": "256 KiB"}}
    return sensitivities(load_sensitivity_plan(study), means())


def test_sensitivities_by_hand(tmp_path: Path) -> None:
    """256 KiB, 32 columns: 12500 + 7812.5 cycles; with 128 KiB 28125, with 512 KiB 16406.25."""
    fields = {"memories.local.size": ["128 KiB", "512 KiB", "1 MiB"], "matrix.cols": None}
    result = around(tmp_path, parameters=fields, worth=0.15)
    rows = result.tornado.set_index("parameter")
    base = 12_500 + 7_812.5
    size, cols = rows.loc["memories.local.size"], rows.loc["matrix.cols"]
    assert (size["low_value"], size["high_value"]) == ("128 KiB", "512 KiB")
    assert (cols["low_value"], cols["high_value"]) == ("16", "64")
    assert size["low"] == pytest.approx(28_125 / base - 1, abs=1e-4)
    assert size["high"] == pytest.approx(16_406.25 / base - 1, abs=1e-4)
    assert cols["low"] == pytest.approx((25_000 + 7_812.5) / base - 1, abs=1e-4)
    assert cols["high"] == pytest.approx((6_250 + 7_812.5) / base - 1, abs=1e-4)
    ladders = result.ladders[result.ladders["parameter"] == "memories.local.size"]
    assert list(ladders["value"]) == ["128 KiB", "256 KiB", "512 KiB", "1 MiB"]
    assert list(ladders["own"]) == [False, True, False, False]
    mm2 = ladders["area_mm2"].diff().iloc[2]
    milliseconds = (base - 16_406.25) / ARCH.clock * 1e3
    assert size["gain_per_mm2"] == pytest.approx(milliseconds / mm2, rel=1e-3)
    # From 512 KiB to 1 MiB: (12500 + 1953.125) / 16406.25 gains 11.9 %, less than 15 %.
    assert size["enough"] == "512 KiB"
    assert pd.isna(cols["enough"])


# The command line


def test_the_verbs_print_tables_and_leave_files(tmp_path: Path) -> None:
    small_model(tmp_path / "small.onnx")
    path, out = tmp_path / "both.yaml", tmp_path / "out"
    path.write_text(
        "archs: [{extends: cocco-simba-1c, set: {front_end.tokens: 2}}]\n"
        "models: small.onnx\ncompiler: {effort: 0}\n"
        "explore: {parameters: {memories.local.size: [64 KiB, 128 KiB], matrix.cols: [8, 16]}}\n"
        "sensitivity: {parameters: {matrix.cols: 2}}\n",
        encoding="utf-8",
    )
    runner, plain = CliRunner(), ["--jobs", "1", "--no-plots", "--out", str(out)]
    explored = runner.invoke(cli, ["explore", str(path), *plain])
    assert explored.exit_code == 0, explored.output
    assert "on the front, of 4 looked at in a space of 4" in explored.output
    warned = r"warning: cocco[^:]*: arch\.front_end\.tokens: 2 for \d engines; "
    assert len(re.findall(warned, explored.output)) == 1
    assert list((out / "front").glob("*.yaml"))
    (out / "report.html").write_text("of what was explored", encoding="utf-8")
    aimed = ["explore", str(path), "--jobs", "1", "--out", str(out)]
    answer = runner.invoke(cli, [*aimed, "--target", "latency_ms <= 1", "--exact"])
    assert answer.exit_code == 0, answer.output
    assert "of 4 machines, cocco-simba-1c-size64KiB-cols8 has the least area_mm2" in answer.output
    assert "size64KiB-cols8" in (out / "target.html").read_text(encoding="utf-8")
    assert (out / "report.html").read_text(encoding="utf-8") == "of what was explored"
    none = runner.invoke(cli, ["explore", str(path), *plain, "--target", "latency_ms <= 1 ns"])
    assert none.exit_code == 1
    assert "none of 4 machines" in none.output
    tornado = runner.invoke(cli, ["sensitivity", str(path), *plain])
    assert tornado.exit_code == 0, tornado.output
    assert tornado.output.count("arch.front_end.tokens: 2 for ") == 1
    assert {"tornado.csv", "ladders.csv", "pairs.csv"} <= {p.name for p in out.iterdir()}


@pytest.mark.parametrize("name", ["03_explore.yaml", "04_sensitivity.yaml"])
def test_the_shipped_studies_are_right(name: str) -> None:
    path = Path(__file__).parents[2] / "studies" / name
    if "explore" in name:
        assert load_exploration(path).space.size > 20
    else:
        assert load_sensitivity_plan(path).metric.measure == "latency_ms"


def test_machines_that_are_explored_lend_each_other_their_schedules(tmp_path: Path) -> None:
    fields = {"memories.local.size": ["64 KiB", "128 KiB", "256 KiB", "512 KiB"]}
    plan = load_exploration(
        asked(tmp_path, parameters=fields, objectives=["latency_cycles"], screen={"keep": 1.0})
    )

    def explored() -> Study:
        how = EvaluationTools(
            Running(out=tmp_path / "out", plots=False), tools=BY_SIZE, estimator=RIGHT
        )
        return search(plan, how).study

    found = explored()
    sizes = found.frame["arch"].str.extract(r"([0-9]+)\D*$")[0].astype(int)
    frame = found.frame.set_index(sizes).sort_index()
    assert frame["latency_cycles"].tolist() == [1000, 1000, 900, 1200]
    assert frame["schedule_from"].notna().tolist() == [False, True, False, False]
    assert frame["note"].str.contains("slower than").tolist() == [False, False, False, True]
    again = explored()
    assert again.reused == len(again.outcomes)
    pd.testing.assert_frame_equal(again.frame, found.frame)


# What a search leaves in its folder: machines to go on with, tables and pictures.


def test_machines_of_the_front_are_files_to_go_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = asked(tmp_path, trials=100)
    study["archs"] = {"extends": BASE, "set": {"memories.dram.bandwidth": "20 GB/s"}}
    result = search(load_exploration(study), means(out))
    (out / "front").mkdir(parents=True)
    (out / "front" / "old.yaml").write_text("name: old")
    save_found(result, out)
    files = {path.stem: load_arch(path) for path in (out / "front").glob("*.yaml")}
    assert set(files) == names(result)
    for judged in result.front:
        arch = judged.machine.arch
        assert files[arch.name].model_copy(update={"description": arch.description}) == arch
    frame = pd.read_csv(out / "front.csv")
    assert list(frame["arch"]) == [judged.machine.arch.name for judged in result.front]
    assert list(frame["latency_ms"]) == sorted(frame["latency_ms"])
    assert (out / "pareto.png").stat().st_size > 1000
    study["explore"]["objectives"] = ["latency_ms", "area_mm2", "peak_local_bytes"]
    save_found(search(load_exploration(study), means(out)), out)
    drawn = {path.name for path in out.glob("pareto*.png")}
    assert len(drawn) == 3 and "pareto.png" not in drawn


# Optuna's journal, as its dashboard reads it: real values, names of objectives and machines.


def test_the_journal_holds_what_machines_have(tmp_path: Path) -> None:
    """Amounts in base units and words as they are, objectives by name, each machine in words."""
    out = tmp_path / "out"
    result = found(tmp_path, means(out), trials=8, batch=4)
    backend = optuna.storages.journal.JournalFileBackend(str(out / "explore.journal"))
    storage = optuna.storages.JournalStorage(backend)
    [journal] = optuna.get_all_study_summaries(storage)
    held = optuna.load_study(study_name=journal.study_name, storage=storage)
    assert tuple(held.metric_names) == result.exploration.measures
    done = [trial for trial in held.trials if trial.user_attrs.get("verdict") == "ran"]
    states = {trial.user_attrs.get("verdict"): trial.state.name for trial in held.trials}
    assert (states["ran"], states["screened"]) == ("COMPLETE", "PRUNED")
    fields = {judged.machine.arch.name: judged for judged in result.full}
    assert {trial.user_attrs["name"] for trial in done} <= set(fields)
    for trial in done:
        said = dict(part.split(" ", 1) for part in trial.user_attrs["machine"].split(", "))
        assert {name: base_value(text)[0] for name, text in said.items()} == trial.params


@pytest.mark.parametrize("plots", [True, False])
def test_calls_draw_plots_only_where_they_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plots: bool
) -> None:
    wanted: list[bool] = []
    for name in ("search", "sensitivities", "load_exploration", "load_sensitivity_plan"):
        monkeypatch.setattr(api, name, lambda *_: None)
    for name in ("save_found", "save_sensitivities"):
        monkeypatch.setattr(api, name, lambda *given: wanted.append(given[-1]))
    api.explore("any.yaml", out=tmp_path, plots=plots)
    api.sensitivity("any.yaml", out=tmp_path, plots=plots)
    assert wanted == [plots, plots]
