"""`kraft chaos replay`: plays the histories behind Kafka's replication rules, old rule and today's side by side.

The command imports the simulation when it runs: the others start faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill, indent
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from kraft.cli.shared.options import Json
from kraft.cli.shared.output import fail, output_columns, print_json, print_table
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from kraft.chaos.replay.histories import KnownHistory
    from kraft.chaos.replay.play import Play
    from kraft.chaos.replay.rules import Rule
    from kraft.chaos.replay.story import ReplicaView, Step

MARK = "≠"
LINE_MAX = 56
GAP = "  "
LEGEND = (
    "A line is a broker's replica: log end (LEO), high watermark (HW), [offset:value/leader epoch …] and its epoch\n"
    "cache, leader epoch@start offset …"
)
STYLES = {"held": "green", "lost": "red", "forked": "red"}


def replay(
    name: Annotated[
        str | None, typer.Argument(help="Which history; without it they are listed.", show_default=False)
    ] = None,
    truncation: Annotated[
        str | None,
        typer.Option(
            help="How a follower cuts its log: high-watermark, kip-101 or leader-epoch (kip-101-loss, kip-101-fork,"
            " kip-279).",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule", help="old (the rule that the history made obsolete) or current.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Play a known history step by step, under one rule or under the old one and today's side by side.

    Exit code 0: the verdicts are those that the history states for the rules; 1: one is not; 2: wrong usage.
    """
    from kraft.chaos.replay.histories import HISTORIES
    from kraft.chaos.replay.play import first_difference, play

    if name is None:
        if truncation is not None or rule is not None:
            fail("name the history that the rule is for", EXIT_USAGE)
        _list(as_json)
        return
    history = HISTORIES.get(name)
    if history is None:
        fail(f"there is no history {name!r}: choose one of {', '.join(HISTORIES)}", EXIT_USAGE)
    chosen = _chosen(history, truncation, rule)
    old, today = play(history, history.old), play(history, history.today)
    plays = [old, today] if chosen is None else [play(history, chosen)]
    if as_json and chosen is not None:
        print_json(plays[0].to_document(old if chosen is history.today else today))
    elif as_json:
        documents = [old.to_document(today), today.to_document(old)]
        parting = first_difference(old, today)
        print_json({"scenario": history.name, "first_difference": parting, "plays": documents})
    else:
        _print(history, plays)
    raise typer.Exit(EXIT_DONE if all(one.is_as_stated for one in plays) else EXIT_FAILED)


def _chosen(history: KnownHistory, truncation: str | None, rule: str | None) -> Rule | None:
    """The one rule asked for; None for both."""
    if truncation is not None and rule is not None:
        fail("give --truncation or --rule, not both", EXIT_USAGE)
    if rule is not None:
        if rule not in ("old", "current"):
            fail(f"--rule is old or current, not {rule!r}", EXIT_USAGE)
        return history.old if rule == "old" else history.today
    if truncation is None:
        return None
    if history.option != "truncation":
        fail(f"{history.name} is not about truncation: it takes --rule old or --rule current", EXIT_USAGE)
    if truncation not in history.rules:
        fail(f"--truncation is one of {', '.join(sorted(history.rules))}, not {truncation!r}", EXIT_USAGE)
    return history.rules[truncation]


def _list(as_json: bool) -> None:
    from kraft.chaos.replay.histories import HISTORIES

    if as_json:
        print_json(
            {
                "histories": [
                    {"name": one.name, "title": one.title, "verdicts": dict(one.verdicts)}
                    for one in HISTORIES.values()
                ]
            }
        )
        return
    table = Table("history", "what happens", "rule: verdict", box=None)
    for one in HISTORIES.values():
        verdicts = ", ".join(f"{rule}: {one.verdicts[rule]}" for rule in one.rules)
        table.add_row(one.name, one.title, verdicts)
    print_table(table)


def _print(history: KnownHistory, plays: list[Play]) -> None:
    """Each step's text, and below it what it left under each rule, side by side."""
    from kraft.chaos.replay.play import first_difference

    parts = first_difference(*plays) if len(plays) == 2 else None
    cells = [[_cell(step) for step in one.steps] for one in plays]
    titles = [Text(f"rule: {one.rule.name}", style="bold underline") for one in plays]
    share = output_columns() // len(plays) - len(GAP)
    widths = [
        min(share, max(map(_width, [title, *column]))) for title, column in zip(titles, cells, strict=True)
    ]
    print_table(Text(f"{history.name}: {history.title}", style="bold"))
    print_table(Text(LEGEND, style="dim"))
    print_table(_side_by_side(titles, widths))
    for steps, row in zip(
        zip(*(one.steps for one in plays), strict=True), zip(*cells, strict=True), strict=True
    ):
        number, is_parting = steps[0].number, steps[0].number == parts
        heading = f"{number}{f' {MARK}' if is_parting else ''}  {steps[0].text}"
        print_table(Text(heading, style="bold yellow" if is_parting else "bold"))
        print_table(_side_by_side(row, widths))
    if parts is not None:
        print_table(Text(f"The rules part at step {parts} ({MARK}).", style="bold yellow"))
    for one in plays:
        print_table(_conclusion(history, one))


def _side_by_side(cells: Sequence[Text], widths: Sequence[int]) -> Table:
    table = Table.grid()
    row: list[str | Text] = []
    for cell, width in zip(cells, widths, strict=True):
        table.add_column(width=len(GAP))
        table.add_column(width=width)
        row += [GAP, cell]
    table.add_row(*row)
    return table


def _width(cell: Text) -> int:
    return max(line.cell_len for line in cell.split())


def _conclusion(history: KnownHistory, play: Play) -> Text:
    """The verdict, and what the checker found."""
    text = Text(f"rule {play.rule.name}: ")
    text.append(play.verdict, style=f"bold {STYLES[play.verdict]}")
    if not play.is_as_stated:
        text.append(f", and not {history.verdicts[play.rule.name]} as it should be", style="bold red")
    for anomaly in play.report.anomalies:
        told = _folded(f"{anomaly.oracle}: {anomaly.text}", 2 * LINE_MAX)
        text.append("\n" + indent(told, "  "))
    return text


def _cell(step: Step) -> Text:
    """One step under one rule: each replica, the controller's view, what was seen; a line ends it."""
    isr = ",".join(map(str, step.isr)) or "none"
    elr = f" ELR {','.join(map(str, step.elr))}" if step.elr else ""
    leader = "none" if step.leader < 0 else str(step.leader)
    cell = Text()
    for replica in step.replicas:
        cell.append(_replica(replica) + "\n", style="dim" if replica.role == "down" else "")
    cell.append(f"controller: leader {leader} epoch {step.leader_epoch} ISR {isr}{elr}", style="cyan")
    for seen in step.seen:
        cell.append(f"\n{_folded(seen)}", style="magenta")
    cell.append("\n")
    return cell


def _replica(replica: ReplicaView) -> str:
    if replica.role == "down":
        return f"{replica.broker_id} down"
    records = " ".join(map(str, replica.records)) or "empty"
    epochs = " ".join(f"{epoch}@{start}" for epoch, start in replica.epochs) or "no epochs"
    return _folded(
        f"{replica.broker_id} {replica.role:8} LEO {replica.log_end_offset} HW {replica.high_watermark}"
        f" [{records}] {epochs}"
    )


def _folded(line: str, width: int = LINE_MAX) -> str:
    """Lines that stand side by side with another play's, or below both."""
    return fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
