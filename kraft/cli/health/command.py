"""`kraft cluster health`: one look, or one after the other until somebody ends it or the cluster is healthy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from kraft.cli.shared.admin_client import run_admin
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import print_json, print_line
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, UserError

if TYPE_CHECKING:
    from kraft.cluster_problems import Problem

LOOK_EVERY_S: Final = 1.0
NAMED_MAX: Final = 20
"""Problems of one kind that people are shown; --json has all."""


class Look(NamedTuple):
    """What one look found; `problems` None: nobody told, and `why`."""

    problems: Sequence[Problem] | None
    why: str = ""

    @property
    def exit_code(self) -> int:
        if self.problems is None:
            return EXIT_UNDECIDED
        return EXIT_FAILED if self.problems else EXIT_DONE


def health(
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Look again each second and tell of changes (+ is new, - is over), until Ctrl-C."
        ),
    ] = False,
    exit_when_healthy: Annotated[
        bool, typer.Option("--exit-when-healthy", help="Look again until nothing is wrong, then end.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="End then at the latest, as the last look was.", show_default=False
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Say what is wrong with a cluster: partitions without a leader, below min.insync.replicas or under-replicated;
    brokers that are fenced or silent; no controller, or a voter that is not heard of; data directories that failed or
    are nearly full.

    Exit code 0: healthy; 1: not; 2: wrong usage; 3: could not tell, since no broker answers.
    """
    end_s = None if timeout is None else time.monotonic() + timeout
    last: Look | None = None
    try:
        with ends_like_ctrl_c():
            while True:
                look = _look(bootstrap_server)
                if look != last:
                    _show(look, last, as_json=as_json, is_dated=watch or exit_when_healthy)
                last = look
                if not (watch or exit_when_healthy) or (exit_when_healthy and look.exit_code == EXIT_DONE):
                    break
                pause_s = LOOK_EVERY_S if end_s is None else min(LOOK_EVERY_S, end_s - time.monotonic())
                if pause_s <= 0:
                    break
                time.sleep(pause_s)
    except KeyboardInterrupt:
        if last is None:
            raise
    raise typer.Exit(last.exit_code)


def _look(bootstrap_server: str) -> Look:
    from kraft.cli.health.observing import observe
    from kraft.cli.health.problems import problems

    try:
        return Look(problems(run_admin(bootstrap_server, observe, unanswered=EXIT_UNDECIDED)))
    except UserError as error:
        if error.exit_code not in (EXIT_UNDECIDED, EXIT_FAILED):
            raise
        return Look(None, str(error))


def _show(look: Look, before: Look | None, *, as_json: bool, is_dated: bool) -> None:
    if as_json:
        found = [] if look.problems is None else [problem._asdict() for problem in look.problems]
        healthy = None if look.problems is None else not look.problems
        print_json(
            {"healthy": healthy, "problems": found} | ({"error": look.why} if look.problems is None else {})
        )
        return
    at = f"{datetime.now().astimezone():%H:%M:%S} " if is_dated else ""
    if look.problems is None:
        print_line(f"{at}could not tell: {look.why}")
    elif not look.problems:
        print_line(f"{at}healthy")
    else:
        print_line(f"{at}not healthy: {_counts(look.problems)}")
        for line in told_lines(None if before is None else before.problems, look.problems):
            print_line(f"  {line}")


def told_lines(before: Sequence[Problem] | None, now: Sequence[Problem]) -> Iterator[str]:
    """All problems; where some were told before, those that are new (+) or over (-)."""
    from kraft.cli.health.problems import problem_lines

    if not before:
        yield from problem_lines(now, NAMED_MAX)
        return
    for sign, some, others in (("+", now, set(before)), ("-", before, set(now))):
        for line in problem_lines([one for one in some if one not in others], NAMED_MAX):
            yield f"{sign} {line}"


def _counts(found: Sequence[Problem]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(problem.kind for problem in found).items())
