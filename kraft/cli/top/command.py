"""`kraft top`: looks again every few seconds, over connections that stay open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft.cli.shared.interrupts import ends_like_ctrl_c
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import is_terminal, print_json, print_line, print_rows
from kraft.user_error import EXIT_UNDECIDED, UserError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from kraft.cli.shared.admin_client import AdminClient
    from kraft.cli.top.overview import Overview, Sample

NAMED_MAX: Final = 3
"""Problems of one kind that are shown; `kraft cluster health` has more."""
PIPED_TOPICS: Final = 1_000_000


def top(
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.2, help="How often it looks.")] = 2.0,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            min=1,
            help="End after so many looks.",
            show_default="none on a terminal, else 2: the second has rates",
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Watch a cluster: what is wrong, its brokers, its busiest topics. Ctrl-C ends it.

    Where output is piped, and with --json, each look is printed, the first one without rates.
    Exit code 0: shown; 2: wrong usage; 3: at the last look no broker answered.
    """
    is_live = is_terminal() and not as_json
    looks = count if count is not None or is_live else 2
    screen = _Screen() if is_live else _Printer(as_json=as_json)
    with contextlib.suppress(KeyboardInterrupt), ends_like_ctrl_c(), screen:
        asyncio.run(_watch(bootstrap_server, screen, interval, looks))
    if not screen.told:
        raise UserError(screen.why, EXIT_UNDECIDED)


async def _watch(
    bootstrap_server: str, screen: _Screen | _Printer, interval_s: float, looks: int | None
) -> None:
    from kraft.cli.shared.admin_client import AdminClient
    from kraft.cli.top.overview import overview
    from kraft.network.client import ConnectionLostError

    admin: AdminClient | None = None
    before: Sample | None = None
    done = 0
    try:
        while True:
            began_s = time.monotonic()
            try:
                if admin is None:
                    admin = await AdminClient.connect(bootstrap_server, unanswered=EXIT_UNDECIDED)
                now = await _sample(admin)
            except (UserError, ConnectionLostError) as error:
                screen.away(str(error))
                before = None
                if admin is not None:
                    admin.close()
                    admin = None
            else:
                screen.show(overview(before, now))
                before = now
            done += 1
            if done == looks:
                return
            await asyncio.sleep(max(0.0, began_s + interval_s - time.monotonic()))
    finally:
        if admin is not None:
            admin.close()


async def _sample(admin: AdminClient) -> Sample:
    from kraft.cli.health.observing import observe
    from kraft.cli.top.overview import Sample
    from kraft.protocol.schemas.offsets import CONSUMER_REPLICA_ID
    from partitions.topic_partition import TopicPartition

    seen = await observe(admin)
    by_leader: dict[int, dict[str, list[int]]] = {}
    for one in seen.partitions:
        if one.leader >= 0:
            by_leader.setdefault(one.leader, {}).setdefault(one.topic, []).append(one.partition)
    at_s = time.monotonic()
    ends: dict[TopicPartition, int] = {}
    for found in await asyncio.gather(
        *(
            admin.end_offsets_of_topics(leader, partitions, CONSUMER_REPLICA_ID)
            for leader, partitions in by_leader.items()
        )
    ):
        ends |= found
    return Sample(at_s, seen, ends)


class _Printer:
    """Where nobody watches: one look after the other."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.told = False
        self.why = "nothing was asked"

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, view: Overview) -> None:
        from kraft.cli.health.problems import problem_lines
        from kraft.cli.top.overview import broker_table, head_line, topic_table

        self.told = True
        if self._as_json:
            print_json(view.document())
            return
        print_line(head_line(view))
        for line in problem_lines(view.problems, NAMED_MAX):
            print_line(line)
        print_rows(broker_table(view))
        print_rows(topic_table(view, PIPED_TOPICS, None))

    def away(self, why: str) -> None:
        self.told, self.why = False, why
        if self._as_json:
            print_json({"error": why})


class _Screen:
    """A terminal's alternate screen, drawn anew at each look; what was there before comes back at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._last: Overview | None = None
        self.told = False
        self.why = "nothing was asked"

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, view: Overview) -> None:
        self.told, self._last = True, view
        self._draw(view, None)

    def away(self, why: str) -> None:
        """What was seen last stays."""
        self.told, self.why = False, why
        self._draw(self._last, why)

    def _draw(self, view: Overview | None, why: str | None) -> None:
        self._live.update(drawn(view, why, self._console.width, self._console.height), refresh=True)


def drawn(view: Overview | None, why: str | None, width: int, height: int) -> RenderableType:
    """One look, within a terminal of `width` columns and `height` lines."""
    from rich.console import Group
    from rich.text import Text

    from kraft.cli.health.problems import problem_lines
    from kraft.cli.shared.tables import terminal_lines
    from kraft.cli.top.overview import broker_table, head_line, topic_table

    lines: list[Text] = []
    if why is not None:
        lines += _wrapped(f"no answer: {why}", width, "bold red")
    if view is not None:
        lines += _wrapped(head_line(view), width, "bold")
        for line in problem_lines(view.problems, NAMED_MAX):
            lines += _wrapped(f"  {line}", width, "red")
        if not view.problems:
            lines.append(Text("  healthy", style="green"))
        lines += [Text(), *terminal_lines(broker_table(view), width), Text()]
        room = max(1, height - len(lines) - 2)
        lines += terminal_lines(topic_table(view, room, width), width)
        if len(view.topics) > room:
            lines.append(Text(f"… and {len(view.topics) - room} more topics", style="dim"))
    return Group(*lines[:height])


def _wrapped(text: str, width: int, style: str) -> list[Text]:
    """As lines of at most that width: what follows counts them."""
    from rich.text import Text

    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return [Text(line, style=style) for line in wrap(text, width, subsequent_indent=indent)]
