"""ssl.principal.mapping.rules: Kafka's examples (KIP-371), and what is no rule."""

from __future__ import annotations

import pytest

from kraft.security.principal_mapping import parse_principal_mapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    " RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        (RULES, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        (RULES, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        (RULES, "CN=x", "CN=x"),
        ("DEFAULT", "CN=x,O=y", "CN=x,O=y"),
        ("RULE:CN=(.*)/$1/U", "CN=duke", "DUKE"),
        ("RULE:CN=(.*)/$1/", "O=duke", None),
        ("RULE:CN=(.*)/a$$1b\\/c\\,/,DEFAULT", "CN=x", "a$xb/c,"),
        ("RULE:CN=([^,]*)(,OU=.*)?/$1$2/", "CN=x", "x"),
        ("RULE:CN=a\\/b/slash/", "CN=a/b", "slash"),
    ],
)
def test_names(rules: str, name: str, expected: str | None) -> None:
    assert parse_principal_mapping(rules).name(name) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rule is there"),
        ("RULE:CN=(.*)", "is neither DEFAULT nor RULE"),
        ("DEFAULT RULE:x/y/", "a comma stands between rules"),
        ("RULE:(/x/", "is no regular expression"),
        ("RULE:CN=(.*)/$2/", "names group 2"),
        ("default", "is neither DEFAULT nor RULE"),
    ],
)
def test_what_is_no_rule(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_principal_mapping(text)
