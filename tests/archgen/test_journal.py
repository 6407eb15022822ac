"""Optuna's journal, as its dashboard reads it: real values, names of objectives and machines."""

from __future__ import annotations

from pathlib import Path

import optuna
from test_exploration import found, means

from archgen.exploration.space import base_value


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
