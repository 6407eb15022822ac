"""Optuna's journal, as its dashboard reads it: real values, names of objectives and machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from test_exploration import found, means

from archgen.exploration.listed import Listed
from archgen.exploration.ranges import base_value, is_ordered
from archgen.exploration.space import Parameter
from archgen.schema.variants import spelled


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


@pytest.mark.parametrize(
    ("values", "proposed", "nearest"),
    [
        (["64 KiB", "128 KiB", "1 MiB"], 90000.0, 65536.0),
        (["64 KiB", "128 KiB", "1 MiB"], 95000.0, 131072.0),
        ([1, 2, 3], 2.4, 2.0),
        (["tile", "gemm"], "gemm", "gemm"),
        ([8], 8.0, 8.0),
    ],
)
def test_what_is_proposed_is_moved_to_the_nearest_value(
    values: list[Any], proposed: Any, nearest: Any
) -> None:
    """Wide ranges by ratio: 90 000 is nearer to 65 536 than to 131 072 by 1.37 to 1.46."""
    ordered = is_ordered(values)
    listed = Listed(Parameter("field", tuple(map(spelled, values)), ordered))
    assert listed.nearest(proposed) == nearest
    kind = listed.distribution(optuna.distributions)
    assert all(kind._contains(kind.to_internal_repr(value)) for value in listed.values)
    assert [listed.index(value) for value in listed.values] == list(range(len(values)))
