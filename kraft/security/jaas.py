"""`sasl.jaas.config`: one login module and its options, as Java reads them (KIP-85).

`org.apache.kafka….PlainLoginModule required username="a" password="b";`. Values may stand in double or single quotes,
with Java's escapes; comments are skipped. No error shows any part of the text but names of options that this module
knows: passwords stand in it. `kraft.spark.security` reads clients' credentials with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

MAX_CHARACTERS: Final = 64 << 10
_FLAGS = frozenset(("required", "requisite", "sufficient", "optional"))
_TOKEN = re.compile(
    r"""
      (?P<skipped> [\x00-\x20]+ | /\*.*?\*/ | /[^\r\n]* )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff] [A-Za-z0-9_$.\-\u00a0-\U0010ffff]* )
    | "(?P<double> (?: [^"\\\r\n] | \\[^\r\n] )* )"
    | '(?P<single> (?: [^'\\\r\n] | \\[^\r\n] )* )'
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """The text is none of this form; the message says what is amiss and shows nothing of it."""


class LoginModule(NamedTuple):
    """`options` may hold secrets: show only their names."""

    name: str
    """The Java class."""
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {sorted(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """Raises JaasError."""
    if len(text) > MAX_CHARACTERS:
        raise JaasError("it is too long")
    tokens = _tokens(text)
    name = _next_word(tokens, "the name of a login module comes first")
    if _next_word(tokens, "the word required follows the login module").lower() not in _FLAGS:
        raise JaasError("the word required follows the login module")
    options: dict[str, str] = {}
    for kind, value in tokens:
        if (kind, value) == ("sign", ";"):
            if next(tokens, None) is not None:
                raise JaasError("only one login module can be given")
            return LoginModule(name, options)
        if kind == "sign" or next(tokens, None) != ("sign", "="):
            raise JaasError('options are written name="value"')
        options[value] = _next_word(tokens, "an option has no value")
    raise JaasError("a semicolon ends it")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind (`word`, or `sign` for = and ;) and value."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError('values that are no plain words stand in quotes, with \\ before " and \\')
        position = found.end()
        kind = str(found.lastgroup)
        if kind in ("word", "sign"):
            yield kind, found[kind]
        elif kind != "skipped":
            yield "word", _ESCAPE.sub(_unescaped, found[kind])


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _LETTERS.get(escaped, escaped)


def _next_word(tokens: Iterator[tuple[str, str]], otherwise: str) -> str:
    kind, value = next(tokens, ("", ""))
    if kind != "word":
        raise JaasError(otherwise)
    return value
