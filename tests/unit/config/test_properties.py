"""The syntax of .properties files, as Java reads it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraft.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("# a=1\n! b=2\n   # c=3\n\n  d=4", {"d": "4"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=one,\\\n    two,\\\n    three", {"a": "one,two,three"}),
        ("a=1\\\n# still the value", {"a": "1# still the value"}),
        ("a=ends in two\\\\\nb=2", {"a": "ends in two\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=C:\\\\kafka\\tlogs", {"a": "C:\\kafka\tlogs"}),
        ("a=\\u00e9\\n\\r\\f\\z", {"a": "\u00e9\n\r\fz"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        (
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
        ),
    ],
)
def test_lines_read_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text).values == values


def test_the_last_of_two_lines_counts_and_is_reported() -> None:
    parsed = parse_properties("a=1\nb=2\na=3\na=4")
    assert parsed.values == {"a": "4", "b": "2"}
    assert parsed.repeated == ("a",)


@pytest.mark.parametrize("escape", ["\\u12", "\\uzzzz", "\\u 123"])
def test_a_broken_escape_names_its_line(escape: str) -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties(f"a=1\nb={escape}")


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xFFFF), min_size=1), st.text(st.characters(max_codepoint=0xFFFF))
    )
)
def test_everything_can_be_written_in_escapes(values: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in values.items())
    assert parse_properties(text).values == values


@given(st.text() | st.text(st.sampled_from("\\uu01aF=: \t\r\nxé")))
@example("a=1\nb=\\u00g1")
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        parse_properties(text)
    except PropertiesError as error:
        assert str(error).startswith("line ")  # noqa: PT017  # either outcome is right
