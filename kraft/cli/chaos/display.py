"""Progress of `kraft chaos` while it works, and the tables at the end.

The loop that waits for the runs draws progress, never a thread: processes are forked here.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from kraft.cli.shared.output import console
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_UNDECIDED

if TYPE_CHECKING:
    from kraft.chaos.campaign import Finished, Tally, Verification
    from kraft.chaos.report import Asked

NOTE_EVERY_S = 30.0
"""Where there is no terminal, progress is a line now and then."""
TOLD_IN_FULL_MAX = 3
TOLD_MAX = 50


class CampaignDisplay:
    """A context around a campaign. Tells of failed runs when they end, and of the progress all the time."""

    def __init__(self, asked: Asked, total: int | None, *, is_one: bool) -> None:
        self._asked = asked
        self._failed = 0
        self._noted_s = time.monotonic()
        self._is_silent = is_one
        self.is_shown = console.is_terminal
        """Whether somebody looks at the bar: it moves with each run's virtual time."""
        self._bar = _progress(TextColumn("{task.fields[figures]}"))
        self._task = self._bar.add_task("seeds", total=total, figures="")

    def __enter__(self) -> CampaignDisplay:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.refresh()
        self._bar.stop()

    def ended(self, finished: Finished) -> None:
        """Tells of a run that failed."""
        from kraft.chaos.report import failure_lines

        if self._is_silent or not finished.outcome.first_violations:
            return
        self._failed += 1
        if self._failed <= TOLD_MAX:
            in_full = self._failed <= TOLD_IN_FULL_MAX
            _tell(console, failure_lines(finished, self._asked, with_events=in_full))

    def tick(self, tally: Tally) -> None:
        """Shows how far the campaign is."""
        from kraft.chaos.report import rates

        figures = ""
        if tally.seeds:
            figures = (
                f"{rates(tally)['seeds_per_minute']:g} seeds/min, {tally.virtual_s:.0f} virtual s, "
                f"{tally.failed_count} violated, {tally.excused} excused"
            )
        self._bar.update(self._task, completed=tally.seeds + tally.under_way, figures=figures)
        self._bar.refresh()
        now_s = time.monotonic()
        if not console.is_terminal and not self._is_silent and now_s - self._noted_s >= NOTE_EVERY_S:
            self._noted_s = now_s
            console.print(f"{tally.seeds} seeds: {figures}", soft_wrap=True)


def print_tally(tally: Tally, asked: Asked, *, to_stderr: bool, all_counters: bool) -> None:
    """What a campaign came to: what stands out of its counters (or all of them), its figures, the losses that have an
    excuse, and the failed runs once more."""
    from kraft.chaos.report import excuse_lines, failure_lines, notable, silent_seeds, struck

    output = Console(file=sys.stderr if to_stderr else sys.stdout, highlight=False)
    if all_counters:
        output.print("what really happened:")
        output.print(_counters_table(_all_counters(tally)))
    else:
        if faults := struck(tally):
            output.print(f"faults that struck: {escape(faults)}", soft_wrap=True)
        if standing_out := notable(tally, asked):
            output.print("what stands out (--counters shows everything):")
            output.print(_counters_table(standing_out))
    output.print(_figures_table(tally))
    for line in excuse_lines(tally):
        output.print(escape(line), style="yellow", soft_wrap=True)
    _tell_what_never_happened(output, tally, asked)
    for line in silent_seeds(tally):
        output.print(escape(line), style="yellow", soft_wrap=True)
    for number, finished in enumerate(tally.failed[:TOLD_MAX]):
        _tell(output, failure_lines(finished, asked, with_events=number < TOLD_IN_FULL_MAX))
    if tally.failed_count > TOLD_MAX:
        output.print(f"and {tally.failed_count - TOLD_MAX} other seeds failed", style="red")
    if tally.interrupted:
        output.print("interrupted: this is what was found until then", style="yellow")


def _tell_what_never_happened(output: Console, tally: Tally, asked: Asked) -> None:
    """In a campaign that is long enough for everything to happen."""
    from kraft.chaos.report import MANY_SEEDS, never_happened

    if tally.seeds < MANY_SEEDS:
        return
    if missing := never_happened(tally, asked):
        output.print(f"never happened: {escape(', '.join(missing))}", style="yellow", soft_wrap=True)
    else:
        output.print("every enabled fault struck, and no counter stayed at zero")


def _tell(output: Console, lines: list[str]) -> None:
    first, *others = lines
    output.print(f"[red]{escape(first)}[/red]", soft_wrap=True)
    for line in others:
        output.print(escape(line), soft_wrap=True)


def _all_counters(tally: Tally) -> dict[str, int]:
    return {
        **dict(sorted(tally.coverage.items())),
        **{f"history: {name}": times for name, times in sorted(tally.history.items())},
        **{f"acknowledged: {kind}": times for kind, times in sorted(tally.acknowledged.items())},
    }


def _counters_table(counters: Mapping[str, int]) -> Table:
    table = Table(box=None)
    table.add_column("event")
    table.add_column("times", justify="right")
    for name, times in counters.items():
        table.add_row(escape(name), str(times) if times else "[yellow]0[/yellow]")
    return table


def _figures_table(tally: Tally) -> Table:
    from kraft.chaos.report import rates

    speed = rates(tally)
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    excused = [("seeds with an excused loss", str(tally.excused))] if tally.excused else []
    for name, value in (
        ("seeds", str(tally.seeds)),
        *((f"  of {shape}", str(count)) for shape, count in sorted(tally.shapes.items())),
        ("seeds with a violation", str(tally.failed_count)),
        *excused,
        ("client operations", str(tally.operations)),
        ("operations per virtual second", f"{speed['operations_per_virtual_s']:g}"),
        ("virtual seconds", f"{tally.virtual_s:.1f}"),
        ("wall seconds", f"{tally.wall_s:.1f}"),
        ("CPU seconds", f"{tally.cpu_s:.1f}"),
        ("virtual seconds per CPU second", f"{speed['virtual_s_per_cpu_s']:g}"),
        ("seeds per core-hour", f"{speed['seeds_per_core_hour']:g}"),
    ):
        table.add_row(name, value)
    return table


def print_verdict(is_violated: bool, shortcomings: Sequence[str]) -> int:
    """The last line of a campaign that broke no promise. Returns the exit code."""
    if is_violated:
        return EXIT_FAILED
    if shortcomings:
        text = escape("; ".join(shortcomings))
        console.print(f"[yellow]this could not be told:[/yellow] {text}", soft_wrap=True)
        return EXIT_UNDECIDED
    console.print("[green]held: no promise was broken[/green]")
    return EXIT_DONE


@contextlib.contextmanager
def verify_progress(total: int | None) -> Iterator[Callable[[float], None]]:
    """Yields what is to be called with the number of seeds that were compared, parts counted."""
    with _progress() as bar:
        task = bar.add_task("seeds compared", total=total)

        def show(compared: float) -> None:
            bar.update(task, completed=compared)
            bar.refresh()

        show(0)
        yield show


def tell_difference(one: Verification) -> None:
    """Tells of a seed that is two histories, or that failed."""
    if not one.equal:
        console.print(f"[red]seed {one.seed}: {_difference(one)}[/red]", soft_wrap=True)


def _difference(one: Verification) -> str:
    errors = [error for error in one.errors if error]
    if errors:
        return escape(f"a run failed: {errors[0]}")
    return f"two processes, two histories: {one.hashes[0]} and {one.hashes[1]}"


@contextlib.contextmanager
def shrink_progress(runs_max: int) -> Iterator[Callable[[str, int], None]]:
    """Yields what is to be called after every run, with the stage and the number of runs."""
    with _progress() as bar:
        task = bar.add_task("shrinking", total=runs_max)
        bar.refresh()

        def show(stage: str, runs: int) -> None:
            bar.update(task, completed=runs, description=f"shrinking: {stage}")
            bar.refresh()

        yield show


def _progress(*columns: ProgressColumn, disable: bool = False) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *columns,
        console=console,
        auto_refresh=False,
        disable=disable or not console.is_terminal,
    )
