"""The schema of JSON values that a user gives: Spark's own JSON (`StructType.json()`), or DDL (`id INT, name STRING`).

It is read without a JVM. All columns are nullable, as with Spark's own files: NOT NULL and `"nullable": false` say
nothing here, nor do comments and metadata. What no JSON value becomes (intervals, variants, user-defined types, a map
whose keys are no strings) is refused. The command line calls it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kraft.ingest.values.inference import MAX_FIELDS
from kraft.spark.errors import OptionError

MAX_DEPTH = 64
_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_DEFAULT_DECIMAL = (10, 0)
_MAX_PRECISION = 38
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<word>\w+)|(?P<sign>[<>(),:]))"
)


def parse_schema(text: str) -> pa.Schema:
    """The fields of the values, by their names there. Raises OptionError."""
    if text.lstrip().startswith(("{", "[", '"')):
        fields = _fields_of_json(text)
    else:
        fields = _Ddl(text).schema()
    if not fields:
        raise OptionError("The schema names no field: give for example `id INT, name STRING`.")
    _check_size(fields)
    return pa.schema(fields)


def _check_size(fields: Sequence[pa.Field]) -> None:
    count, level, depth = 0, list(fields), 1
    while level:
        count += len(level)
        inner: list[pa.Field] = []
        for field in level:
            kind = field.type
            inner += [kind.field(at) for at in range(kind.num_fields)]
        level, depth = inner, depth + 1
        if count > MAX_FIELDS or depth > MAX_DEPTH:
            raise OptionError(
                f"The schema has more than {MAX_FIELDS} fields, or nests deeper than {MAX_DEPTH}: name fewer."
            )


def _struct_fields(named: Sequence[tuple[str, pa.DataType]]) -> list[pa.Field]:
    lowered: set[str] = set()
    for name, _ in named:
        if not name:
            raise OptionError("The schema has a field without a name.")
        if name.lower() in lowered:
            raise OptionError(
                f"The schema names the field {name} twice; names that differ only in case are the same."
            )
        lowered.add(name.lower())
    return [pa.field(name, kind) for name, kind in named]


def _atomic(name: str, numbers: Sequence[int]) -> pa.DataType:
    """Of a type's name in lower case and the numbers in parentheses behind it."""
    name = _SYNONYMS.get(name, name)
    if name == "decimal" and len(numbers) <= 2:
        precision, scale = (*numbers, *_DEFAULT_DECIMAL[len(numbers) :])
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise OptionError(
                f"The schema has a DECIMAL({precision},{scale}): the precision is from 1 to {_MAX_PRECISION}, the scale"
                " at most as much."
            )
        return pa.decimal128(precision, scale)
    if name in ("varchar", "char") and len(numbers) == 1:
        return pa.string()
    if name not in _TYPES or numbers:
        shown = f"{name}({','.join(map(str, numbers))})" if numbers else name
        raise OptionError(
            f"The schema has the type {shown.upper()}, which no JSON value becomes. There are"
            f" {', '.join(one.upper() for one in _TYPES)}, DECIMAL(p,s), ARRAY<…>, STRUCT<…> and MAP<STRING, …>."
        )
    return _TYPES[name]


def _map(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    if not pa.types.is_string(key):
        raise OptionError(
            "The schema has a MAP whose keys are no STRING: the names in a JSON object are text."
        )
    return pa.map_(key, item)


# ---- JSON


def _fields_of_json(text: str) -> list[pa.Field]:
    try:
        document = json.loads(text)
        kind = _type_of_json(document)
    except json.JSONDecodeError as error:
        raise OptionError(f"The schema is not JSON: {error}.") from error
    except RecursionError:
        raise OptionError(f"The schema nests deeper than {MAX_DEPTH}: name fewer fields.") from None
    if not pa.types.is_struct(kind):
        raise OptionError(
            'The schema must be {"type": "struct", "fields": […]}, as StructType.json() writes it.'
        )
    return list(kind.fields)


def _type_of_json(given: Any) -> pa.DataType:
    if isinstance(given, str):
        return _Ddl(given).only_type()
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "struct" and isinstance(given.get("fields"), list):
        return pa.struct(_struct_fields([_field_of_json(field) for field in given["fields"]]))
    if kind == "array" and "elementType" in given:
        return pa.list_(pa.field("element", _type_of_json(given["elementType"])))
    if kind == "map" and {"keyType", "valueType"} <= given.keys():
        return _map(_type_of_json(given["keyType"]), _type_of_json(given["valueType"]))
    raise OptionError(
        f"The schema has a type that is none of StructType.json(): {json.dumps(given)[:100]}. It must be a name, or an"
        " object whose type is struct, array or map."
    )


def _field_of_json(given: Any) -> tuple[str, pa.DataType]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or "type" not in given:
        raise OptionError(f"The schema has a field without name and type: {json.dumps(given)[:100]}.")
    return given["name"], _type_of_json(given["type"])


# ---- DDL


class _Token(NamedTuple):
    text: str
    kind: str
    """`quoted`, `text`, `word`, `sign`, or `end`."""
    at: int


class _Ddl:
    """A parser of Spark's DDL, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(f"has {text[at : at + 20]!r} where it cannot stand")
            assert found.lastgroup is not None
            self._tokens.append(_Token(found[found.lastgroup], found.lastgroup, found.start(found.lastgroup)))
            at = found.end()
        self._tokens.append(_Token("the end", "end", end))
        self._next = 0
        self._depth = 0

    def schema(self) -> list[pa.Field]:
        fields = self._fields()
        self._expect_end()
        return fields

    def only_type(self) -> pa.DataType:
        kind = self._type()
        self._expect_end()
        return kind

    def _fields(self) -> list[pa.Field]:
        named = [self._field()]
        while self._take(","):
            named.append(self._field())
        return _struct_fields(named)

    def _field(self) -> tuple[str, pa.DataType]:
        token = self._advance()
        if token.kind not in ("word", "quoted"):
            raise self._unexpected(token, "the name of a field")
        name = token.text if token.kind == "word" else token.text[1:-1].replace("``", "`")
        self._take(":")
        kind = self._type()
        if self._take_word("not") and not self._take_word("null"):
            raise self._unexpected(self._advance(), "NULL")
        if self._take_word("comment") and self._advance().kind != "text":
            raise self._wrong("has a COMMENT without text in quotes")
        return name, kind

    def _type(self) -> pa.DataType:
        token = self._advance()
        if token.kind != "word":
            raise self._unexpected(token, "a type")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise OptionError(f"The schema nests deeper than {MAX_DEPTH}: name fewer fields.")
        kind = self._nested(token.text.lower())
        self._depth -= 1
        return kind

    def _nested(self, name: str) -> pa.DataType:
        if name not in ("array", "map", "struct"):
            return _atomic(name, self._numbers())
        self._expect("<")
        if name == "array":
            kind = pa.list_(pa.field("element", self._type()))
        elif name == "map":
            key = self._type()
            self._expect(",")
            kind = _map(key, self._type())
        else:
            kind = pa.struct(self._fields())
        self._expect(">")
        return kind

    def _numbers(self) -> list[int]:
        if not self._take("("):
            return []
        numbers = []
        while True:
            token = self._advance()
            if not token.text.isascii() or not token.text.isdigit() or len(token.text) > 9:
                raise self._unexpected(token, "a whole number")
            numbers.append(int(token.text))
            if not self._take(","):
                break
        self._expect(")")
        return numbers

    def _advance(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _take(self, sign: str) -> bool:
        token = self._tokens[self._next]
        found = token.kind == "sign" and token.text == sign
        self._next += found
        return found

    def _take_word(self, word: str) -> bool:
        token = self._tokens[self._next]
        found = token.kind == "word" and token.text.lower() == word
        self._next += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(self._advance(), sign)

    def _expect_end(self) -> None:
        token = self._advance()
        if token.kind != "end":
            raise self._unexpected(token, "a comma or the end")

    def _unexpected(self, token: _Token, wanted: str) -> OptionError:
        return self._wrong(f"has {token.text} at character {token.at + 1}, where {wanted} must stand")

    def _wrong(self, what: str) -> OptionError:
        shown = self._text if len(self._text) <= 60 else f"{self._text[:60]}…"
        return OptionError(f"The schema {shown!r} {what}. Give for example `id INT, name STRING`.")
