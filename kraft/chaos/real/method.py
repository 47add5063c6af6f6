"""The method of an experiment on a real cluster: each step strikes at its time whom it is aimed at, is proved, ends,
and its end is proved. Steps may overlap: each has a thread."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.document import Experiment, Step
from kraft.chaos.experiments.evidence import FaultEvidence
from kraft.chaos.experiments.targets import MetadataView, NobodyThereError, Struck, resolve
from kraft.chaos.experiments.vocabulary import FAULTS as WORDS
from kraft.chaos.real.ask import NoAnswerError
from kraft.chaos.real.cluster import ChaosCluster
from kraft.chaos.real.faults import FAULTS, MAY_END, Aim, Fault, Proof
from kraft.user_error import UserError

NOBODY_WITHIN_S: Final = 20.0
"""How long a fault waits until somebody has the role that it is aimed at: a node needs seconds to come back."""
LOOK_EVERY_S: Final = 0.1
RAMP_STAGES: Final = 10
TAKING_DOWN: Final = frozenset(
    name for name, word in WORDS.items() if word.takes_down or name == "rolling-restart"
)
PROOF_BEFORE_END_S: Final = 0.5
"""A fault that lasts is proved so long before its end, when it has had time to take effect."""


@dataclass
class _Strike:
    """One step, while it is carried out."""

    number: int
    step: Step
    evidence: FaultEvidence
    fault: Fault | None = None
    ended: bool = False
    """Whether its nodes are well again: one that has no process after that has ended by itself."""

    def note(self, **changes: object) -> None:
        self.evidence = replace(self.evidence, **changes)  # type: ignore[arg-type]


class Method:
    """All steps of one run."""

    def __init__(
        self,
        experiment: Experiment,
        cluster: ChaosCluster,
        now_s: Callable[[], float],
        seed: int,
        helpers: Path,
        say: Callable[[str], None],
    ) -> None:
        self._experiment = experiment
        self._cluster = cluster
        self._now_s = now_s
        self._rng = random.Random(f"{seed}/targets")
        self._helpers = helpers
        self._say = say
        self.stopped = threading.Event()
        """Ends waits: what has begun is ended, and nothing else begins."""
        self._strikes = [
            _Strike(number, step, FaultEvidence(number, step.fault, step.target.text))
            for number, step in enumerate(experiment.method)
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """The method's clock begins when the steady state is over."""
        for strike in self._strikes:
            thread = threading.Thread(
                target=self._carry_out, args=(strike,), name=f"step-{strike.number + 1}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def struck(self) -> frozenset[int]:
        """The nodes that may have no process because of a fault that takes nodes down, until it is known to be over.
        One without room on its disk may end later still."""
        return frozenset(
            node
            for one in self._strikes
            if one.step.fault in MAY_END or (one.step.fault in TAKING_DOWN and not one.ended)
            for node in one.evidence.nodes
        )

    def stop(self) -> None:
        """Ends every fault; returns when all have ended."""
        self.stopped.set()
        for thread in self._threads:
            thread.join()

    def abandon(self, timeout_s: float) -> None:
        """Waits so long at most until no step does anything more: its nodes may be gone by now."""
        self.stopped.set()
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def evidence(self) -> tuple[FaultEvidence, ...]:
        return tuple(one.evidence for one in self._strikes)

    # -- one step

    def _carry_out(self, strike: _Strike) -> None:
        try:
            self._strike(strike)
        except (UserError, OSError) as error:
            strike.note(took_effect=False, proof=f"{strike.evidence.proof} {error}".strip())
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with a step is evidence against it
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"the fault failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            strike.note(took_effect=False, proof=text)
        finally:
            self._end(strike)

    def _strike(self, strike: _Strike) -> None:
        step = strike.step
        if self.stopped.wait(max(0.0, self._experiment.steady_s + step.at_s - self._now_s())):
            return
        struck = self._target(strike)
        if struck is None:
            return
        aim = Aim(
            self._cluster, struck.nodes, struck.partitions, self._helpers, step.parameters, self.stopped
        )
        strike.note(nodes=struck.nodes, partitions=struck.partitions, began_s=self._now_s())
        strike.fault = fault = FAULTS[step.fault](aim)
        nodes = ", ".join(map(str, struck.nodes))
        self._say(f"{step.fault} of {step.target.text}: node {nodes}")
        if step.ramp_s:
            fault.begin()
            self._ramp(fault, step)
        else:
            fault.begin()
        left_s = step.for_s - step.ramp_s if WORDS[step.fault].lasts else 0.0
        self.stopped.wait(max(0.0, left_s - PROOF_BEFORE_END_S))
        proof = fault.proof()
        strike.note(took_effect=proof.holds, proof=proof.text)
        end_s = (strike.evidence.began_s or 0.0) + step.for_s
        if WORDS[step.fault].lasts:
            self.stopped.wait(max(0.0, end_s - self._now_s()))

    def _ramp(self, fault: Fault, step: Step) -> None:
        for stage in range(1, RAMP_STAGES + 1):
            fault.grow(stage / RAMP_STAGES)
            if self.stopped.wait(step.ramp_s / RAMP_STAGES):
                return

    def _target(self, strike: _Strike) -> Struck | None:
        """Whoever has the role now; waits a little until somebody has it."""
        end_s = self._now_s() + NOBODY_WITHIN_S
        while True:
            try:
                return resolve(strike.step.target, self._view(), self._rng, self._earlier())
            except (NobodyThereError, NoAnswerError) as error:
                strike.note(proof=str(error))
                if self._now_s() >= end_s or self.stopped.wait(LOOK_EVERY_S):
                    return None

    def _earlier(self) -> Mapping[int, tuple[int, ...]]:
        return {
            one.number + 1: one.evidence.nodes for one in self._strikes if one.evidence.began_s is not None
        }

    def _view(self) -> MetadataView:
        workload = self._experiment.workload
        return self._cluster.view(
            [topic.name for topic in self._experiment.cluster.topics],
            sorted({one.group for one in workload if one.group}),
            sorted({one.transactional_id for one in workload if one.transactional_id}),
        )

    def _end(self, strike: _Strike) -> None:
        """Ends a fault that has begun, and proves it."""
        if strike.fault is None:
            strike.ended = True
            return
        try:
            strike.fault.end()
            strike.note(ended_s=self._now_s())
            self._say(f"{strike.step.fault} of {strike.step.target.text} is over")
            proof: Proof = strike.fault.heal_proof()
        except (UserError, OSError) as error:
            proof = Proof(False, str(error))
        strike.note(healed=proof.holds, heal_proof=proof.text)
        strike.ended = proof.holds is True
