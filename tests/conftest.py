"""What all tests share: they compute as worker processes of studies do, no property fails because
the machine is slow or shared, and what takes longest comes first."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from archgen.process.threads import collect_rarely, one_thread_each

# Before numpy is loaded: test processes run side by side, so threads of each would only wait.
one_thread_each()
collect_rarely()

settings.register_profile(
    "archgen",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("archgen")

LONGEST = ("tests/docs/test_docs.py", "tests/docs/test_notebook.py")
"""Files with tests of a minute and more."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, those of `LONGEST` come first, so that in the end
    none is alone with one of them. Files stay whole, for tests of a file share fixtures."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.nodeid.split("::")[0] not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where Python is told to write no bytecode, each process that a test starts compiles our
    modules for most of a second; those of one session keep it, in the session's folder."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tmp_path_factory.getbasetemp()
        shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared / "bytecode")
