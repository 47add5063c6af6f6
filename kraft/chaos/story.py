"""The story of a run, as a person reads it: a line for what matters, a bunch for what happens all the time.

Lines are at most 80 columns wide and begin with the virtual time and a word. What is told with `bunch` is added up and
told together, some time after the first of it. Narrators of each kind of cluster write here
(`kraft.chaos.narrator`, `kraft.chaos.quorum.narrator`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import IO, Final

from kraft.chaos.outcome import Outcome

COLUMNS: Final = 80
BUNCH_S: Final = 1.0
ITEMS_MAX: Final = 8
"""Of a bunch, the most frequent; the others are told as a number."""
TEXT_MAX_CHARACTERS: Final = 1_000
WORD_COLUMNS: Final = 12
_INDENT: Final = " " * (10 + WORD_COLUMNS)


class Story:
    """A story that is written while it goes on."""

    def __init__(self, file: IO[str], now_s: Callable[[], float]) -> None:
        """`file` is open, and its owner closes it; `now_s`: virtual seconds since the start."""
        self._file = file
        self._now_s = now_s
        self._bunches: dict[str, Counter[str]] = {}
        self._since_s: dict[str, float] = {}
        self._due_s: dict[str, float] = {}

    def headline(self, lines: Iterable[str]) -> None:
        """What the story is about, before it begins: paragraphs, and an empty line behind them."""
        for line in lines:
            self._write(wrap(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False))
        self._write([""])

    def tell(self, word: str, text: str, at_s: float | None = None) -> None:
        """Something happens now, or happened at `at_s`, a moment ago."""
        if at_s is None:
            self.pass_time()
        self._line(word, text, at_s)

    def bunch(self, word: str, item: str, times: int = 1, *, within_s: float = BUNCH_S) -> None:
        """Something of which there is much has happened now; it is told in so many seconds, with more of its word."""
        if times:
            self.pass_time()
            now_s = self._now_s()
            self._since_s.setdefault(word, now_s)
            self._due_s.setdefault(word, now_s + within_s)
            self._bunches.setdefault(word, Counter())[item] += times

    def pass_time(self) -> None:
        """Tells the bunches that have waited long enough."""
        now_s = self._now_s()
        for word in [word for word, due_s in self._due_s.items() if now_s >= due_s]:
            self._tell_bunch(word)

    def conclude(self, outcome: Outcome) -> None:
        """The end of the run: what has waited, and the verdict."""
        for word in list(self._bunches):
            self._tell_bunch(word)
        self._write([""])
        for one in outcome.first_violations:
            self._line("violated", f"{one.oracle}: {one.text}", at_s=one.at_s if one.step >= 0 else None)
        counts = ", ".join(f"{kind} {times}" for kind, times in sorted(outcome.acknowledged.items()))
        self._line("acked", counts or "nothing")
        if outcome.excused:
            self._line("excused", f"{len(outcome.excused)} losses that the faults explain")
        self._line("verdict", _verdict(outcome))
        self._file.flush()

    def _tell_bunch(self, word: str) -> None:
        since_s, items = self._since_s.pop(word), self._bunches.pop(word)
        del self._due_s[word]
        told = [item if times == 1 else f"{times}x {item}" for item, times in items.most_common(ITEMS_MAX)]
        if len(items) > ITEMS_MAX:
            told.append(f"{len(items) - ITEMS_MAX} other kinds")
        ago_s = self._now_s() - since_s
        since = f"within {ago_s:.1f} s: " if ago_s >= 0.1 else ""
        self._line(word, since + ", ".join(told))

    def _line(self, word: str, text: str, at_s: float | None = None) -> None:
        now_s = self._now_s() if at_s is None else at_s
        shown = text if len(text) <= TEXT_MAX_CHARACTERS else f"{text[:TEXT_MAX_CHARACTERS]}…"
        first = f"{now_s:8.3f}  {word:<{WORD_COLUMNS}}"
        self._write(wrap(first + shown, COLUMNS, subsequent_indent=_INDENT, break_on_hyphens=False))

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._file.write(line + "\n")
        self._file.flush()


def _verdict(outcome: Outcome) -> str:
    if oracles := outcome.oracles:
        return f"violated: {', '.join(oracles)}"
    if outcome.undecided:
        return f"could not be told: {outcome.undecided}"
    return "held: no promise was broken"
