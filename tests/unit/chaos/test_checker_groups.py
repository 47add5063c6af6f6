"""The judge of groups, on histories with a planted anomaly each, and on those that only look like one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kraft.chaos.checker import check_groups
from kraft.chaos.group_history import (
    NO_EPOCH,
    GroupAction,
    GroupHistory,
    GroupOperation,
    GroupProtocol,
    LogPlace,
    Sender,
)
from kraft.chaos.history import OperationStatus, TopicKey

TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
P0, P1, P2 = ((TOPIC_ID, number) for number in range(3))
OK = OperationStatus.OK


@dataclass
class Story:
    """A history told step by step, and the log that it led to."""

    protocol: GroupProtocol = GroupProtocol.CLASSIC
    history: GroupHistory = field(default_factory=GroupHistory)
    places: dict[str, LogPlace] = field(default_factory=dict)

    def sender(self, member: str, generation: int, group: str = "g") -> Sender:
        return Sender(group, self.protocol, member, generation)

    def asks(self, member: str, generation: int, *, epoch: int = 0) -> GroupOperation:
        return self.history.ask(GroupAction.ASSIGNED, self.sender(member, generation), epoch)

    def assigned(self, member: str, generation: int, *owned: TopicKey, epoch: int = 0) -> None:
        self.history.answer(self.asks(member, generation, epoch=epoch), OK, epoch, owned=owned)

    def commits(
        self,
        tag: str,
        offset: int,
        *,
        at: int | None,
        epoch: int = 0,
        key: TopicKey = P0,
        is_answered: bool = True,
    ) -> None:
        """`at`: the offset of its record, if there is one."""
        commit = self.history.ask(
            GroupAction.COMMIT, self.sender("a", 1), epoch, key=key, offset=offset, tag=tag
        )
        if at is not None:
            self.places[tag] = LogPlace(at, epoch)
        if is_answered:
            self.history.answer(commit, OK, epoch)

    def fetch(self, *, epoch: int = 0, key: TopicKey = P0, member: str = "b") -> GroupOperation:
        return self.history.ask(GroupAction.FETCH, self.sender(member, 1), epoch, key=key)

    def tells(self, fetch: GroupOperation, offset: int, tag: str) -> None:
        self.history.answer(fetch, OK, fetch.epoch, offset=offset, tag=tag)

    def oracles(self, *, gone: tuple[bytes, ...] = (), excused: bool = False) -> list[str]:
        report = check_groups(self.history, self.places, gone=gone, is_excused=lambda group: excused)
        return [anomaly.oracle for anomaly in report.anomalies]


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def of_consumers() -> Story:
    return Story(GroupProtocol.CONSUMER)


# -- owners


def test_each_generation_may_have_other_owners(story):
    story.assigned("a", 1, P0, P1)
    story.assigned("b", 1, P2)
    story.assigned("a", 2, P2)
    story.assigned("b", 2, P0, P1)
    story.assigned("b", 2, P0, P1)
    assert story.oracles() == []


def test_two_members_of_one_generation_own_a_partition(story):
    story.assigned("a", 3, P0, P1)
    story.assigned("b", 3, P1)
    assert story.oracles() == ["two-owners"]
    assert story.oracles(excused=True) == []


def test_groups_do_not_share_generations(story):
    story.assigned("a", 1, P0)
    other = story.history.ask(GroupAction.ASSIGNED, story.sender("b", 1, group="h"), 0)
    story.history.answer(other, OK, 0, owned=[P0])
    assert story.oracles() == []


def test_a_partition_is_handed_over_after_it_was_given_up(of_consumers):
    of_consumers.assigned("a", 1, P0, P1)
    of_consumers.assigned("a", 1, P0)
    of_consumers.assigned("b", 2, P1)
    of_consumers.assigned("a", 2, P0)
    of_consumers.assigned("b", 2, P1)
    assert of_consumers.oracles() == []


def test_the_former_owner_holds_on(of_consumers):
    of_consumers.assigned("a", 1, P0, P1)
    of_consumers.assigned("b", 2, P1)
    of_consumers.assigned("a", 1, P0, P1)
    assert of_consumers.oracles() == ["both-own"]


def test_the_former_owner_had_asked_before(of_consumers):
    of_consumers.assigned("a", 1, P0)
    asked = of_consumers.asks("a", 1)
    of_consumers.assigned("b", 2, P0)
    of_consumers.history.answer(asked, OK, 0, owned=[P0])
    assert of_consumers.oracles() == []


def test_a_deposed_coordinator_confirms_what_it_knew(of_consumers):
    of_consumers.assigned("a", 1, P0, epoch=4)
    of_consumers.assigned("b", 2, P0, epoch=5)
    of_consumers.assigned("a", 1, P0, epoch=4)
    assert of_consumers.oracles() == []
    of_consumers.assigned("a", 1, P0, epoch=5)
    assert of_consumers.oracles() == ["both-own"]


def test_an_owner_that_was_fenced_and_comes_back_is_the_newer_one(of_consumers):
    of_consumers.assigned("a", 1, P0)
    of_consumers.assigned("b", 2, P0)
    of_consumers.assigned("a", 1)
    of_consumers.assigned("a", 3, P0)
    of_consumers.assigned("b", 2)
    of_consumers.assigned("a", 3, P0)
    assert of_consumers.oracles() == []


# -- offsets


def test_the_last_commit_is_told(story):
    story.commits("c1", 5, at=10)
    story.commits("c2", 3, at=12)
    story.tells(story.fetch(), 3, "c2")
    assert story.oracles() == []


@pytest.mark.parametrize(("offset", "tag"), [(5, "c1"), (-1, "")])
def test_an_older_commit_or_none_is_told(story, offset, tag):
    story.commits("c1", 5, at=10)
    story.commits("c2", 6, at=12)
    story.tells(story.fetch(), offset, tag)
    assert story.oracles() == ["lost-commit"]
    assert story.oracles(excused=True) == []


def test_a_commit_that_was_not_answered_may_be_told_and_then_stays(story):
    story.commits("c1", 5, at=10)
    story.commits("c2", 6, at=12, is_answered=False)
    story.tells(story.fetch(), 5, "c1")
    story.tells(story.fetch(), 6, "c2")
    assert story.oracles() == []
    story.tells(story.fetch(), 5, "c1")
    assert story.oracles() == ["lost-commit"]


def test_what_became_known_after_the_question_need_not_be_told(story):
    story.commits("c1", 5, at=10)
    fetch = story.fetch()
    story.commits("c2", 6, at=12)
    story.tells(fetch, 5, "c1")
    assert story.oracles() == []


@pytest.mark.parametrize(
    ("epoch", "oracles"), [(NO_EPOCH, []), (0, []), (1, ["lost-commit"]), (2, ["lost-commit"])]
)
def test_a_coordinator_knows_the_commits_of_its_epoch_and_of_earlier_ones(story, epoch, oracles):
    story.commits("c1", 5, at=10, epoch=0)
    story.commits("c2", 6, at=12, epoch=1)
    story.tells(story.fetch(epoch=epoch), 5, "c1")
    assert story.oracles() == oracles


def test_a_topic_that_is_gone_takes_its_offsets_along(story):
    story.commits("c1", 5, at=10)
    story.tells(story.fetch(), -1, "")
    assert story.oracles(gone=(TOPIC_ID,)) == []
    assert story.oracles() == ["lost-commit"]


@pytest.mark.parametrize(
    ("key", "offset", "tag"),
    [((OTHER_ID, 0), 5, "c1"), (P1, 5, "c1"), (P0, 6, "c1"), (P0, 5, "nobody's")],
    ids=["of the topic before", "of another partition", "of another offset", "of nobody"],
)
def test_what_nobody_committed_is_never_told(story, key, offset, tag):
    story.commits("c1", 5, at=10)
    story.tells(story.fetch(key=key), offset, tag)
    assert story.oracles(gone=(TOPIC_ID,), excused=True) == ["unmade-commit"]


def test_all_that_was_judged_is_counted(story):
    story.assigned("a", 1, P0)
    story.commits("c1", 5, at=10)
    story.commits("c2", 6, at=None, is_answered=False)
    story.tells(story.fetch(), 5, "c1")
    assert check_groups(story.history, story.places).counts == {
        "groups: assigned judged": 1,
        "groups: commit judged": 1,
        "groups: fetch of offsets judged": 1,
    }
