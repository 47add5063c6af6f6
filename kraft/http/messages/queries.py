"""What a request for messages asks for: its parameters, checked. Pure.

A parameter that is not known is refused, as a wrong value is: a misspelt limit would otherwise read something else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from kraft.http.console.paging import QueryError
from kraft.http.messages.batches import Needle

T = TypeVar("T")

PARTITIONS_MAX: Final = 100
LIMIT_MAX: Final = 500
FIELD_BYTES_MAX: Final = 1024 * 1024
SHOWN_MAX_BYTES: Final = 2 * 1024 * 1024
"""`limit` x `field_bytes` of one answer."""
NEEDLE_MAX_BYTES: Final = 1024
SEARCH_MATCHES_MAX: Final = 1_000
SEARCH_MAX_S: Final = 120
SEARCH_MAX_BYTES: Final = 1024**3
DOWNLOAD_RECORDS_MAX: Final = 100_000
_OFFSET_MAX: Final = 2**63 - 1


class Offsets(NamedTuple):
    """A place in each partition: the same offset everywhere, or one by partition, else where its log begins or ends."""

    everywhere: int | None = None
    by_partition: Mapping[int, int] = {}

    def of(self, partition: int, otherwise: int) -> int:
        found = self.by_partition.get(partition, self.everywhere)
        return otherwise if found is None else found


class Selection(NamedTuple):
    """Which records: `partitions` None is all; one of `start`, `before` and `timestamp_ms` at most."""

    partitions: tuple[int, ...] | None
    start: Offsets | None
    """From these offsets on; None: see the others."""
    before: Offsets | None
    """The newest below these offsets."""
    timestamp_ms: int | None
    read_committed: bool

    @property
    def is_newest(self) -> bool:
        """Whether it is the newest that are wanted, which is so where nothing says where to begin."""
        return self.start is None and self.timestamp_ms is None


class PageQuery(NamedTuple):
    selection: Selection
    limit: int
    field_bytes: int


class SearchQuery(NamedTuple):
    selection: Selection
    needle: Needle
    limit: int
    field_bytes: int
    max_s: int
    max_bytes: int
    """Unfolded."""


class TailQuery(NamedTuple):
    partitions: tuple[int, ...] | None
    read_committed: bool
    needle: Needle | None
    field_bytes: int


class DownloadQuery(NamedTuple):
    selection: Selection
    limit: int


class RawQuery(NamedTuple):
    """One field of one record."""

    partition: int
    offset: int
    field: str
    read_committed: bool


_SELECTION: Final = ("partition", "offset", "before", "timestamp_ms", "isolation_level")
_NEEDLE: Final = ("q", "q_hex", "in", "ignore_case")


def page_query(params: Mapping[str, str]) -> PageQuery:
    """Of `/messages`. Raises QueryError, as all of these do."""
    _know(params, (*_SELECTION, "limit", "field_bytes"))
    limit, field_bytes = _integer(params, "limit", 50, 1, LIMIT_MAX), _field_bytes(params, FIELD_BYTES_MAX)
    if limit * field_bytes > SHOWN_MAX_BYTES:
        raise QueryError(
            f"limit x field_bytes may be {SHOWN_MAX_BYTES:,} at most: ask for fewer messages, or for less of each"
        )
    return PageQuery(_selection(params), limit, field_bytes)


def search_query(params: Mapping[str, str]) -> SearchQuery:
    _know(params, (*_SELECTION, *_NEEDLE, "limit", "field_bytes", "max_s", "max_bytes"))
    needle = _needle(params)
    if needle is None:
        raise QueryError("say what to look for: q, a text, or q_hex, bytes as hexadecimal digits")
    selection = _selection(params)
    if selection.before is not None:
        raise QueryError(
            "a search goes from offset or timestamp_ms on, or from where the log begins: before is not one"
        )
    return SearchQuery(
        selection,
        needle,
        _integer(params, "limit", 100, 1, SEARCH_MATCHES_MAX),
        _field_bytes(params, 16 * 1024),
        _integer(params, "max_s", 30, 1, SEARCH_MAX_S),
        _integer(params, "max_bytes", 256 * 1024 * 1024, 1, SEARCH_MAX_BYTES),
    )


def tail_query(params: Mapping[str, str]) -> TailQuery:
    _know(params, ("partition", "isolation_level", *_NEEDLE, "field_bytes"))
    return TailQuery(
        _partitions(params), _read_committed(params), _needle(params), _field_bytes(params, 16 * 1024)
    )


def download_query(params: Mapping[str, str]) -> DownloadQuery | RawQuery:
    format_ = params.get("format", "jsonl")
    if format_ == "raw":
        _know(params, ("format", "partition", "offset", "field", "isolation_level"))
        if "partition" not in params or "offset" not in params:
            raise QueryError("format=raw is one field of one record: say its partition and its offset")
        field = params.get("field", "value")
        if field not in ("key", "value"):
            raise QueryError(f"field is key or value, not {field[:40]!r}")
        partition = _integer(params, "partition", 0, 0, 2**31 - 1)
        return RawQuery(
            partition, _integer(params, "offset", 0, 0, _OFFSET_MAX), field, _read_committed(params)
        )
    if format_ != "jsonl":
        raise QueryError(f"format is jsonl or raw, not {format_[:40]!r}")
    _know(params, ("format", *_SELECTION, "limit"))
    return DownloadQuery(_selection(params), _integer(params, "limit", 10_000, 1, DOWNLOAD_RECORDS_MAX))


def chosen(partitions: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """The partitions that are read, of `count` there are: PARTITIONS_MAX at most. Raises QueryError."""
    if partitions is None:
        return tuple(range(min(count, PARTITIONS_MAX)))
    wrong = next((number for number in partitions if number >= count), None)
    if wrong is not None:
        raise QueryError(f"there is no partition {wrong}: the topic has {count}, from 0 on")
    return partitions


def _know(params: Mapping[str, str], names: Collection[str]) -> None:
    for name in params:
        if name not in names:
            raise QueryError(f"there is no parameter {name[:40]!r} here; there are {', '.join(names)}")


def _selection(params: Mapping[str, str]) -> Selection:
    partitions = _partitions(params)
    start, before, timestamp_ms = None, None, None
    if sum(name in params for name in ("offset", "before", "timestamp_ms")) > 1:
        raise QueryError("offset, before and timestamp_ms exclude each other")
    if "timestamp_ms" in params:
        timestamp_ms = _integer(params, "timestamp_ms", 0, 0, _OFFSET_MAX)
    elif "before" in params:
        before = _offsets("before", params["before"])
    elif params.get("offset", "latest") == "earliest":
        start = Offsets()
    elif params.get("offset", "latest") != "latest":
        start = _offsets("offset", params["offset"])
    named = (before or start or Offsets()).by_partition
    return Selection(partitions or tuple(named) or None, start, before, timestamp_ms, _read_committed(params))


def _offsets(name: str, text: str) -> Offsets:
    """`12`, or `0:12,3:40`."""
    if ":" not in text:
        return Offsets(_number(name, text, 0, _OFFSET_MAX))
    found: dict[int, int] = {}
    for pair in text.split(","):
        partition, _, offset = pair.partition(":")
        found[_number(name, partition, 0, 2**31 - 1)] = _number(name, offset, 0, _OFFSET_MAX)
    if len(found) > PARTITIONS_MAX:
        raise QueryError(f"{name} names {len(found)} partitions; {PARTITIONS_MAX} are read at a time")
    return Offsets(None, found)


def _partitions(params: Mapping[str, str]) -> tuple[int, ...] | None:
    text = params.get("partition", "")
    if not text:
        return None
    numbers = tuple(dict.fromkeys(_number("partition", one, 0, 2**31 - 1) for one in text.split(",")))
    if len(numbers) > PARTITIONS_MAX:
        raise QueryError(f"{len(numbers)} partitions are named; {PARTITIONS_MAX} are read at a time")
    return numbers


def _read_committed(params: Mapping[str, str]) -> bool:
    return _one_of(
        params, "isolation_level", "read_committed", {"read_committed": True, "read_uncommitted": False}
    )


def _field_bytes(params: Mapping[str, str], highest: int) -> int:
    return _integer(params, "field_bytes", 1024, 16, highest)


def _needle(params: Mapping[str, str]) -> Needle | None:
    text, digits = params.get("q", ""), params.get("q_hex", "")
    if text and digits:
        raise QueryError("q and q_hex exclude each other")
    ignore_case = _one_of(params, "ignore_case", "false", {"true": True, "false": False})
    fields = set(params.get("in", "key,value,headers").split(","))
    if not fields or not fields <= {"key", "value", "headers"}:
        raise QueryError("in is a list, with commas, of key, value and headers")
    if digits:
        try:
            wanted = bytes.fromhex(digits)
        except ValueError:
            raise QueryError(f"q_hex is pairs of hexadecimal digits, not {digits[:40]!r}") from None
        ignore_case = False
    else:
        wanted = text.encode("utf-8", "replace")
    if len(wanted) > NEEDLE_MAX_BYTES:
        raise QueryError(f"what to look for is {NEEDLE_MAX_BYTES} bytes at most, not {len(wanted)}")
    if not wanted:
        return None
    if ignore_case:
        wanted = wanted.lower()
    return Needle(wanted, ignore_case, "key" in fields, "value" in fields, "headers" in fields)


def _one_of(params: Mapping[str, str], name: str, default: str, values: Mapping[str, T]) -> T:
    text = params.get(name, default)
    if text not in values:
        raise QueryError(f"{name} is {' or '.join(values)}, not {text[:40]!r}")
    return values[text]


def _integer(params: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    return _number(name, params[name], lowest, highest) if name in params else default


def _number(name: str, text: str, lowest: int, highest: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and lowest <= int(text) <= highest):
        bounds = f"{lowest:,} to {highest:,}" if highest < 2**31 - 1 else f"{lowest:,} or more"
        raise QueryError(f"{name} has to be a whole number, {bounds}, not {text[:40]!r}")
    return int(text)
