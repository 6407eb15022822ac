"""What all tests share: they compute as worker processes of studies do, no property fails because
the machine is slow or shared, and what takes long is a tier of its own.

`pytest` runs what a contributor waits for, properties with few examples. `pytest -m slow` runs the
tests that `SLOW` names, and all properties again with many examples.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from archgen.process.threads import collect_rarely, one_thread_each

# Before numpy is loaded: test processes run side by side, so threads of each would only wait.
one_thread_each()
collect_rarely()

SLOW = (
    "tests/docs/test_docs.py::test_blocks",
    "tests/docs/test_notebook.py",
)
"""How the names of tests begin that take long, or need processes, a browser or a cluster."""


def pytest_configure(config: pytest.Config) -> None:
    """Properties have as many examples as the tier has time for."""
    slow = config.getoption("markexpr") == "slow"
    settings.register_profile(
        "archgen",
        deadline=None,
        max_examples=100 if slow else 25,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("archgen")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tier, before pytest chooses by marks."""
    many = config.getoption("markexpr") == "slow"
    for item in items:
        test = getattr(item, "obj", None)
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
