"""A campaign from the command line, whatever the kind of its clusters: played, or verified, and told.

`kraft chaos simulate` and `kraft chaos quorum` select what is played.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from kraft.cli.chaos.display import (
    CampaignDisplay,
    print_tally,
    print_verdict,
    tell_difference,
    verify_progress,
)
from kraft.cli.chaos.options import Selection, check_writable, jobs_or_cores
from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.output import console, fail, print_json, print_line
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE

if TYPE_CHECKING:
    from kraft.chaos.campaign import Run, Tally, Verification
    from kraft.chaos.outcome import Outcome
    from kraft.chaos.report import Asked
    from kraft.chaos.scenario import Scenario


@dataclass(frozen=True)
class OneRunFiles:
    """The files that one run writes, as asked for."""

    story: Path | None = None
    timeline: Path | None = None
    page: Path | None = None

    def check(self, *, is_one: bool) -> None:
        """Ends the command if there are several runs, or a file cannot be written."""
        options = {
            "--trace writes the story": self.story,
            "--trace-all writes the timeline": self.timeline,
            "--report is the page": self.page,
        }
        for option, path in options.items():
            if path is not None and not is_one:
                fail(f"{option} of one run: name it with --seed (or --case)", EXIT_USAGE)
            check_writable(path)


def play(
    selection: Selection,
    files: OneRunFiles,
    *,
    jobs: int | None,
    verify: bool,
    all_counters: bool,
    as_json: bool,
) -> NoReturn:
    """Plays what was selected, tells what it came to, and ends the command with the exit code."""
    with ends_like_ctrl_c():
        if verify:
            raise typer.Exit(_verify(selection, jobs_or_cores(jobs), as_json))
        tally = _campaign(selection, jobs_or_cores(jobs), files)
    raise typer.Exit(_conclude(tally, selection.asked, as_json, all_counters=all_counters))


def _campaign(selection: Selection, jobs: int, files: OneRunFiles) -> Tally:
    from kraft.chaos.campaign import Files, run_campaign

    paths = [None if path is None else str(path) for path in (files.story, files.timeline)]
    with CampaignDisplay(selection.asked, selection.total, is_one=selection.is_one) as display:
        return run_campaign(
            selection.scenarios,
            selection.run if files.page is None else _reporting(selection.asked, files.page),
            jobs=jobs,
            declared=() if selection.is_one else selection.asked.declared,
            on_end=display.ended,
            on_tick=display.tick,
            files=Files(*paths),
            is_watched=display.is_shown,
        )


def _reporting(asked: Asked, report: Path) -> Run:
    """A run that writes its page, in its own process."""
    from kraft.chaos.experiments.simulated.seed import run_with_page

    def play(scenario: Scenario, **options: Any) -> Outcome:
        return run_with_page(scenario, path=report, command=asked.replay(scenario), **options)

    return play


def _conclude(tally: Tally, asked: Asked, as_json: bool, *, all_counters: bool) -> int:
    """Prints what the campaign came to. Returns the exit code."""
    from kraft.chaos.report import document, shortcomings

    print_tally(tally, asked, to_stderr=as_json, all_counters=all_counters)
    if as_json:
        print_json(document(tally, asked))
    return print_verdict(bool(tally.failed_count), shortcomings(tally, asked))


def _verify(selection: Selection, jobs: int, as_json: bool) -> int:
    from kraft.chaos.campaign import verify
    from kraft.chaos.report import verification_document

    done: list[Verification] = []
    interrupted = False
    with verify_progress(selection.total) as show:

        def ended(one: Verification) -> None:
            done.append(one)
            tell_difference(one)

        try:
            verify(
                selection.scenarios,
                selection.run,
                jobs=jobs,
                on_end=ended,
                on_tick=show,
                is_watched=console.is_terminal,
            )
        except KeyboardInterrupt:
            interrupted = True
    done.sort(key=lambda one: one.seed)
    if as_json:
        print_json(verification_document(done, interrupted=interrupted))
    else:
        for one in done:
            verdict = "equal" if one.equal else "DIFFERENT"
            failed = f"; failed {', '.join(one.failed)}" if one.failed else ""
            print_line(f"seed {one.seed}: {' '.join(one.hashes)} {verdict}{failed}")
    if not all(one.equal and not one.failed for one in done):
        return EXIT_FAILED
    return EXIT_UNDECIDED if interrupted or not done else EXIT_DONE
