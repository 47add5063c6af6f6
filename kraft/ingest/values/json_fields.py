"""JSON values to columns: a fast path for blocks of sound documents, and an exact one, row by row, for all others.

The fast path hands a block of values, joined by newlines, to Arrow's reader. Joined, no document can hide in its
neighbour: each value begins with `{` and ends with `}`; a newline inside of a string is refused, and `}` before `{`
outside of one is the end of a document; so as many documents as values means one in each. With any doubt the block is
cut into smaller ones, down to SLOW_ROWS, which `json.loads` and the rules of `fitting.py` decide on. Both paths give
the same rows (a property test). Inferred fields are found in the slow path only: a block with a field that is new
fails in the fast one. `rows.py` calls it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from kraft.ingest.table_columns import column_name, field_name, own_names
from kraft.ingest.values.fitting import (
    MisfitError,
    fit_fields,
    have_four_digit_years,
    make_document,
    parse_times,
)
from kraft.ingest.values.inference import (
    Inference,
    Kind,
    Leaf,
    ListOf,
    Struct,
    is_unknown,
    join,
    kind_of,
    leaves,
    renamed,
    type_of,
)

SLOW_ROWS = 256
"""Fewer are not worth another try of the fast path."""
MAX_DEPTH = 64
"""How deep a document may nest."""
_WHITESPACE = " \t\r\n"
_FAN_OUT = 8
_NO_NUMBERS = tuple(re.compile(word + rb"(?=[\s,\]}])") for word in (b"NaN", b"Inf", b"Infinity"))

Columns = dict[str, pa.Array]


class JsonFields:
    """The fields of one slice's values. With `infer` new ones are added as they appear.

    `is_outdated`: columns already handed out are BIGINTs, and would have to be DOUBLEs.
    """

    def __init__(
        self,
        known: pa.Schema,
        *,
        fixed: pa.Schema,
        own: pa.Schema,
        infer: bool,
        partition_column: str | None = None,
    ) -> None:
        """`fixed`: the columns whose types stay; `known`: others to begin with; `own`: those that are no fields.

        `partition_column`: if it is the STRING column of a field, this one takes numbers and booleans, too.
        """
        self._taken = own_names(own)
        self._infer = infer
        struct = _fields(fixed, own, fixed=True)
        join(struct, _fields(known, own, fixed=False))
        self._scalar_field: str | None = None
        if partition_column is not None and partition_column not in own.names:
            name = field_name(partition_column, self._taken)
            kind = struct.fields.get(name)
            if isinstance(kind, Leaf) and pa.types.is_string(kind.type):
                struct.fields[name] = replace(kind, takes_scalars=True)
                self._scalar_field = name
        self._scalar_type = pa.string()
        """What most values of that field are, as far as is known: Arrow's reader takes one type."""
        self._inference = Inference(struct)
        self._handed_out = False
        self.is_outdated = False

    def columns(self) -> dict[str, pa.DataType]:
        """Name and type of the column of each field that is known."""
        return {
            column_name(name, self._taken): type_of(renamed(kind, to_columns=True))
            for name, kind in self._inference.struct.fields.items()
            if not is_unknown(kind)
        }

    def read(self, values: pa.Array) -> tuple[Columns, dict[int, str]]:
        """The columns of these values, and for each row that does not fit why; its fields are null."""
        widened = self._inference.widened
        pieces: list[tuple[int, Columns]] = []
        errors: dict[int, str] = {}
        self._read(values, 0, pieces, errors)
        self.is_outdated |= self._handed_out and self._inference.widened > widened
        self._handed_out = True
        columns = {}
        for name, kind in self.columns().items():
            parts = [
                found[name].cast(kind, safe=False) if name in found else pa.nulls(rows, kind)
                for rows, found in pieces
            ]
            columns[name] = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return columns, errors

    def _read(
        self, values: pa.Array, first: int, pieces: list[tuple[int, Columns]], errors: dict[int, str]
    ) -> None:
        """Appends the columns of the values, whose first is row `first`."""
        columns = self.read_fast(values)
        if columns is None and len(values) > SLOW_ROWS:
            step = max(SLOW_ROWS, -(-len(values) // _FAN_OUT))
            for at in range(0, len(values), step):
                self._read(values.slice(at, step), first + at, pieces, errors)
            return
        if columns is None:
            columns, misfits = self.read_slowly(values)
            errors.update({first + row: sentence for row, sentence in misfits.items()})
        pieces.append((len(values), columns))

    # ---- the fast path

    def read_fast(self, values: pa.Array) -> Columns | None:
        """None: in doubt."""
        documents = values.drop_null()
        schema = self._fast_schema(documents)
        if schema is None:
            return None
        if not len(documents):
            return {}
        block = _block(documents, check_ignored=not self._infer)
        if block is None:
            return None
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=block.size + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema,
                    newlines_in_values=True,
                    unexpected_field_behavior="error" if self._infer else "ignore",
                ),
            )
        except (pa.ArrowInvalid, pa.lib.ArrowIndexError):
            return None  # the slow path tells what is wrong with which row
        if table.num_rows != len(documents):
            return None
        columns = self._converted(table)
        if columns is None or not values.null_count:
            return columns
        rows = _expansion(values)
        return {name: column.take(rows) for name, column in columns.items()}

    def _fast_schema(self, documents: pa.Array) -> pa.Schema | None:
        """What Arrow's reader is to read; None if it has no type for one of the fields."""
        fields = []
        for name, kind in self._inference.struct.fields.items():
            if _is_only_empty(kind):
                continue
            if name == self._scalar_field:
                self._scalar_type = _scalar_type(documents, name) or self._scalar_type
                fields.append(pa.field(name, self._scalar_type))
                continue
            fast = _fast_type(kind)
            if fast is None:
                return None
            fields.append(pa.field(name, fast))
        return pa.schema(fields)

    def _converted(self, table: pa.Table) -> Columns | None:
        columns = {}
        for name, kind in self._inference.struct.fields.items():
            if is_unknown(kind):
                continue
            wanted = type_of(renamed(kind, to_columns=True))
            column = table.column(name).combine_chunks()
            try:
                converted = parse_times(column, wanted) if _is_time(wanted) else column.cast(wanted)
            except pa.ArrowInvalid:
                return None  # a time inside of the field
            if converted is None or not _is_sound(converted):
                return None
            columns[column_name(name, self._taken)] = converted
        return columns

    # ---- the slow path

    def read_slowly(self, values: pa.Array) -> tuple[Columns, dict[int, str]]:
        documents: list[dict[str, Any] | None] = []
        errors: dict[int, str] = {}
        struct = self._inference.struct
        exact = any(pa.types.is_decimal(kind) or pa.types.is_map(kind) for kind in leaves(struct))
        for row, value in enumerate(values.to_pylist()):
            try:
                documents.append(None if value is None else _document(value, exact=exact))
            except ValueError as error:
                documents.append(None)
                errors[row] = f"The value is {error}."
        if self._infer:
            for document in documents:
                self._inference.show(document or {})
        fit = fit_fields(struct, strict=self._infer)
        kinds = self.columns()
        nothing = [None] * len(kinds)
        rows = []
        for row, document in enumerate(documents):
            try:
                rows.append(nothing if document is None else fit(document))
            except MisfitError as error:
                rows.append(nothing)
                errors[row] = error.sentence()
        lists = zip(*rows, strict=True) if rows else ([] for _ in kinds)
        return {
            name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), lists, strict=True)
        }, errors


def _fields(columns: pa.Schema, own: pa.Schema, *, fixed: bool) -> Struct:
    """What the columns are of, with the names that the documents have."""
    struct = Struct()
    for column in columns:
        if column.name not in own.names:
            kind = renamed(kind_of(column.type, fixed=fixed), to_columns=False)
            struct.add(field_name(column.name, own_names(own)), kind)
    return struct


def _block(documents: pa.Array, *, check_ignored: bool) -> pa.Buffer | None:
    """The documents in lines; None if Arrow's reader could take one for what it is not."""
    try:
        texts = documents.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # not UTF-8
    if not _are_objects(texts):
        texts = pc.ascii_trim(texts, characters=_WHITESPACE)
        if not _are_objects(texts):
            return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    block = pc.binary_join(lines, "\n").buffers()[2]
    if check_ignored:
        # Inside of ignored fields Arrow lets pass what is no JSON, and does not mind how deep they nest.
        if any(number.search(block) for number in _NO_NUMBERS):
            return None
        opened = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
        if pc.max(opened).as_py() > MAX_DEPTH:
            return None
    return block


def _are_objects(texts: pa.Array) -> bool:
    return bool(pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py())


def _scalar_type(documents: pa.Array, name: str) -> pa.DataType | None:
    """Of this field in the first document; None if it does not tell."""
    if not len(documents):
        return None
    try:
        value = _document(documents[0].as_py(), exact=False).get(name)
    except ValueError:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    return {int: pa.int64(), str: pa.string()}.get(type(value))


def _fast_type(kind: Kind) -> pa.DataType | None:
    types = pa.types
    if kind is None:
        return pa.null()
    if isinstance(kind, ListOf):
        element = _fast_type(kind.element)
        return None if element is None else pa.list_(element)
    if isinstance(kind, Struct):
        inner = {name: _fast_type(one) for name, one in kind.fields.items() if not _is_only_empty(one)}
        same_names = renamed(kind, to_columns=True) == kind
        if not inner or not same_names or None in inner.values():
            return None
        return pa.struct(list(inner.items()))
    if types.is_floating(kind.type):
        return pa.float64()
    if _is_time(kind.type):
        return pa.string()
    plain = types.is_boolean(kind.type) or types.is_integer(kind.type) or types.is_string(kind.type)
    return kind.type if plain else None


def _is_only_empty(kind: Kind) -> bool:
    """Arrow's reader has no type for it; a block with such a field is for the slow path."""
    return kind is not None and is_unknown(kind)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_sound(column: pa.Array) -> bool:
    """Arrow reads NaN, takes too many digits for infinity, and knows the year 0."""
    kind = column.type
    if _is_time(kind):
        return have_four_digit_years(column)
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    if pa.types.is_list(kind):
        return _is_sound(column.flatten())
    if pa.types.is_struct(kind):
        return all(_is_sound(one) for one in column.flatten())
    return True


def _expansion(values: pa.Array) -> pa.Array:
    """For `take`: the row among those that are not null, or null."""
    there = values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(there) - 1, mask=~there)


def _document(value: bytes, *, exact: bool) -> dict[str, Any]:
    """Raises ValueError with what the value is instead of an object."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        found = _loads(text, exact=exact)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(found) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return found


def _loads(text: str, *, exact: bool) -> Any:
    more: dict[str, Any] = {"parse_float": Decimal} if exact else {}
    try:
        return json.loads(text, object_pairs_hook=make_document, parse_constant=_refuse, **more)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError as error:
        if "digits" not in str(error):
            raise
    # Python refuses whole numbers of thousands of digits; they fit no column, but may stand in a field without one.
    return json.loads(
        text, object_pairs_hook=make_document, parse_constant=_refuse, parse_int=_whole_number, **more
    )


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) < 1000 else float(digits)


def _refuse(constant: str) -> None:
    raise ValueError(f"not JSON: it has the number {constant}")


def _depth(document: dict[str, Any]) -> int:
    """How many objects and arrays lie in each other. Without recursion."""
    depth = 0
    level: list[Any] = [document]
    while level:
        depth += 1
        level = [member for outer in level for member in _members(outer) if isinstance(member, dict | list)]
    return depth


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
