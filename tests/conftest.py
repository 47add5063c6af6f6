"""What all tests share: a property holds or it does not, however busy the machine is that looks."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Left to itself, Hypothesis fails an example that took 200 ms, and a strategy that is slow to draw from.
# Tests that name health checks of their own keep those.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
