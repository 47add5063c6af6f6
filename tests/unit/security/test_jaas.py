"""Login modules as Java's tokenizer reads them; what is refused shows nothing of the text."""

from __future__ import annotations

import pytest

from kraft.security.jaas import MAX_CHARACTERS, JaasError, parse_jaas

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        ("username='alice'\n password=s3cret ; ", {"username": "alice", "password": "s3cret"}),
        (r'password="say \"x\" \\ \u";', {"password": 'say "x" \\ u'}),
        (r"password='it\'s;=' ;", {"password": "it's;="}),
        (r'password="a\tb\nc\101\60\0611\7777";', {"password": "a\tb\ncA011?77"}),
        ('a = "1" /* b="2" \n */ // c="3"\n d="4" / e\n;', {"a": "1", "d": "4"}),
        ('password="ü€ \U0001f511" user=änne;', {"password": "ü€ \U0001f511", "user": "änne"}),
        ('a="" ;', {"a": ""}),
        ('a="1" a="2";', {"a": "2"}),
        (";", {}),
    ],
)
def test_options_of_a_module(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(f"{MODULE} REQUIRED {text}")
    assert (module.name, module.options) == (MODULE, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "name of a login module"),
        ("; hunter2", "name of a login module"),
        (MODULE, "required follows"),
        (f'{MODULE} password="hunter2";', "required follows"),
        (f'{MODULE} required password="hunter2"', "a semicolon ends it"),
        (f"{MODULE} required password=;", "has no value"),
        (f"{MODULE} required password", "written name="),
        (f"{MODULE} required hunter2 hunter3;", "written name="),
        (f"{MODULE} required password=2hunter;", "stand in quotes"),
        (f"{MODULE} required password=hunter!;", "stand in quotes"),
        (f'{MODULE} required password="hunter2;', "stand in quotes"),
        (f'{MODULE} required password="hunter\n2";', "stand in quotes"),
        (f"{MODULE} required; {MODULE} required;", "only one login module"),
        ("hunter2" * MAX_CHARACTERS, "too long"),
    ],
)
def test_what_is_no_login_module(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason) as refused:
        parse_jaas(text)
    assert "hunter" not in str(refused.value)


def test_no_value_is_in_its_repr() -> None:
    assert "hunter" not in repr(parse_jaas(f'{MODULE} required password="hunter2";'))
