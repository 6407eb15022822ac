"""What all tests share: they compute as worker processes of studies do, and no property fails
because the machine is slow or shared."""

from __future__ import annotations

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
