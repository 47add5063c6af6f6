"""What producers counted, what is stored, and what was ingested, compared window by window.

A window is judged when it can be: one that is not over for long enough may lack counts, records may have expired,
counts may be missing, a table may be behind. A topic that was made anew has a former life, of which a table may have
rows: a window with some of them is told and not judged. `kraft/cli/audit` gathers the numbers. Times are ms since 1970.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kraft.auditing.messages import DEFAULT_WINDOW_MS, PRODUCED, CountMessage

MAX_WINDOWS = 100_000
"""More windows than these are not compared."""
_MAX_AHEAD = 1000
"""Messages of a producer that may come before an earlier one."""
NEVER = -(2**63)


class TooManyWindowsError(Exception):
    """Of more than MAX_WINDOWS windows there are records or counts."""


class WindowsDifferError(Exception):
    """Producers count in windows that do not fit into each other."""


class _Sequence:
    """Which messages of one producer have come."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._ahead: set[int] = set()
        self.missing = 0

    def is_new(self, sequence: int) -> bool:
        if sequence < self._next or sequence in self._ahead:
            return False
        self._ahead.add(sequence)
        if len(self._ahead) > _MAX_AHEAD:
            self.missing += min(self._ahead) - self._next
            self._next = min(self._ahead)
        while self._next in self._ahead:
            self._ahead.remove(self._next)
            self._next += 1
        return True

    def lacking(self) -> int:
        """Messages before the last one that have not come."""
        gaps = max(self._ahead) + 1 - self._next - len(self._ahead) if self._ahead else 0
        return self.missing + gaps


class Produced:
    """What the messages about one topic say."""

    def __init__(self, topic: str, *, is_whole: bool = True) -> None:
        """`is_whole`: no message has expired, so that each producer begins with its sequence 0."""
        self._topic = topic
        self._is_whole = is_whole
        self._counts: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        """By window (ms) and its start: records by host."""
        self._producers: dict[str, _Sequence] = {}
        self.duplicates = 0
        """Messages that were there twice."""

    def take(self, message: CountMessage) -> None:
        """The next message of a partition of the audit topic. Raises TooManyWindowsError."""
        if message.tier != PRODUCED:
            return
        known = self._producers.get(message.producer)
        if known is None:
            known = self._producers[message.producer] = _Sequence(0 if self._is_whole else message.sequence)
        if not known.is_new(message.sequence):
            self.duplicates += 1
        elif message.topic == self._topic:
            self._counts[message.window_ms, message.window_start_ms][message.host] += message.count
            check_number(len(self._counts))

    @property
    def missing(self) -> int:
        """Messages that producers have sent between others, and that are not there."""
        return sum(sequence.lacking() for sequence in self._producers.values())

    def window_ms(self) -> int:
        """The windows in which everything can be compared. Raises WindowsDifferError."""
        sizes = sorted({window_ms for window_ms, _ in self._counts}) or [DEFAULT_WINDOW_MS]
        if any(sizes[-1] % size for size in sizes):
            listed = ", ".join(f"{size / 1000:g} s" for size in sizes)
            raise WindowsDifferError(
                f"producers of {self._topic} count in windows of {listed}, which do not fit into each other:"
                " nothing can be compared until all count in the same ones"
            )
        return sizes[-1]

    def by_window(self, window_ms: int) -> dict[int, Counter[str]]:
        """Records by host, by the start of the window."""
        found: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for (_, start_ms), hosts in self._counts.items():
            found[start_ms - start_ms % window_ms].update(hosts)
        return dict(found)


def check_number(windows: int) -> None:
    """Raises TooManyWindowsError."""
    if windows > MAX_WINDOWS:
        raise TooManyWindowsError(
            f"there are records of more than {MAX_WINDOWS:,} windows: choose a later beginning with --from-time"
        )


class Verdict(StrEnum):
    """What can be said of a window."""

    EQUAL = "equal"
    LOST = "lost"
    """Fewer records are stored than were acknowledged."""
    UNCOUNTED = "uncounted"
    """More are stored than were counted: by a producer that does not count, or died; or doubled ones."""
    NOT_INGESTED = "not ingested"
    """Of the offsets that the table has taken, fewer rows are there than records."""
    DOUBLED = "doubled"
    """Of those offsets, more rows are there than records."""
    OPEN = "open"
    """It is not over for long enough: counts may still come. Or an open transaction holds records back."""
    BEHIND = "behind"
    """The table has not taken all of its records yet."""
    UNKNOWN = "unknown"
    """Records or counts may be deleted, compacted away or missing."""
    FORMER = "former"
    """The table has rows of a former topic of this name: what is stored now cannot tell about the window."""


DIFFERENT = frozenset({Verdict.LOST, Verdict.UNCOUNTED, Verdict.NOT_INGESTED, Verdict.DOUBLED})
PENDING = frozenset({Verdict.OPEN, Verdict.BEHIND})


@dataclass(frozen=True)
class Known:
    """How much the numbers can say."""

    open_from_ms: int
    """Windows that end later may lack counts, or records that only their leader has yet."""
    is_held_back: bool = False
    """Readers of committed records do not see all that is replicated: a transaction is open."""
    stored_from_ms: int = NEVER
    """Windows that start earlier may lack records: the oldest are deleted."""
    counted_from_ms: int = NEVER
    """Windows that start earlier may lack counts."""
    is_compacted: bool = False
    counts_are_missing: bool = False
    table_is_whole: bool = True
    """It has as many rows as were ingested: those beyond the topic's records are of its former lives."""


@dataclass(frozen=True)
class Window:
    """The numbers of one window; `taken` and `ingested` are None without a table. `former`: rows of former topics."""

    start_ms: int
    hosts: Mapping[str, int]
    stored: int
    taken: int | None = None
    """Of the stored records, those that lie in the offsets that the table has taken."""
    ingested: int | None = None
    former: int = 0

    @property
    def produced(self) -> int:
        return sum(self.hosts.values())


@dataclass
class Numbers:
    """Records by the start of their window."""

    produced: Mapping[int, Mapping[str, int]]
    stored: Mapping[int, int]
    taken: Mapping[int, int] | None = None
    ingested: Mapping[int, int] | None = None
    shared: Mapping[int, int] = field(default_factory=dict)
    """Rows of offsets that both the topic and a former one of its name have."""
    former: Mapping[int, int] = field(default_factory=dict)
    """Rows of offsets that only a former one has."""
    starts: list[int] = field(init=False)
    """Of all windows that anything is known of, ascending."""

    def __post_init__(self) -> None:
        known = (self.produced, self.stored, self.taken or {}, self.ingested or {}, self.shared, self.former)
        self.starts = sorted({start_ms for numbers in known for start_ms in numbers})

    def window(self, start_ms: int) -> Window:
        """Of shared rows as many are the topic's own as it lacks."""
        taken = None if self.taken is None else self.taken.get(start_ms, 0)
        ingested = None if self.ingested is None else self.ingested.get(start_ms, 0)
        shared, own = self.shared.get(start_ms, 0), 0
        if taken is not None and ingested is not None:
            own = min(shared, max(taken - ingested, 0))
            ingested += own
        return Window(
            start_ms,
            self.produced.get(start_ms, {}),
            self.stored.get(start_ms, 0),
            taken,
            ingested,
            self.former.get(start_ms, 0) + shared - own,
        )


def judge(window: Window, window_ms: int, known: Known) -> Verdict:
    """What can be said of the window; a difference goes before what is only not known yet."""
    if window.former:
        return Verdict.FORMER if known.table_is_whole else Verdict.UNKNOWN
    expired = window.start_ms < known.stored_from_ms or known.is_compacted
    verdict = _judge_stored(window, window_ms, known, expired=expired)
    if verdict in DIFFERENT or window.ingested is None or window.taken is None:
        return verdict
    if expired and window.ingested != window.taken:
        return Verdict.EQUAL if window.ingested == window.produced else Verdict.UNKNOWN
    if window.ingested != window.taken:
        return Verdict.NOT_INGESTED if window.ingested < window.taken else Verdict.DOUBLED
    if verdict is Verdict.EQUAL and window.taken < window.stored:
        return Verdict.BEHIND
    return verdict


def _judge_stored(window: Window, window_ms: int, known: Known, *, expired: bool) -> Verdict:
    if window.produced == window.stored:
        return Verdict.EQUAL
    is_open = window.start_ms + window_ms > known.open_from_ms
    if window.produced > window.stored:
        if expired:
            return Verdict.UNKNOWN
        return Verdict.OPEN if is_open or known.is_held_back else Verdict.LOST
    if is_open:
        return Verdict.OPEN
    lacks_counts = window.start_ms < known.counted_from_ms or known.counts_are_missing
    return Verdict.UNKNOWN if lacks_counts else Verdict.UNCOUNTED


class Outcome(StrEnum):
    """Of all windows together."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


def outcome(verdicts: Mapping[int, Verdict]) -> Outcome:
    """Different if any window is; undecided if one may be, or none could be judged yet. Those of former topics do not
    count."""
    found = set(verdicts.values())
    if found & DIFFERENT:
        return Outcome.DIFFERENT
    if Verdict.UNKNOWN in found or Verdict.EQUAL not in found:
        return Outcome.UNDECIDED
    return Outcome.EQUAL
