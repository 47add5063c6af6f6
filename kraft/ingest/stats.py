"""The statistics of a data file, as Delta's log has them: rows, least and greatest values, nulls by column.

Readers skip files by them, so each bound must hold: a string is cut to 32 characters, and a greatest one that was cut
gets the last code point behind it; times are whole milliseconds, the greatest rounded up. Columns of binary, boolean
and nested types have no bounds, nor has one with a value that a bound cannot be written of. Only the first 32 columns
have statistics. `writing.py` adds the rows of a file as it writes them.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MAX_COLUMNS = 32
MAX_STRING_CHARS = 32
_LAST_CHARACTER = chr(0x10FFFF)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FileStats:
    """Of the rows added so far; all have one schema."""

    def __init__(self) -> None:
        self.rows = 0
        self._types: dict[str, pa.DataType] = {}
        self._bounds: dict[str, tuple[Any, Any]] = {}
        """Least and greatest value; times and dates as numbers."""
        self._with_nan: set[str] = set()
        self._nulls: dict[str, int] = {}

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for name in rows.schema.names[:MAX_COLUMNS]:
            column = rows.column(name)
            if pa.types.is_struct(column.type):
                continue  # Delta counts the nulls of its fields, not its own
            self._types[name] = column.type
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(name)
            elif _has_order(column.type):
                self._widen(name, column)

    def to_json(self) -> str:
        least: dict[str, Any] = {}
        greatest: dict[str, Any] = {}
        for name in self._bounds.keys() - self._with_nan:
            low, high = (
                _written(bound, self._types[name], up=up) for up, bound in enumerate(self._bounds[name])
            )
            if low is not None:
                least[name] = low
            if high is not None:
                greatest[name] = high
        return json.dumps(
            {"numRecords": self.rows, "minValues": least, "maxValues": greatest, "nullCount": self._nulls},
            ensure_ascii=False,
            sort_keys=True,
        )

    def _widen(self, name: str, column: pa.ChunkedArray) -> None:
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        found = pc.min_max(column).as_py()
        least, greatest = found["min"], found["max"]
        if least is None:
            return
        if name in self._bounds:
            least, greatest = min(least, self._bounds[name][0]), max(greatest, self._bounds[name][1])
        self._bounds[name] = least, greatest


def _has_order(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
    )


def _written(bound: Any, kind: pa.DataType, *, up: int) -> Any:
    """The bound as JSON, a lower one or (`up`) an upper one; None: it cannot be written."""
    if isinstance(bound, str):
        cut = bound[:MAX_STRING_CHARS]
        if cut == bound or not up:
            return cut
        return None if bound[MAX_STRING_CHARS] == _LAST_CHARACTER else cut + _LAST_CHARACTER
    if isinstance(bound, Decimal):
        # A decimal has more digits than JSON's readers keep; a double of it is no bound, a whole number is one.
        return math.ceil(bound) if up else math.floor(bound)
    if isinstance(bound, float):
        return bound if math.isfinite(bound) else None
    try:
        if pa.types.is_date32(kind):
            return (_EPOCH + timedelta(days=bound)).date().isoformat()
        if pa.types.is_timestamp(kind):
            time = _EPOCH + timedelta(milliseconds=-(-bound // 1000) if up else bound // 1000)
            text = time.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return text if kind.tz is None else f"{text}Z"
    except OverflowError:
        return None
    return bound
