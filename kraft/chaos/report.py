"""The report of a campaign: as a document, as sentences, and whether the campaign can be believed.

A campaign without findings proves something only if its faults struck and its clients got through, so this is judged,
too. `kraft chaos simulate` and `quorum` call it; `--json` prints the document.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kraft
from kraft.chaos.campaign import AnyScenario, Finished, Tally, Verification
from kraft.chaos.outcome import FAULT_PREFIX

MANY_SEEDS = 100
"""From so many seeds on, everything enabled must have happened."""
GIT_TIMEOUT_S = 10.0
SILENT_MAX = 0.05
"""The part of many seeds that may show nothing: after unclean elections and injected damage, none of their
acknowledged records had to be there at the end."""
SHOWN_MAX = 3
TEXT_MAX_CHARACTERS = 1500
EXCUSE_MAX_CHARACTERS = 400


@dataclass(frozen=True)
class Asked:
    """The request for a campaign."""

    command: str
    """Of `kraft chaos`, which plays its scenarios."""
    options: tuple[str, ...] = ()
    """Of the command, beside seed and seconds."""
    needed: tuple[str, ...] = ()
    """The counters that many seeds have to raise, or the campaign shows too little."""
    declared: tuple[str, ...] = ()
    """The counters that are shown even if they stay at zero."""
    grave: frozenset[str] = frozenset()
    """The counters that stand out when they are not zero."""
    case: str = ""
    """The file of the scenario."""

    def replay(self, scenario: AnyScenario) -> str:
        """The one-line command that plays this scenario."""
        words = ["kraft", "chaos", self.command]
        if self.case:
            return shlex.join([*words, "--case", self.case])
        whole = float(scenario.seconds).is_integer()
        seconds = f"{scenario.seconds:.0f}" if whole else repr(scenario.seconds)
        return shlex.join([*words, "--seed", str(scenario.seed), "--seconds", seconds, *self.options])


def commit_of_checkout() -> tuple[str, bool]:
    """The git commit of the checkout that this code is in, and whether files of it were modified since;
    outside of a checkout the installed version.
    """
    root = Path(kraft.__file__).resolve().parents[1]
    if (root / ".git").exists():
        try:
            commit = _git(root, "rev-parse", "HEAD")
            return commit, bool(_git(root, "status", "--porcelain", "--", "*.py", "pyproject.toml"))
        except (OSError, subprocess.SubprocessError):
            return version("kraft"), False
    return version("kraft"), False


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S)
    return done.stdout.strip()


def never_happened(tally: Tally, asked: Asked) -> list[str]:
    """The declared counters that stayed at zero, and the workloads that got no acknowledgement."""
    silent = [f"acknowledged: {kind}" for kind, times in sorted(tally.acknowledged.items()) if not times]
    return [name for name in sorted(asked.declared) if not tally.coverage[name]] + silent


def silent_seeds(tally: Tally) -> list[str]:
    """The seeds that show nothing, with the reasons: the first in full."""
    told = [f"seed {seed} shows nothing: {why}" for seed, why in list(tally.undecided.items())[:SHOWN_MAX]]
    if len(tally.undecided) > SHOWN_MAX:
        told.append(f"so do {len(tally.undecided) - SHOWN_MAX} other seeds")
    return told


def notable(tally: Tally, asked: Asked) -> dict[str, int]:
    """The counters that stand out: rare and grave events, records that nothing promised and that are gone, and the
    workloads without an acknowledgement."""
    found = {name: times for name, times in sorted(tally.coverage.items()) if name in asked.grave and times}
    found |= {
        f"history: {name}": times
        for name, times in sorted(tally.history.items())
        if times and (name in asked.grave or name.endswith("never read"))
    }
    return found | {
        f"acknowledged: {kind}": 0 for kind, times in sorted(tally.acknowledged.items()) if not times
    }


def struck(tally: Tally) -> str:
    """The faults that struck, by name and how often, the most frequent first; empty if none did."""
    faults = [
        (name.removeprefix(FAULT_PREFIX), n)
        for name, n in tally.coverage.items()
        if name.startswith(FAULT_PREFIX) and n
    ]
    return ", ".join(f"{name} {times}" for name, times in sorted(faults, key=lambda one: (-one[1], one[0])))


def excuse_lines(tally: Tally) -> list[str]:
    """The losses that faults explain, for people: which records, and why; of the first seeds, the first ones."""
    lines = []
    for seed, texts in sorted(tally.excuses.items())[:SHOWN_MAX]:
        lines.append(f"seed {seed} lost records, and the injected faults explain it:")
        lines += [f"  {_short(text, EXCUSE_MAX_CHARACTERS)}" for text in texts[:SHOWN_MAX]]
        if len(texts) > SHOWN_MAX:
            lines.append(f"  and {len(texts) - SHOWN_MAX} more")
    if tally.excused > SHOWN_MAX:
        lines.append(f"and so did {tally.excused - SHOWN_MAX} other seeds (all in --json)")
    return lines


def shortcomings(tally: Tally, asked: Asked) -> list[str]:
    """Why a campaign without violations would prove too little; [] if it can be believed.

    A case asks one question, whether its oracle still fails; it may be so small that no client gets through.
    """
    found = [tally.untold] if tally.untold else []
    if asked.case and tally.seeds and not tally.interrupted:
        return found
    silent_max = tally.seeds * SILENT_MAX if tally.seeds >= MANY_SEEDS else tally.seeds - 1
    if len(tally.undecided) > silent_max:
        found += silent_seeds(tally)
    if tally.interrupted:
        found.append("it was interrupted")
    if not tally.seeds:
        found.append("no seed was played to its end")
    if tally.seeds >= MANY_SEEDS:
        found += [_missed(name) for name in asked.needed if not tally.coverage[name]]
        found += [
            f"no workload '{kind}' got an acknowledgement"
            for kind, times in sorted(tally.acknowledged.items())
            if not times
        ]
    return found


def _missed(counter: str) -> str:
    if counter.startswith(FAULT_PREFIX):
        return f"the fault '{counter.removeprefix(FAULT_PREFIX)}' was enabled and never struck"
    return f"'{counter}' never happened"


def rates(tally: Tally) -> dict[str, float]:
    """The campaign's speed. Core-hours and CPU seconds are those of the processes of the runs."""
    cpu_s, wall_s, virtual_s = max(tally.cpu_s, 1e-9), max(tally.wall_s, 1e-9), max(tally.virtual_s, 1e-9)
    return {
        "virtual_s_per_cpu_s": round(tally.virtual_s / cpu_s, 3),
        "seeds_per_core_hour": round(tally.seeds * 3600 / cpu_s, 1),
        "seeds_per_minute": round(tally.seeds * 60 / wall_s, 2),
        "operations_per_virtual_s": round(tally.operations / virtual_s, 2),
    }


def document(tally: Tally, asked: Asked) -> dict[str, Any]:
    """The JSON object of a campaign."""
    commit, is_modified = commit_of_checkout()
    return {
        "commit": commit,
        "modified": is_modified,
        "seeds": tally.seeds,
        "shapes": dict(sorted(tally.shapes.items())),
        "virtual_s": round(tally.virtual_s, 3),
        "wall_s": round(tally.wall_s, 3),
        "cpu_s": round(tally.cpu_s, 3),
        "steps": tally.steps,
        "operations": tally.operations,
        **rates(tally),
        "violated_seeds": tally.failed_count,
        "violations": [row for finished in tally.failed for row in _rows(finished, asked)],
        "excused": tally.excused,
        "excuses": {str(seed): texts for seed, texts in sorted(tally.excuses.items())},
        "undecided": {str(seed): why for seed, why in tally.undecided.items()},
        "shortcomings": shortcomings(tally, asked),
        "coverage": dict(sorted(tally.coverage.items())),
        "never_happened": never_happened(tally, asked),
        "history": dict(sorted(tally.history.items())),
        "acknowledged": dict(sorted(tally.acknowledged.items())),
        "unacknowledged": {kind: n for kind, n in sorted(tally.unacknowledged.items()) if n},
        "digests": {str(seed): digest for seed, digest in sorted(tally.digests.items())},
        "interrupted": tally.interrupted,
    }


def _rows(finished: Finished, asked: Asked) -> list[dict[str, Any]]:
    replay = asked.replay(finished.scenario)
    return [
        {
            "seed": finished.scenario.seed,
            "oracle": violation.oracle,
            "step": violation.step,
            "at_s": round(violation.at_s, 6),
            "text": violation.text,
            "replay": replay,
        }
        for violation in finished.outcome.first_violations
    ]


def failure_lines(finished: Finished, asked: Asked, *, with_events: bool) -> list[str]:
    """A failed run for people: oracle, first bad step, the last events before it, and how to replay it."""
    outcome = finished.outcome
    violations = outcome.first_violations
    first = violations[0]
    where = "" if first.step < 0 else f" at step {first.step}, {first.at_s:.6f} virtual s"
    lines = [f"seed {finished.scenario.seed} failed {first.oracle}{where}: {_short(first.text)}"]
    if with_events:
        others = violations[1:]
        lines += [f"  then {v.oracle} at step {v.step}: {_short(v.text)}" for v in others[:SHOWN_MAX]]
        if len(others) > SHOWN_MAX:
            lines.append(f"  then {len(others) - SHOWN_MAX} other oracles")
        if outcome.last_events:
            lines.append("  before it:")
            lines += [f"    {_short(event)}" for event in outcome.last_events]
    return [*lines, f"  replay: {asked.replay(finished.scenario)}"]


def _short(text: str, max_characters: int = TEXT_MAX_CHARACTERS) -> str:
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"


def verification_document(done: Sequence[Verification], *, interrupted: bool = False) -> dict[str, Any]:
    """The JSON object of `--verify`: one verification itself, or a list. `interrupted`: there were more."""
    rows = [
        {"seed": one.seed, "hashes": list(one.hashes), "equal": one.equal, "failed": list(one.failed)}
        for one in done
    ]
    if len(rows) == 1 and not interrupted:
        return rows[0]
    equal = bool(rows) and all(one.equal for one in done)
    return {"verified": rows, "equal": equal, "interrupted": interrupted}
