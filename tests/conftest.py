"""What all tests share: they compute as worker processes of studies do, no property fails because
the machine is slow or shared, and what takes long is a tier of its own.

`pytest` runs what a contributor waits for, properties with few examples. `pytest -m slow` runs the
tests that `SLOW` names, and all properties again with many examples.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from archgen.process.start import collect_rarely, single_threaded

# Before numpy is loaded: test processes run side by side, so threads of each would only wait.
single_threaded()
collect_rarely()

settings.register_profile("archgen", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("archgen")

QUICK_EXAMPLES = 25
"""Of a property in the quick tier, where it states more."""
SLOW = (
    # documentation and notebooks, followed as a reader would
    "tests/docs/test_docs.py::test_a_page_does_what_it_says",
    "tests/docs/test_docs.py::test_generated_parts",
    "tests/docs/test_docs.py::test_a_notebook_runs",
    "tests/docs/test_docs.py::test_rows",
    # browser, processes, damage
    "tests/archgen/test_report_browser.py",
    "tests/archgen/test_report_explore.py",
    "tests/archgen/test_bounds_of_input.py",
    "tests/archgen/test_store.py",
    "tests/archgen/test_store.py",
    "tests/archgen/test_bounds_of_input.py",
    "tests/archgen/test_exploration.py::test_a_killed_search",
    "tests/archgen/test_exploration.py::test_two_at_a_time",
    "tests/archgen/test_study.py::test_bounds_of_input",
    "tests/archgen/test_study.py::test_an_interrupted_study",
    "tests/archgen/test_exit_codes.py::test_mutated",
    "tests/archgen/test_commands.py::test_the_example",
    # fuzz and mutants
    "tests/archgen/test_fuzz.py",
    "tests/archgen/test_verdict.py",
    "tests/compiler/test_fuzz_programs.py",
    "tests/compiler/test_mutants.py",
    "tests/compiler/test_core_signals.py",
    "tests/compiler/test_decisions.py::test_a_change",
    # networks on many machines, at many lengths, by many fields
    "tests/archgen/test_any_length.py",
    "tests/archgen/test_backend.py::test_onnx",
    "tests/archgen/test_benchmarks.py",
    "tests/archgen/test_every_field_has_a_price.py::test_fields",
    "tests/archgen/test_schedule_transfer.py",
    "tests/archgen/test_levers.py::test_groups_that_one_core",
    "tests/archgen/test_zoo.py::test_nests_and_groups",
    "tests/archgen/test_zoo.py::test_a_small_network",
    "tests/compiler/test_attainable.py::test_no_run_is_quicker",
    "tests/compiler/test_borders.py::test_tiles_in_the_border",
    "tests/compiler/test_borders.py::test_groups_around",
    "tests/compiler/test_emit_programs.py::test_another_process",
    "tests/compiler/test_options.py::test_what_may_be_left_out",
    "tests/compiler/test_options.py::test_programs",
    "tests/compiler/test_recompute.py::test_floats",
    "tests/compiler/test_tile_search.py::test_no_price_is_below_its_floor",
)
"""How the names of tests begin that take long, or need processes or a browser. Tables
of many machines mark in place what the quick tier leaves out (`machines.crossed`)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tier, before pytest chooses by marks. Properties have few examples in the quick
    tier, and all that they state in the slow one."""
    many = config.getoption("markexpr") == "slow"
    for item in items:
        test = getattr(item, "obj", None)
        if is_hypothesis_test(test):
            stated = test._hypothesis_internal_use_settings
            if not many:
                few = settings(stated, max_examples=min(stated.max_examples, QUICK_EXAMPLES))
                test._hypothesis_internal_use_settings = few
        if item.nodeid.startswith(SLOW) or (many and is_hypothesis_test(test)):
            item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where Python is told to write no bytecode, each process that a test starts compiles our
    modules for most of a second; those of one session keep it, in the session's folder."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tmp_path_factory.getbasetemp()
        shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared / "bytecode")
