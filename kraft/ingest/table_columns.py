"""The columns of a table: those of the records themselves, and the names of the fields of JSON values beside them.

A table has, in this order, `key`, `value` (not of JSON), `topic`, `partition`, `offset`, `timestamp` (microseconds,
UTC), `timestampType`, `headers`; `_error` and `_raw` where values can fail to fit; `date`, or `date` and `hour`, where
it is partitioned by them; then the fields of JSON values. All are nullable: a row that does not fit has no fields.

Names are compared without case, as Spark and Delta compare them. The record's own columns keep their names in every
table. A JSON field of such a name is `value_<name>`, whatever the data; `value_value_<name>` then is the field
`value_<name>`. Characters that Parquet and Delta refuse in a name are written as `%XX`, and so is `%`. So a column
tells its field, and the other way round. The driver makes a table's schema here; workers look names up.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import pyarrow as pa

from kraft.ingest.model import Values
from kraft.spark.columns import COLUMN_NAMES, arrow_schema
from kraft.spark.errors import OptionError

ERROR = "_error"
"""Why a row's value does not fit, as a sentence; null where it does."""
RAW = "_raw"
"""The bytes of such a value; null in all other rows."""
DATE, HOUR = "date", "hour"
MAX_NAME_CHARS = 255

_PREFIX = "value_"
_PARTITIONS = ("topic", "partition", "key")
"""The own columns that a table can be partitioned by."""
_DATE_COLUMN, _HOUR_COLUMN = pa.field(DATE, pa.date32()), pa.field(HOUR, pa.int32())
_TIME_COLUMNS: dict[str, tuple[pa.Field, ...]] = {DATE: (_DATE_COLUMN,), HOUR: (_DATE_COLUMN, _HOUR_COLUMN)}
_REFUSED_IN_NAMES = re.compile(r"[\x00-\x20,;{}()=%\x7f]")


def own_columns(values: Values, partition_by: str | None) -> pa.Schema:
    """Those that a table has before any field of a JSON value."""
    fields = list(arrow_schema([name for name in COLUMN_NAMES if name != "value" or values != "json"]))
    if values == "string":
        fields = [field.with_type(pa.string()) if field.name == "value" else field for field in fields]
    if partition_by == "key":
        fields = [field.with_type(pa.string()) if field.name == "key" else field for field in fields]
    if values != "bytes":
        fields += [pa.field(ERROR, pa.string()), pa.field(RAW, pa.binary())]
    return pa.schema([*fields, *_TIME_COLUMNS.get(partition_by or "", ())])


def table_schema(values: Values, partition_by: str | None, fields: pa.Schema | None) -> pa.Schema:
    """Of a new table. `fields`: of the JSON values, by their names there; None: they are inferred.

    A field to partition by that is to be inferred becomes a string column, which takes numbers and booleans, too.
    Raises OptionError.
    """
    own = own_columns(values, partition_by)
    taken = own_names(own)
    named = [_column(field, taken) for field in fields or ()]
    by = partition_by
    known = {field.name for field in (*own, *named)}
    if by is not None and by not in _TIME_COLUMNS and by not in known:
        by = column_name(by, taken)
        if values != "json" or (fields is not None and by not in known):
            raise OptionError(
                f"A table cannot be partitioned by {partition_by!r}: it will have no such column. Choose"
                f" {', '.join(('date', 'hour', *_PARTITIONS, *(field.name for field in named)))}."
            )
        if by not in known:
            named.append(pa.field(by, pa.string()))
    schema = pa.schema([*own, *named])
    _check_partition(schema, by, own)
    return schema


def own_names(own: pa.Schema) -> frozenset[str]:
    """In lower case."""
    return frozenset(field.name.lower() for field in own)


def column_name(field: str, taken: frozenset[str]) -> str:
    """Of a top-level field. `taken`: the own columns in lower case."""
    bare = field.lower()
    while bare not in taken and bare.startswith(_PREFIX):
        bare = bare.removeprefix(_PREFIX)
    return escaped(f"{_PREFIX}{field}" if bare in taken else field)


def field_name(column: str, taken: frozenset[str]) -> str:
    """The top-level field of a column that is no own one."""
    name = unescaped(column)
    stripped = name[len(_PREFIX) :]
    renamed = name.lower().startswith(_PREFIX) and column_name(stripped, taken) == column
    return stripped if renamed else name


def escaped(field: str) -> str:
    """The column's name of a field inside of another."""
    return _REFUSED_IN_NAMES.sub(lambda found: f"%{ord(found[0]):02X}", field)


def unescaped(column: str) -> str:
    return unquote(column)


def _column(field: pa.Field, taken: frozenset[str]) -> pa.Field:
    return pa.field(column_name(field.name, taken), with_escaped_names(field.type))


def with_escaped_names(kind: pa.DataType) -> pa.DataType:
    """The column's type of a field's."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(escaped(one.name), with_escaped_names(one.type)) for one in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", with_escaped_names(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, with_escaped_names(kind.item_type))
    return kind


def _check_partition(schema: pa.Schema, by: str | None, own: pa.Schema) -> None:
    if by is None or by in _TIME_COLUMNS:
        return
    if by in own.names and by not in _PARTITIONS:
        raise OptionError(
            f"A table cannot be partitioned by {by}: choose date, hour, topic, partition, key or a JSON field (one that"
            f" is called {by} has the column {_PREFIX}{by})."
        )
    kind = schema.field(by).type
    types = pa.types
    if not (
        types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)
    ):
        raise OptionError(
            f"A table cannot be partitioned by {by}, whose type is {kind}: choose a string, a whole number, a boolean"
            " or a date."
        )
