"""What happens to wall clocks: they drift, and they jump. Time that is measured is not touched.

Nothing that matters may depend on wall clocks; they only stamp records and tell their age.
"""

from __future__ import annotations

import random

from kraft.chaos.faults.context import FaultContext
from kraft.chaos.faults.kind import fault

JUMPS_MAX_MS = (50, 5_000, 5_000, 60_000)
OFFSET_MAX_MS = 300_000
"""A jump that would take a clock further from the true time does not happen."""
DRIFTS_MAX = (0.001, 0.05, 0.3)


@fault("clock-skew", "the wall clock of a machine runs too fast or too slow")
def clock_skew(context: FaultContext, rng: random.Random) -> None:
    """What it gained or lost meanwhile stays."""
    node_id = rng.choice(list(context.cluster.hosts))
    most = rng.choice(DRIFTS_MAX)
    drift, duration_s = rng.uniform(-most, most), context.draw_duration_s(rng, 1.0, 8.0, long_max_s=20.0)
    clock = context.host(node_id).clock
    if clock.drift == 0:
        struck = context.happened("clock-skew", f"node {node_id} by {drift:+.4f} for {duration_s:.3f} s")
        clock.set_drift(drift)
        context.until(duration_s, lambda: clock.set_drift(0.0), struck)


@fault("clock-jump", "the wall clock of a machine is set, forwards or backwards")
def clock_jump(context: FaultContext, rng: random.Random) -> None:
    """It stays wrong until the faults are over, unless it jumps again."""
    node_id = rng.choice(list(context.cluster.hosts))
    most_ms = rng.choice(JUMPS_MAX_MS)
    jump_ms = rng.randint(-most_ms, most_ms)
    clock = context.host(node_id).clock
    if jump_ms and abs(clock.offset_ms + jump_ms) <= OFFSET_MAX_MS:
        context.happened("clock-jump", f"node {node_id} by {jump_ms} ms")
        clock.offset_ms += jump_ms
