"""Which folder of a table a row belongs to, by the time of its record or by one of its fields.

Folders are named as Spark and Hive name them (`date=2026-01-31/hour=7/`); the partition columns leave the files, and
their values go to the table's log as strings, as Delta has them. No value, and the empty string, are
`__HIVE_DEFAULT_PARTITION__` in a folder's name and null in the log. `hour` gives two columns, `date` and `hour`. Times
are UTC; one outside the years 1 to 9999 has no date. Workers call it for each batch of rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kraft.ingest.model import IngestError
from kraft.ingest.table_columns import DATE, HOUR, column_name, own_columns, own_names

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
MAX_VALUE_BYTES = 200
"""Of a value in a folder's name, escaped: file systems have room for 255 with the column's name."""

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_HOUR_US = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_HOUR = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
_LAST_HOUR = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1)

MAX_FOLDERS = 10_000
"""That the rows of one slice may go to."""

PartitionValues = tuple[tuple[str, str | None], ...]
"""Each partition column with its value as text."""


class Part(NamedTuple):
    """The rows of one folder; their batch has no partition columns."""

    values: PartitionValues
    rows: pa.RecordBatch


def partition_columns(partition_by: str | None) -> tuple[str, ...]:
    """The names of the partition columns, in the order of the folders."""
    if partition_by is None:
        return ()
    if partition_by in (DATE, HOUR):
        return (DATE,) if partition_by == DATE else (DATE, HOUR)
    own = own_columns("json", partition_by)
    return (partition_by if partition_by in own.names else column_name(partition_by, own_names(own)),)


class Partitioner:
    """Splits the batches of one slice, and counts the rows that came late."""

    def __init__(self, partition_by: str | None) -> None:
        self._by = partition_by
        self.columns = partition_columns(partition_by)
        self._rows_at: Counter[int] = Counter()
        """By day or hour since 1970."""
        self._folders: set[PartitionValues] = set()

    def split(self, rows: pa.RecordBatch) -> Iterator[Part]:
        """In the order of offsets in each part. Raises IngestError if a value is too long for a folder's name."""
        if self._by is None:
            yield Part((), rows)
            return
        by_time = self._by in (DATE, HOUR)
        keys = (
            self._times(rows.column("timestamp"))
            if by_time
            else _with_empty_as_null(rows.column(self.columns[0]))
        )
        rest = rows.drop_columns([name for name in self.columns if name in rows.schema.names])
        codes = keys.dictionary_encode(null_encoding="encode")
        for key, part in _groups(rest, codes):
            values = self._time_values(key) if by_time else ((self.columns[0], _text(key)),)
            self._check(values)
            if by_time and key is not None:
                self._rows_at[key] += part.num_rows
            yield Part(values, part)

    def _check(self, values: PartitionValues) -> None:
        self._folders.add(values)
        if len(self._folders) > MAX_FOLDERS:
            raise IngestError(
                f"The rows of one slice go to more than {MAX_FOLDERS:,} folders: partition the table by something with"
                f" fewer values than {', '.join(self.columns)}."
            )
        for name, text in values:
            if text is not None and not fits_folder(text):
                raise IngestError(
                    f"The {name} {text[:50]!r}… is longer than the {MAX_VALUE_BYTES} bytes that a folder's name has"
                    " room for: partition the table by something else."
                )

    @property
    def late_rows(self) -> int:
        """Rows older than the newest day or hour by more than one."""
        newest = max(self._rows_at, default=0)
        return sum(rows for at, rows in self._rows_at.items() if at < newest - 1)

    def _times(self, timestamps: pa.Array) -> pa.Array:
        hours = timestamps.view(pa.int64()).to_numpy() // _HOUR_US
        beyond = (hours < _FIRST_HOUR) | (hours > _LAST_HOUR)
        return pa.array(hours // 24 if self._by == DATE else hours, mask=beyond if beyond.any() else None)

    def _time_values(self, at: int | None) -> PartitionValues:
        if at is None:
            return tuple((name, None) for name in self.columns)
        if self._by == DATE:
            return ((DATE, _date(at).isoformat()),)
        return (DATE, _date(at // 24).isoformat()), (HOUR, str(at % 24))


def folder_of(values: PartitionValues) -> str:
    """The path in the table, ending in `/`; empty without partitions."""
    return "".join(f"{escape(name)}={NO_VALUE if text is None else escape(text)}/" for name, text in values)


def escape(text: str) -> str:
    """As Spark and Hive write a name or value in a folder's name."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def fits_folder(text: str) -> bool:
    return len(escape(text).encode()) <= MAX_VALUE_BYTES


def _with_empty_as_null(keys: pa.Array) -> pa.Array:
    if not pa.types.is_string(keys.type):
        return keys
    import pyarrow.compute as pc  # a run without news does without

    return pc.if_else(pc.equal(keys, ""), pa.scalar(None, keys.type), keys)


def _groups(rows: pa.RecordBatch, codes: pa.DictionaryArray) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Each value of the codes with its rows, copied, so that they do not keep the others in memory."""
    values = codes.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], rows
        return
    numbers = codes.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(values)), side="right")
    start = 0
    for value, end in zip(values, ends.tolist(), strict=True):
        yield value, rows.take(pa.array(order[start:end]))
        start = end


def _text(value: str | int | bool | date | None) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _date(days: int) -> date:
    return (_EPOCH + timedelta(days=days)).date()
