"""Whether a value of a JSON document fits a column, exactly: the rules, one value at a time.

A number fits a whole-number type if it is written as a whole number and in range, a DOUBLE if it is finite (the
nearest double is taken), a DECIMAL if it has no more digits. Text fits a STRING, a DATE as `2026-01-31`, a TIMESTAMP
as ISO 8601 (UTC where no offset is named), both of the years 1 to 9999, a BINARY as base64. A field by which the
table is partitioned, and whose column is a STRING, takes numbers and booleans as JSON writes them. Nothing is converted
otherwise. Null fits everything. Fields that a given schema does not name are left out; where fields are inferred, one
that could not be added does not fit. `json_fields.py` calls it; its fast path must agree.
"""

from __future__ import annotations

import binascii
import math
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kraft.ingest.table_columns import escaped
from kraft.ingest.values.inference import Kind, Leaf, ListOf, Struct, is_unknown, kind_of, renamed

Fit = Callable[[Any], Any]
"""A value to what Arrow makes the column of. Raises MisfitError."""
_EXACT = Context(prec=80)
"""More digits than any DECIMAL has."""
_MAX_SHOWN_CHARS = 40
_DAY_US = 86_400_000_000
_FIRST_DAY = (date.min - date(1970, 1, 1)).days
_END_DAY = (date.max - date(1970, 1, 1)).days + 1
_MAX_FLOAT32 = 3.4028235677973366e38
"""What rounds to no finite one, lies from here on."""


class MisfitError(ValueError):
    """A value does not fit; `path` names the field, from the inside out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []

    def sentence(self) -> str:
        return f"The field {'.'.join(reversed(self.path))} {self}."


class Document(dict[str, Any]):
    """An object in which names stand more than once."""

    doubled: frozenset[str] = frozenset()


def make_document(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    names = [name for name, _ in pairs]
    document = Document(plain)
    document.doubled = frozenset(name for name in plain if names.count(name) > 1)
    return document


def fit_fields(struct: Struct, *, strict: bool) -> Callable[[dict[str, Any]], list[Any]]:
    """The values of the struct's known fields, in their order. `strict`: other fields do not fit."""
    fits = [
        (name, make_fit(kind, strict=strict)) for name, kind in struct.fields.items() if not is_unknown(kind)
    ]
    unknown = {name for name, kind in struct.fields.items() if is_unknown(kind)}

    def fit(document: dict[str, Any]) -> list[Any]:
        _check_names(document, struct, strict=strict)
        if unknown:
            for name in document.keys() & unknown:
                _at(name, fit_unknown, document[name])
        found = []
        for name, fit_value in fits:
            value = document.get(name)
            found.append(None if value is None else _at(name, fit_value, value))
        return found

    return fit


def make_fit(kind: Kind, *, strict: bool) -> Fit:
    if isinstance(kind, Struct):
        return _struct(kind, strict=strict)
    if isinstance(kind, ListOf):
        return _list(make_fit(kind.element, strict=strict))
    if kind is None:
        return fit_unknown
    return _scalar if kind.takes_scalars else _leaf(kind)


def fit_unknown(value: Any) -> None:
    """What is null or empty through and through."""
    members = value.values() if isinstance(value, dict) else value
    if value is not None and not isinstance(value, dict | list):
        raise MisfitError(f"is {_shown(value)}, but the table has no room for another field")
    for member in members or ():
        fit_unknown(member)


def _check_names(document: dict[str, Any], struct: Struct, *, strict: bool) -> None:
    if isinstance(document, Document):
        for name in sorted(document.doubled):
            if strict or name in struct.fields:
                raise _misfit(name, "stands more than once")
    if strict and not document.keys() <= struct.fields.keys():
        name = min(document.keys() - struct.fields.keys())
        if struct.has_alike(name):
            raise _misfit(name, "differs from another field only in case")
        raise _misfit(
            name, "cannot become a column: its name is impossible, or the table has too many fields"
        )


def _misfit(name: str, what: str) -> MisfitError:
    error = MisfitError(what)
    error.path.append(_printable(name))
    return error


def _at(name: str, fit: Fit, value: Any) -> Any:
    try:
        return fit(value)
    except MisfitError as error:
        error.path.append(_printable(name))
        raise


def _struct(struct: Struct, *, strict: bool) -> Fit:
    fields = fit_fields(struct, strict=strict)
    names = [escaped(name) for name, kind in struct.fields.items() if not is_unknown(kind)]

    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise MisfitError(f"is {_shown(value)}, and no object")
        return dict(zip(names, fields(value), strict=True))

    return fit


def _list(fit_element: Fit) -> Fit:
    def fit(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise MisfitError(f"is {_shown(value)}, and no array")
        return [None if element is None else fit_element(element) for element in value]

    return fit


def _leaf(leaf: Leaf) -> Fit:
    kind, types = leaf.type, pa.types
    if types.is_boolean(kind):
        return _exactly(bool, "BOOLEAN")
    if types.is_integer(kind):
        return _whole(kind.bit_width)
    if types.is_floating(kind):
        return _fraction(_MAX_FLOAT32 if kind.bit_width == 32 else math.inf)
    if types.is_string(kind):
        return _string
    if types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_binary(kind):
        return _base64
    if types.is_date32(kind) or types.is_timestamp(kind):
        return _time(kind)
    if types.is_map(kind):
        return _map(kind)
    raise TypeError(f"no JSON value becomes a {kind}")


def _exactly(kind: type, name: str) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is not kind:
            raise MisfitError(f"is {_shown(value)}, and no {name}")
        return value

    return fit


def _whole(bits: int) -> Fit:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    name = {8: "TINYINT", 16: "SMALLINT", 32: "INT"}.get(bits, "BIGINT")

    def fit(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise MisfitError(f"is {_shown(value)}, and no {name}")
        return value

    return fit


def _fraction(limit: float) -> Fit:
    def fit(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise MisfitError(f"is {_shown(value)}, and no number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) < limit:
            raise MisfitError("is a number beyond the column's range")
        return number

    return fit


def _string(value: Any) -> str:
    if type(value) is not str:
        raise MisfitError(f"is {_shown(value)}, and no STRING")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MisfitError("has half of a surrogate pair") from None
    return value


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        if not math.isfinite(number):
            raise MisfitError("is a number beyond the range of a DOUBLE")
        return repr(number)
    return _string(value)


def _decimal(precision: int, scale: int) -> Fit:
    def fit(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise MisfitError(f"is {_shown(value)}, and no number")
        number = Decimal(value)
        try:
            fitted = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        except InvalidOperation:
            fitted = None
        if fitted is None or fitted != number or fitted.copy_abs() >= Decimal(10) ** (precision - scale):
            raise MisfitError(f"is {_shown(value)}, and no DECIMAL({precision},{scale})")
        return fitted

    return fit


def _base64(value: Any) -> bytes:
    try:
        return b64decode(_string(value), validate=True)
    except (ValueError, binascii.Error):
        raise MisfitError(f"is {_shown(value)}, and no base64") from None


def _time(kind: pa.DataType) -> Fit:
    name = "DATE" if pa.types.is_date32(kind) else "TIMESTAMP"
    number = pa.int32() if name == "DATE" else pa.int64()

    def fit(value: Any) -> int:
        texts = pa.array([_string(value)])
        found = parse_times(texts, kind)
        if found is None:
            raise MisfitError(f"is {_shown(value)}, and no {name}")
        return int(found.cast(number)[0].as_py())

    return fit


def parse_times(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Of a string column; None if one of them does not fit, or some name an offset and others do not."""
    may_lack_offset = pa.types.is_timestamp(kind) and kind.tz is not None
    for first in (kind, pa.timestamp(kind.unit)) if may_lack_offset else (kind,):
        try:
            times = texts.cast(first).cast(kind)
        except pa.ArrowInvalid:
            continue
        return times if have_four_digit_years(times) else None
    return None


def have_four_digit_years(times: pa.Array) -> bool:
    """Dates and times of the years 1 to 9999 UTC: no other ones are for all of a table's readers."""
    is_date = pa.types.is_date32(times.type)
    bounds = pc.min_max(times.cast(pa.int32() if is_date else pa.int64())).as_py()
    if bounds["min"] is None:
        return True
    per_day = 1 if is_date else _DAY_US
    return bool(_FIRST_DAY * per_day <= bounds["min"] and bounds["max"] < _END_DAY * per_day)


def _map(kind: pa.MapType) -> Fit:
    fit_item = make_fit(renamed(kind_of(kind.item_type), to_columns=False), strict=False)

    def fit(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise MisfitError(f"is {_shown(value)}, and no object")
        if isinstance(value, Document):
            raise MisfitError("has a key more than once")
        return [
            (_string(key), None if item is None else _at(key, fit_item, item)) for key, item in value.items()
        ]

    return fit


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return _printable(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
