"""The worlds in which an experiment can be played, by the names that files have for them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from kraft.chaos.experiments.document import DURATION_MAX_S, Experiment
from kraft.chaos.experiments.evidence import Evidence
from kraft.chaos.experiments.vocabulary import SIM
from kraft.chaos.pool import run_isolated
from kraft.chaos.report import commit_of_checkout
from kraft.user_error import EXIT_USAGE, UserError

Say = Callable[[str], None]
"""Is told, in words, what the run does now."""


def backend_of(experiment: Experiment, asked: str | None) -> str:
    """The backend asked for, or the first that the file names. Raises UserError for one that it does not name."""
    if asked is None:
        return experiment.backends[0]
    if asked not in experiment.backends:
        has = " and ".join(experiment.backends)
        raise UserError(f"{experiment.name} runs on {has}, not on {asked}", EXIT_USAGE)
    return asked


def lasting(experiment: Experiment, duration_s: float) -> Experiment:
    """The experiment with another duration. Raises UserError where its faults would not end within it."""
    last_s = max((step.end_s for step in experiment.method), default=0.0)
    if not max(1.0, last_s) <= duration_s <= DURATION_MAX_S:
        raise UserError(
            f"--duration is from {max(1.0, last_s):g}s, when the last fault of {experiment.name} has ended,"
            f" to {DURATION_MAX_S:g}s",
            EXIT_USAGE,
        )
    return replace(experiment, duration_s=duration_s)


def with_backlog(experiment: Experiment, backlog_bytes: int) -> Experiment:
    """The experiment with another backlog. Raises UserError where nobody reads one."""
    if not any(one.kind == "slow-consumer" for one in experiment.workload):
        raise UserError(f"--backlog is for a workload slow-consumer: {experiment.name} has none", EXIT_USAGE)
    if backlog_bytes < 1:
        raise UserError("--backlog is at least 1 byte", EXIT_USAGE)
    workload = tuple(
        replace(one, backlog_bytes=backlog_bytes) if one.kind == "slow-consumer" else one
        for one in experiment.workload
    )
    return replace(experiment, workload=workload)


def play_on(
    backend: str, experiment: Experiment, seed: int, out: Path, say: Say, *, secure: bool = False
) -> Evidence:
    """Plays it, and notes where. Raises UserError for what this machine lacks. `out`: the folder of the run, for the
    logs of a real one. `secure`: with TLS, users and ACLs, which the simulation has not."""
    evidence = _played(backend, experiment, seed, out, say, secure=secure)
    return replace(evidence, environment={**environment(), **evidence.environment})


def environment() -> dict[str, str]:
    """What this program and this machine are."""
    commit, is_modified = commit_of_checkout()
    return {
        "kraft": version("kraft"),
        "commit": f"{commit}, modified" if is_modified else commit,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cores": str(len(os.sched_getaffinity(0))),
    }


def _played(
    backend: str, experiment: Experiment, seed: int, out: Path, say: Say, *, secure: bool
) -> Evidence:
    if backend == SIM:
        if secure:
            raise UserError(
                f"--secure is for real nodes: add --backend real, if {experiment.name} has it", EXIT_USAGE
            )
        from kraft.chaos.experiments.simulated import play, scenario_of

        scenario_of(experiment, seed)  # a mistake of the file is told here, and not as the end of a process
        return run_isolated(lambda: play(experiment, seed))
    from kraft.chaos.real.run import play as play_really

    return play_really(experiment, seed, out, say=say, secure=secure)
