"""The fuzz of `studies/benchmarks/fuzz.py`: what it draws, what it finds, and how it goes on."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import onnx
import pytest
from fuzzing.broken import MACHINE, judged_file
from fuzzing.cases import Case, case_of
from fuzzing.forked import each
from fuzzing.graphs import graph
from fuzzing.judge import judged
from fuzzing.machines import machine
from fuzzing.shrink import shrunk

from archgen.toolchain import STANDARD
from compiler.errors import DoesNotFit
from simmodel.execute import Run

BROKEN, SHARE = 30, 10
"""Damaged files, and how many of them are one test."""


@pytest.fixture(autouse=True)
def cache(own_cache: None) -> None:
    """Nothing is remembered from one test to the next."""


@pytest.mark.parametrize("first", range(0, BROKEN, SHARE))
def test_damaged_files_end_in_words(first: int) -> None:
    found = {seed: judged_file(seed) for seed in range(first, first + SHARE)}
    failed = [f"seed {seed}: {line}" for seed, line in found.items() if line["kind"] != "right"]
    assert not failed, "\n".join(failed)


def test_graphs_have_any_operator_and_are_models() -> None:
    kinds: Counter[str] = Counter()
    outputs = []
    for seed in range(150):
        model = graph(random.Random(seed), coded=seed % 5 == 0)
        onnx.checker.check_model(model)
        kinds.update({node.op_type for node in model.graph.node})
        outputs.append(len(model.graph.output))
    assert len(kinds) > 80, sorted(kinds)
    assert min(outputs) == 1 and max(outputs) > 2


def test_machines_have_any_trait() -> None:
    drawn = [machine(random.Random(seed), f"m{seed}") for seed in range(150)]
    for field in ("shared", "weights", "accumulators"):
        assert 20 < sum(field in tree["memories"] for tree in drawn) < 120
    fields = {path for tree in drawn for path in paths(tree)}
    for wanted in (
        "matrix.dataflow", "matrix.depthwise", "matrix.max_pixels", "matrix.im2col", "links",
        "vector.max_extent", "vector.rank", "front_end.queue_depth", "memories.local.mapping",
        "memories.local.read_ports", "memories.local.conflict_penalty", "memories.shared.level",
        "copy.load.broadcast", "copy.load.rank", "copy.peer.peer", "vector.wide_lanes",
        "engines.special", "vector.table", "isa.chains", "host.compute", "engines.second",
        "matrix.winograd", "memories.flash", "memories.dram.on_chip", "links.grid.topology",
        "matrix.rate.mxfp8", "matrix.rate.int8_2of4",
    ):  # fmt: skip
        assert wanted in fields


def paths(tree: dict[str, Any], at: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{at}{key}"
        if isinstance(value, dict):
            yield from paths(value, f"{at}{key}.")


def a_case(wanted: str = "MatMul") -> Case:
    """A case that is right and has this operator."""
    for seed in range(200):
        case = case_of(seed, quick=True)
        kinds = [node.op_type for node in case.model.graph.node]
        if wanted in kinds and "DequantizeLinear" not in kinds and len(kinds) > 4:
            return replace(case, machine=MACHINE, dtype="fp32")
    raise AssertionError(wanted)


Tool = Callable[..., Any]


def raises(mistake: BaseException) -> Tool:
    def work(*_: Any) -> Any:
        raise mistake

    return work


def forever(*_: Any) -> Any:
    while True:
        pass


def wrong_sum() -> DoesNotFit:
    return DoesNotFit(10, 4, "B", (("weights", 4), ("inputs", 5)), ("more",), "local")


@pytest.mark.parametrize(
    ("tools", "kind", "signature"),
    [
        ({"compile": raises(KeyError("no"))}, "crash", "KeyError"),
        ({"compile": raises(wrong_sum())}, "sum", "terms"),
        ({"compile": forever}, "hang", "forever"),
    ],
)
def test_judge_finds(tools: dict[str, Tool], kind: str, signature: str, tmp_path: Path) -> None:
    found = judged(a_case(), tmp_path / "m", cpu=1, tools=replace(STANDARD, **tools))
    assert found.kind == kind and signature in found.signature


def test_judge_finds_wrong_values(tmp_path: Path) -> None:
    def off(*given: Any) -> Any:
        run = STANDARD.execute(*given)
        moved = {name: value + np.asarray(9, value.dtype) for name, value in run.outputs.items()}
        return Run(iter([run.probed]), lambda: moved)

    case = a_case()
    assert judged(case, tmp_path / "m").kind == "right"
    tools = replace(STANDARD, execute=off)
    assert judged(case, tmp_path / "m", tools=tools).kind == "wrong"


def test_failing_case_is_made_small() -> None:
    case = next(
        case for seed in range(200)
        if (case := case_of(seed))
        and len(case.model.graph.node) > 5
        and "Softmax" in {node.op_type for node in case.model.graph.node}
        and "links" in case.machine
    )  # fmt: skip

    def fails(other: Case) -> bool:
        kinds = {node.op_type for node in other.model.graph.node}
        return "Softmax" in kinds and "links" in other.machine

    small = shrunk(case, fails, seconds=30)
    assert [node.op_type for node in small.model.graph.node] == ["Softmax"]
    onnx.checker.check_model(small.model, full_check=True)
    assert small.scheduling.effort == 0 and small.scheduling.fusion == "optimal"
    assert "front_end" not in small.machine and "links" in small.machine
    assert "cores" not in small.machine


def test_log_is_taken_up_where_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps({"seed": 3, "kind": "right"}) + "\n" + '{"se')
    given = ["--quick", "--seed", "3", "--count", "2", "--out", str(tmp_path), "--no-shrink"]
    with pytest.raises(SystemExit) as end:
        fuzz.main(given)
    assert end.value.code == 0
    assert [line["seed"] for line in fuzz.read(tmp_path / "log.jsonl")] == [3, 4]
    assert "failures: 0" in capsys.readouterr().out


def test_child_that_dies_has_answered() -> None:
    def work(task: int) -> dict[str, Any]:
        if task == 1:
            os._exit(3)
        return {"kind": "right"}

    found = dict(each(work, iter(range(3)), jobs=2, seconds=30))
    assert [found[task]["kind"] for task in range(3)] == ["right", "died", "right"]
