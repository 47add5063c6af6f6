"""The topics that a name, an expression, or nothing chooses."""

from __future__ import annotations

import pytest

from kraft.cli.topics.names import TopicChoice
from kraft.protocol.schemas.metadata import MetadataResponseTopic
from kraft.user_error import EXIT_USAGE, UserError

TOPICS = [MetadataResponseTopic(name=name) for name in ("orders.us", "orders", "orders-eu", "xorders")]


def chosen(text: str | None) -> list[str | None]:
    return [topic.name for topic in TopicChoice(text).among(TOPICS)]


@pytest.mark.parametrize("name", ["orders", "orders.us", "a_b-c.9", "späti"])
def test_a_name_is_asked_for_and_has_to_be_there(name: str) -> None:
    choice = TopicChoice(name)
    assert (choice.asked, choice.is_one, choice.is_all) == ([name], True, False)


def test_an_expression_matches_whole_names() -> None:
    assert chosen("orders.*") == ["orders", "orders-eu", "orders.us"]
    assert chosen("orders[.-].*") == ["orders-eu", "orders.us"]
    assert chosen("orders|xorders") == ["orders", "xorders"]
    assert chosen("order?") == []
    choice = TopicChoice("orders.*")
    assert (choice.asked, choice.is_one, choice.is_all) == (None, False, False)


def test_nothing_is_all() -> None:
    choice = TopicChoice(None)
    assert (choice.asked, choice.is_one, choice.is_all) == (None, False, True)
    assert len(chosen(None)) == len(TOPICS)


@pytest.mark.parametrize("text", ["[", "*", "a(b", "a\udcff"])
def test_what_is_neither_is_wrong_usage(text: str) -> None:
    with pytest.raises(UserError) as error:
        TopicChoice(text)
    assert error.value.exit_code == EXIT_USAGE
