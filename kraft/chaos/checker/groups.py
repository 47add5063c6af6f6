"""The judge of what members of groups were told. Oracles: two-owners, both-own, unmade-commit, lost-commit.

- two-owners: in one generation (KIP-848: at one member epoch) of a group a partition is told to one member only.
- both-own (KIP-848): when a member was told a partition, no other still holds it. It does if a later question of it
  was answered, by a coordinator at least as new, and it held the partition on: a member that is gone, or was fenced and
  does not know it yet, never comes to that.
- unmade-commit: a fetch tells what somebody committed for that group and that partition of that very topic, or nothing.
- lost-commit: a fetch tells a commit no older, in the order of the log, than any that was known when it began, by an
  answer to its sender or to another fetch. A coordinator that was deposed and does not know it answers from what it
  has, as Kafka's does; so only commits of leader epochs up to its own are demanded. A topic that is gone takes its
  offsets along.

Where the group's partition lost committed records with an excuse nothing but unmade-commit is demanded. Pure, about
linear in the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kraft.chaos.checker.report import Anomaly
from kraft.chaos.group_history import (
    NO_EPOCH,
    GroupAction,
    GroupHistory,
    GroupOperation,
    GroupProtocol,
    LogPlace,
)
from kraft.chaos.history import OperationStatus, TopicKey

TWO_OWNERS, BOTH_OWN = "two-owners", "both-own"
UNMADE_COMMIT, LOST_COMMIT = "unmade-commit", "lost-commit"
EXAMPLES_MAX = 3


class GroupReport(NamedTuple):
    """The verdict on the groups of a run."""

    anomalies: list[Anomaly]
    excused: list[str]
    counts: Mapping[str, int]


class _Known(NamedTuple):
    """A partition's offset in a group."""

    group: str
    key: TopicKey


@dataclass
class _Findings:
    is_excused: Callable[[str], bool]
    found: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    excused: dict[str, None] = field(default_factory=dict)

    def add(self, oracle: str, group: str, text: str, *, may_be_excused: bool = True) -> None:
        if may_be_excused and self.is_excused(group):
            self.excused[f"{oracle}: group {group}: {text}"] = None
        else:
            self.found.setdefault((oracle, group), []).append(text)

    def anomalies(self) -> Iterator[Anomaly]:
        for (oracle, group), texts in self.found.items():
            more = f"; and {len(texts) - EXAMPLES_MAX} more" if len(texts) > EXAMPLES_MAX else ""
            yield Anomaly(oracle, f"group {group}: {'; '.join(texts[:EXAMPLES_MAX])}{more}", ())


def check_groups(
    history: GroupHistory,
    places: Mapping[str, LogPlace],
    *,
    gone: Collection[bytes] = (),
    is_excused: Callable[[str], bool] = lambda group: False,
) -> GroupReport:
    """`places`: where the commits lie that stand at the end, by their texts; `gone`: ids of topics that were deleted;
    `is_excused`: whether the group's partition lost committed records, and may."""
    findings = _Findings(is_excused)
    answered = [one for one in history.operations if one.status is OperationStatus.OK]
    counts: Counter[str] = Counter(
        {f"groups: {action.value} judged": 0 for action in GroupAction},
    )
    counts.update(f"groups: {one.action.value} judged" for one in answered)
    _judge_owners(answered, findings)
    _judge_holders(answered, findings)
    _judge_fetches(history, answered, places, gone, findings)
    return GroupReport(list(findings.anomalies()), list(findings.excused), dict(counts))


# -- owners


def _judge_owners(answered: list[GroupOperation], findings: _Findings) -> None:
    owners: dict[tuple[str, GroupProtocol, int, TopicKey], str] = {}
    for one in answered:
        if one.action is not GroupAction.ASSIGNED:
            continue
        sender = one.sender
        for key in one.owned:
            place = (sender.group, sender.protocol, sender.generation, key)
            owner = owners.setdefault(place, sender.member_id)
            if owner != sender.member_id:
                findings.add(
                    TWO_OWNERS,
                    sender.group,
                    f"in generation {sender.generation} {_shown(key)} was told to {owner} and to {sender.member_id}",
                )


class _Holding(NamedTuple):
    """What a member holds of a partition: since which answer, and the newest that it was told of it."""

    member_id: str
    told: int
    epoch: int


def _judge_holders(answered: list[GroupOperation], findings: _Findings) -> None:
    """In the order of answers: who holds a partition since when, and whether an older holder was confirmed later."""
    holds: dict[_Known, dict[str, _Holding]] = {}
    held: dict[tuple[str, str], set[TopicKey]] = {}
    for one in sorted(answered, key=lambda one: one.answered):
        if one.action is not GroupAction.ASSIGNED or one.sender.protocol is not GroupProtocol.CONSUMER:
            continue
        group, member_id = one.sender.group, one.sender.member_id
        before = held.get((group, member_id), set())
        for key in before - set(one.owned):
            holds[_Known(group, key)].pop(member_id, None)
        for key in one.owned:
            holders = holds.setdefault(_Known(group, key), {})
            if member_id not in holders:
                holders[member_id] = _Holding(member_id, one.answered, one.answer_epoch)
            for other in holders.values():
                if (
                    other.member_id != member_id
                    and other.told < one.asked
                    and holders[member_id].told < other.told
                    and other.epoch != NO_EPOCH
                    and one.epoch >= other.epoch
                ):
                    text = f"{_shown(key)} was told to {other.member_id}, and {member_id} held it on"
                    findings.add(BOTH_OWN, group, text)
        held[group, member_id] = set(one.owned)


# -- offsets


def _judge_fetches(
    history: GroupHistory,
    answered: list[GroupOperation],
    places: Mapping[str, LogPlace],
    gone: Collection[bytes],
    findings: _Findings,
) -> None:
    """In the order of questions and answers."""
    events = [(one.answered, True, one) for one in answered if one.key is not None]
    events += [(one.asked, False, one) for one in answered if one.action is GroupAction.FETCH]
    events.sort(key=lambda event: event[0])
    known: dict[_Known, dict[int, LogPlace]] = {}
    """By leader epoch, the newest commit of it that anybody was told of."""
    floors: dict[int, LogPlace] = {}
    """By the question of a fetch."""
    for _, is_answer, one in events:
        assert one.key is not None, "they were chosen by it"
        newest = known.setdefault(_Known(one.sender.group, one.key), {})
        if not is_answer:
            demanded = [place for epoch, place in newest.items() if epoch <= one.epoch]
            if demanded:
                floors[one.asked] = max(demanded)
            continue
        place = places.get(one.tag)
        if one.action is GroupAction.FETCH:
            _judge_fetch(one, history.commits.get(one.tag), place, floors.get(one.asked), gone, findings)
        if place is not None and place > newest.get(place.epoch, LogPlace(-1, -1)):
            newest[place.epoch] = place


def _judge_fetch(
    fetch: GroupOperation,
    commit: GroupOperation | None,
    place: LogPlace | None,
    floor: LogPlace | None,
    gone: Collection[bytes],
    findings: _Findings,
) -> None:
    assert fetch.key is not None, "it is of a partition"
    group, where = fetch.sender.group, _shown(fetch.key)
    if fetch.offset >= 0 and (
        commit is None or (commit.sender.group, commit.key, commit.offset) != (group, fetch.key, fetch.offset)
    ):
        made = "nobody made" if commit is None else f"was of {commit.offset} for {_shown(commit.key)}"
        text = f"a fetch for {where} told offset {fetch.offset}, commit {fetch.tag!r}, which {made}"
        findings.add(UNMADE_COMMIT, group, text, may_be_excused=False)
    elif floor is not None and fetch.key[0] not in gone and (place is None or place < floor):
        told = (
            f"commit {fetch.tag}, at offset {place.offset} of the log"
            if place
            else f"{fetch.tag or 'nothing'}"
        )
        text = (
            f"a fetch for {where} told {told}, and a commit at offset {floor.offset} was known when it began"
        )
        findings.add(LOST_COMMIT, group, text)


def _shown(key: TopicKey | None) -> str:
    return "no partition" if key is None else f"{key[0].hex()[:8]}-{key[1]}"
