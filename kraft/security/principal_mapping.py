"""`ssl.principal.mapping.rules`: the name that a certificate's distinguished name stands for (KIP-371).

Rules are tried in order; the first that fits decides. `RULE:pattern/replacement/` matches a whole name, the replacement
may hold groups ($1), and L or U behind it change the case. `DEFAULT` takes the name as it is. `/`, `,` and `\\` may be
written behind a backslash. Pure; `kraft.broker.tls` asks it who a client is.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final, NamedTuple

DEFAULT: Final = "DEFAULT"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN = re.compile(r"\s*,\s*|\s*\Z")
_GROUP = re.compile(r"\$(\d)|\\(.)|\$", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: the name as it is."""
    replacement: str
    case: str


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        self._rules = rules

    def name(self, distinguished_name: str) -> str | None:
        """The name; None if no rule fits: such a client is nobody."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return distinguished_name
            found = pattern.fullmatch(distinguished_name)
            if found is not None:
                name = _GROUP.sub(partial(_replaced, found), replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None


def parse_principal_mapping(text: str) -> PrincipalMapping:
    """Raises ValueError, the end of a sentence."""
    rules, position = [], 0
    text = text.strip()
    while position < len(text):
        if text.startswith(DEFAULT, position):
            rules.append(_Rule(None, "", ""))
            position += len(DEFAULT)
        else:
            rule = _RULE.match(text, position)
            if rule is None:
                raise ValueError(
                    f"{text[position:]!r} is neither DEFAULT nor RULE:pattern/replacement/ (and L or U, if you like)"
                )
            rules.append(_rule(*rule.groups()))
            position = rule.end()
        between = _BETWEEN.match(text, position)
        if between is None:
            raise ValueError(f"a comma stands between rules, not {text[position:]!r}")
        position = between.end()
    if not rules:
        raise ValueError("no rule is there; write DEFAULT for the whole name")
    return PrincipalMapping(tuple(rules))


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    highest = max((int(group[1]) for group in _GROUP.finditer(replacement) if group[1]), default=0)
    if highest > compiled.groups:
        raise ValueError(f"{replacement!r} names group {highest}, and {pattern!r} has {compiled.groups}")
    return _Rule(compiled, replacement, case)


def _replaced(found: re.Match[str], token: re.Match[str]) -> str:
    if token[1] is not None:
        return found[int(token[1])] or ""
    return token[2] if token[2] is not None else token[0]
