"""What many tests of studies need."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_only import LOG


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and a log of compilations that no other test has."""
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
