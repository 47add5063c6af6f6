"""The syntax of .properties files, as `java.util.Properties` reads them: Kafka's own files load."""

from __future__ import annotations

from typing import NamedTuple

_WHITESPACE = " \t\f"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


class PropertiesError(ValueError):
    """A line that cannot be read; the text names its number."""


class Properties(NamedTuple):
    """The pairs of a file, and the keys that it sets more than once (the last line counts)."""

    values: dict[str, str]
    repeated: tuple[str, ...]


def parse_properties(text: str) -> Properties:
    """Reads `key=value`, `key: value` and `key value` lines.

    Comments begin with # or !, a backslash at the end of a line continues it, and the escapes
    \\n \\r \\t \\f \\uXXXX stand for what they do in Java. Raises PropertiesError.
    """
    values: dict[str, str] = {}
    repeated: dict[str, None] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        key, value = _unescape(raw_key, number), _unescape(raw_value, number)
        if key in values:
            repeated[key] = None
        values[key] = value
    return Properties(values, tuple(repeated))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments and blanks, continuations joined; each with the number it begins at."""
    lines: list[tuple[int, str]] = []
    pending = ""
    begun_at = 0
    natural_lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, natural in enumerate(natural_lines, start=1):
        stripped = natural.lstrip(_WHITESPACE)
        if not begun_at:
            if not stripped or stripped[0] in "#!":
                continue
            begun_at = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            pending += stripped[:-1]
        else:
            lines.append((begun_at, pending + stripped))
            pending, begun_at = "", 0
    if begun_at:
        lines.append((begun_at, pending))
    return lines


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first = : or blank that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITESPACE:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_WHITESPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITESPACE)
    return key, rest


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(f"line {number}: \\u must be followed by four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    return "".join(out)
