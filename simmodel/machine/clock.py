"""The machine's clock: SimPy's environment with time in whole cycles."""

from __future__ import annotations

from simpy import Environment


class Clock(Environment):
    """Starts at cycle 0; every delay is a whole number of cycles, so `now` is one too."""

    @property
    def now(self) -> int:
        """The current cycle."""
        return self._now  # type: ignore[return-value]
