"""The runner of the mutations: it breaks one rule of the product at a time, and checks that its judge notices.

`python -m tests.chaos.mutations [NAME…] [--seeds N] [--jobs K] [--json]`, or `scripts/mutate`. First the stages are
played without a mutation: they must be clean. The table names, for each mutation, the oracle that must see it and
the number of seeds that this took. Exit status: 0 if every mutation was killed or is argued to be equivalent, 1 if
not, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tests.chaos.mutations.catalogue import BY_NAME, MUTATIONS
from tests.chaos.mutations.hunt import Hunt, complaints, hunt
from tests.chaos.mutations.registry import Mutation, Stage

SEEDS, JOBS, SANE_SEEDS = 300, 2, 3


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    options = _parsed(arguments)
    if options.list:
        for mutation in MUTATIONS:
            print(f"{mutation.name}: {mutation.rule} [{', '.join(mutation.oracles)}; {mutation.stage.name}]")
        return 0
    chosen = [BY_NAME[name] for name in options.names] if options.names else list(MUTATIONS)
    stages = {mutation.stage.name: mutation.stage for mutation in chosen}
    wrong = [
        text
        for texts in _in_parallel(_sane, list(stages.values()), options.jobs, options.sane)
        for text in texts
    ]
    for text in wrong:
        print(f"not clean without a mutation: {text}", file=sys.stderr)
    hunts: list[Hunt] = []
    if not wrong:
        _say(f"{len(stages)} stages are clean over {options.sane} seeds each", options)
        _say(_row("MUTATION", "ORACLE", "SEEDS", "OTHERS SEEN"), options)
        for result in _in_parallel(_hunted, chosen, options.jobs, options.seeds):
            hunts.append(result)
            _say(_shown(result), options)
    settled = not wrong and all(result.is_settled for result in hunts)
    if options.json:
        print(json.dumps({"ok": settled, "not_clean": wrong, "mutations": [asdict(h) for h in hunts]}))
    else:
        killed = sum(result.is_killed for result in hunts)
        print(f"{killed} of {len(hunts)} killed, {sum(h.is_settled for h in hunts) - killed} equivalent")
    return 0 if settled else 1


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations; all if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds for each mutation at most")
    parser.add_argument("--sane", type=int, default=SANE_SEEDS, help="seeds of each stage without a mutation")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at once")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BY_NAME]
    if unknown:
        parser.error(f"no such mutation: {', '.join(unknown)}; --list shows all")
    if options.seeds < 1 or options.jobs < 1 or options.sane < 0:
        parser.error("--seeds and --jobs are at least 1")
    return options


def _sane(stage: Stage, seeds: int) -> list[str]:
    return list(complaints(stage, range(1, seeds + 1)))


def _hunted(mutation: Mutation, seeds: int) -> Hunt:
    return hunt(mutation, range(1, seeds + 1))


def _in_parallel(
    work: Callable[[Any, int], Any], items: Sequence[Any], jobs: int, seeds: int
) -> Iterator[Any]:
    """The answers in the order of the items; at most `jobs` processes at once, each forked for one item.

    Answers are small: they fit into a pipe that nobody reads before the process has ended.
    """
    running: dict[int, tuple[int, int]] = {}
    answers: dict[int, Any] = {}
    started = told = 0
    while told < len(items):
        while started < len(items) and len(running) < jobs:
            pid, readable = _forked(work, items[started], seeds)
            running[pid] = (started, readable)
            started += 1
        pid, status = os.wait()
        number, readable = running.pop(pid)
        with os.fdopen(readable, "rb") as pipe:
            answer = pipe.read()
        if status != 0 or not answer:
            raise RuntimeError(f"a process of the hunt ended with status {status}")
        answers[number] = pickle.loads(answer)
        while told in answers:
            yield answers.pop(told)
            told += 1


def _forked(work: Callable[[Any, int], Any], item: Any, seeds: int) -> tuple[int, int]:
    sys.stdout.flush()
    readable, writable = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writable)
        return pid, readable
    status = 1
    try:
        os.close(readable)
        with os.fdopen(writable, "wb") as pipe:
            pickle.dump(work(item, seeds), pipe)
        status = 0
    finally:
        os._exit(status)


def _say(text: str, options: argparse.Namespace) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


def _row(name: str, oracle: str, seeds: str, others: str) -> str:
    return f"{name:42} {oracle:30} {seeds:>9}  {others}".rstrip()


def _shown(result: Hunt) -> str:
    others = ", ".join(f"{oracle} {count}" for oracle, count in result.others.items())
    seeds = str(result.seeds) if result.is_killed else f"alive {result.seeds}"
    if result.equivalent and not result.is_killed:
        seeds = "equivalent"
    return _row(result.name, result.killed_by or " / ".join(result.oracles), seeds, others)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
