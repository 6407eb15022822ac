"""What all tests share: no property fails because the machine is slow or shared."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "archgen",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("archgen")
