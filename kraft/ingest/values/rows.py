"""The rows of a table, of the batches that the connector reads.

Each record becomes one row. A value that does not fit (text that is not UTF-8, a document that is no JSON object of
the schema) leaves a row whose value or fields are null, with a sentence in `_error` and the value's bytes in `_raw`;
it counts as a dead letter. A null value is a null, and no error. `writing.py` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from kraft.ingest.model import Layout
from kraft.ingest.partitioning import MAX_VALUE_BYTES, fits_folder, partition_columns
from kraft.ingest.table_columns import DATE, ERROR, HOUR, RAW, own_columns
from kraft.ingest.values.json_fields import JsonFields


class RowMaker:
    """Of one slice. `schema` is that of the rows made last: with inferred fields it grows."""

    def __init__(self, layout: Layout, known: pa.Schema) -> None:
        """`known`: the layout's schema, and what an earlier pass over the slice has learnt beyond it."""
        self.dead_letters = 0
        self._layout = layout
        own = own_columns(layout.values, layout.partition_by)
        self._own = own
        self._derived = {name for name in partition_columns(layout.partition_by) if name in (DATE, HOUR)}
        self._fields = None
        if layout.values == "json":
            self._fields = JsonFields(
                known,
                fixed=layout.schema,
                own=own,
                infer=layout.infer,
                partition_column=next(iter(partition_columns(layout.partition_by)), None),
            )

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, and those that this slice proposes at their end."""
        if self._fields is None:
            return self._layout.schema
        found = self._fields.columns()
        grown = [field.with_type(found.get(field.name, field.type)) for field in self._layout.schema]
        new = [pa.field(name, kind) for name, kind in found.items() if name not in self._layout.schema.names]
        return pa.schema([*grown, *new])

    @property
    def is_outdated(self) -> bool:
        """Whether the rows made so far must be made again, with what `schema` is when all of the slice was seen."""
        return self._fields is not None and self._fields.is_outdated

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """All columns but `date` and `hour`."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        if self._layout.partition_by == "key":
            columns["key"] = _texts(columns["key"])
        values = columns["value"]
        errors: dict[int, str] = {}
        if self._layout.values == "string":
            columns["value"] = _valid_texts(values, errors)
        elif self._fields is not None:
            found, errors = self._fields.read(values)
            columns |= self._without_misfits(found, errors)
        self.dead_letters += len(errors)
        if self._layout.values != "bytes":
            columns[ERROR], columns[RAW] = _error_columns(values, errors)
        fields = [field for field in self.schema if field.name not in self._derived]
        arrays = [_as_type(columns.get(field.name), field.type, batch.num_rows) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _without_misfits(
        self, fields: Mapping[str, pa.Array], errors: dict[int, str]
    ) -> Mapping[str, pa.Array]:
        """A field to partition by must fit into a folder's name; else the row has no fields."""
        name = (*partition_columns(self._layout.partition_by), "")[0]
        if name in self._own.names or name not in fields or not pa.types.is_string(fields[name].type):
            return fields
        long = [
            row
            for row, text in enumerate(fields[name].to_pylist())
            if text is not None and not fits_folder(text)
        ]
        if not long:
            return fields
        for row in long:
            errors[row] = (
                f"The field {name}, which the table is partitioned by, is longer than the {MAX_VALUE_BYTES} bytes that"
                " the name of a folder has room for."
            )
        kept: Sequence[int | None] = [None if row in errors else row for row in range(len(fields[name]))]
        return {name: column.take(pa.array(kept, pa.int64())) for name, column in fields.items()}


def _as_type(column: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, kind)
    return column if column.type == kind else column.cast(kind)


def _error_columns(values: pa.Array, errors: Mapping[int, str]) -> tuple[pa.Array, pa.Array]:
    if not errors:
        return pa.nulls(len(values), pa.string()), pa.nulls(len(values), pa.binary())
    rows = range(len(values))
    sentences = pa.array([errors.get(row) for row in rows], pa.string())
    return sentences, values.take(pa.array([row if row in errors else None for row in rows], pa.int64()))


def _valid_texts(values: pa.Array, errors: dict[int, str]) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                errors[row] = f"The value is not UTF-8: {error.reason} at byte {error.start}."
        return pa.array(texts, pa.string())


def _texts(keys: pa.Array) -> pa.Array:
    """Bytes that are not UTF-8 are written as `\\xNN`."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if key is None else key.decode(errors="backslashreplace") for key in keys.to_pylist()]
        return pa.array(texts, pa.string())
