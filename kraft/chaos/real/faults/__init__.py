"""The faults of real clusters by the names of experiment files, and why this host may not have one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kraft.chaos.experiments.document import Experiment, Step
from kraft.chaos.real.faults.fault import Aim, Fault, Proof
from kraft.chaos.real.faults.hosts import CpuPressure, DiskFull
from kraft.chaos.real.faults.networks import network_fault
from kraft.chaos.real.faults.packets import PacketLoss
from kraft.chaos.real.faults.packets import refusal as packet_loss_refusal
from kraft.chaos.real.faults.processes import BitRot, Down, Pause, RollingRestart, Truncate, Wipe

FAULTS: Final[Mapping[str, Callable[[Aim], Fault]]] = {
    "kill": Down,
    "stop": partial(Down, in_order=True),
    "pause": Pause,
    "rolling-restart": RollingRestart,
    "wipe": Wipe,
    "bit-rot": BitRot,
    "truncate": Truncate,
    "disk-full": DiskFull,
    "cpu-pressure": CpuPressure,
    "packet-loss": PacketLoss,
    **{
        name: partial(network_fault, name)
        for name in ("cut-off", "stall", "half-open", "reset", "latency", "bandwidth")
    },
}
DISK_FAULTS: Final = frozenset(("disk-full",))
"""Faults that need a file system of its own for each node."""


def refusals(experiment: Experiment) -> list[str]:
    """Why this host, or this world, cannot play an experiment: a sentence for each reason."""
    return [told for step in experiment.method if (told := _refusal(step))]


def _refusal(step: Step) -> str:
    if step.fault not in FAULTS:
        return f"the fault {step.fault} cannot be played on real nodes yet; try --backend sim"
    if step.fault in DISK_FAULTS and os.geteuid() != 0:
        return f"the fault {step.fault} needs root, since each node gets a file system of its own (tmpfs)"
    if step.fault == "packet-loss":
        return packet_loss_refusal()
    return ""


__all__ = ["DISK_FAULTS", "FAULTS", "Aim", "Fault", "Proof", "refusals"]
