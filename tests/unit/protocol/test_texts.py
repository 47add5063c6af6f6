"""What clients write, cut and made harmless."""

from __future__ import annotations

from kraft.protocol.texts import MESSAGE_CHARACTERS, printable, shortened


def test_a_long_text_is_cut_and_says_so() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
    assert shortened("t" * 249) == "t" * 249


def test_a_line_of_a_log_stays_one() -> None:
    assert printable("größer") == "größer"
    assert printable("t\n2026 [error] forged\0") == r"'t\n2026 [error] forged\x00'"
    assert len(printable("x" * 100_000)) == MESSAGE_CHARACTERS
