"""Plays the stories under scripts/: what groups commit, fetch and lose.

    topic NAME PARTITIONS              a new topic
    delete-topic NAME                  its tombstones wait for `sweep`
    group ID [type= state= protocol= members=M:GENERATION,... reads=TOPIC,... empty-since=now]
    commit ID PLACE=OFFSET[/METADATA]... [version= member= generation= retention= epoch=]
    fetch ID PLACE...|all [version= member= generation= stable]
    txn-commit ID PLACE=OFFSET... producer=P [member= generation= epoch=]
    end P commit|abort                 the marker of P's transaction
    delete ID PLACE...                 OffsetDelete
    delete-group ID
    wait 7d | 5m | ...

A place is TOPIC-PARTITION. Every record that is written is shown; after every command the log, loaded anew, must give
the same offsets.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.coordinator.groups.context import GroupType
from kraft.coordinator.groups.offset_fetch import asked_groups, merged
from kraft.coordinator.groups.offset_records import decode_key, decode_value
from kraft.coordinator.shard import Decisions, Record
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas import group_offsets as s
from tests.support.golden import check_script, scripts_beside
from tests.support.offsets_world import FakeGroup, OffsetsWorld

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _ms(text: str) -> int:
    unit = text.lstrip("-0123456789")
    return int(text.removesuffix(unit)) * _UNITS_MS[unit]


def _place(text: str) -> tuple[str, int]:
    name, _, index = text.rpartition("-")
    return name, int(index)


class Story:
    """Every command gives the lines that it caused."""

    def __init__(self) -> None:
        self.world = OffsetsWorld()

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(
            word.split("=", 1) for word in words if "=" in word and not word.partition("=")[0][-1].isdigit()
        )
        arguments = [word for word in words if word.partition("=")[0] not in options]
        lines = list(getattr(self, "do_" + command.replace("-", "_"))(arguments, options) or [])
        self.world.check()
        return lines

    # The world around

    def do_settings(self, arguments: list[str], options: dict[str, str]) -> None:
        names = {
            "metadata-max": "offset_metadata_max_bytes",
            "record-max": "record_max_bytes",
            "retention-ms": "offsets_retention_ms",
        }
        changed = {names[name]: int(value) for name, value in options.items()}
        self.world = OffsetsWorld(replace(self.world.settings, **changed))

    def do_topic(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.topics.make(arguments[0], int(arguments[1]))

    def do_delete_topic(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.delete_topic(arguments[0])

    def do_miss_deletion_of_topic(self, arguments: list[str], options: dict[str, str]) -> None:
        """While no shard was loaded here."""
        del self.world.topics.topics[arguments[0]]

    def do_wait(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.wait(_ms(arguments[0]))

    def do_group(self, arguments: list[str], options: dict[str, str]) -> None:
        group = FakeGroup(arguments[0], GroupType(options.get("type", "classic")))
        group.protocol_type = options.get("protocol", "")
        members = [member.split(":") for member in options.get("members", "").split(",") if member]
        group.members = {member: int(generation) for member, generation in members}
        group.state = options.get("state", "Stable" if members else "Empty")
        reads = options.get("reads", "")
        group.reads = None if reads == "unknown" else set(filter(None, reads.split(",")))
        if options.get("empty-since") == "now":
            group.empty_since_ms = self.world.now.wall_ms
        self.world.groups[group.group_id] = group

    # Requests

    def do_commit(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        version = int(options.get("version", "9"))
        request = s.OffsetCommitRequest(arguments[0])
        request.generation_id_or_member_epoch = int(options.get("generation", "-1"))
        request.member_id = options.get("member", "")
        if "retention" in options:
            request.retention_time_ms = _ms(options["retention"])
        for word in arguments[1:]:
            place, _, what = word.partition("=")
            name, index = _place(place)
            offset, _, metadata = what.partition("/")
            topic = s.OffsetCommitRequestTopic(*self._named(name, version))
            epoch = int(options.get("epoch", "-1"))
            topic.partitions = [s.OffsetCommitRequestPartition(index, int(offset), epoch, metadata or None)]
            request.topics.append(topic)
        had_group = request.group_id in self.world.groups
        response, records, is_let_in = self.world.commit(request, version)
        lines = self._errors(response.topics)
        if not had_group and request.group_id in self.world.groups:
            lines.append(f"makes group {request.group_id}")
        if is_let_in and request.member_id:
            lines.append(f"{request.member_id}'s session begins anew")
        return lines + self._shown(records)

    def do_fetch(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        version = int(options.get("version", "9"))
        request = s.OffsetFetchRequest(require_stable="stable" in arguments)
        places = [_place(word) for word in arguments[1:] if word not in ("all", "stable")]
        if version < 8:
            request.group_id = arguments[0]
            request.topics = [s.OffsetFetchRequestTopic(name, [index]) for name, index in places]
            if "all" in arguments:
                request.topics = None
        else:
            group = s.OffsetFetchRequestGroup(
                arguments[0], options.get("member"), int(options.get("generation", "-1"))
            )
            group.topics = [
                s.OffsetFetchRequestTopics(*self._named(name, version), [index]) for name, index in places
            ]
            if "all" in arguments:
                group.topics = None
            request.groups = [group]
        parts = [
            self.world.offsets.fetch_group(
                part, version, self.world.groups.get(part.group_id), request.require_stable
            )
            for part in asked_groups(request, version)
        ]
        response = merged(request, version, parts)
        answer: Any = response.groups[0] if version >= 8 else response
        lines = [ErrorCode(answer.error_code).name] if answer.error_code else []
        for topic in answer.topics:
            lines += [f"{self._name(topic)}-{p.partition_index}: {_fetched(p)}" for p in topic.partitions]
        return lines or ["nothing"]

    def do_txn_commit(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        request = s.TxnOffsetCommitRequest("a transaction", arguments[0], int(options["producer"]), 0)
        request.generation_id = int(options.get("generation", "-1"))
        request.member_id = options.get("member", "")
        for word in arguments[1:]:
            place, _, what = word.partition("=")
            name, index = _place(place)
            offset, _, metadata = what.partition("/")
            part = s.TxnOffsetCommitRequestPartition(
                index, int(offset), int(options.get("epoch", "-1")), metadata
            )
            request.topics.append(s.TxnOffsetCommitRequestTopic(name, [part]))
        had_group = request.group_id in self.world.groups
        response, records = self.world.commit_in_transaction(request)
        made = [f"makes group {request.group_id}"] * (not had_group and request.group_id in self.world.groups)
        lines = [
            f"{topic.name}-{part.partition_index}: {ErrorCode(part.error_code).name}"
            for topic in response.topics
            for part in topic.partitions
        ]
        return lines + made + self._shown(records)

    def do_end(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        about, records = self.world.end_transaction(int(arguments[0]), arguments[1] == "commit")
        return [f"marks {arguments[1]}: {', '.join(sorted(about)) or 'nothing'}", *self._shown(records)]

    def do_delete_group(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        decisions = Decisions()
        self.world.offsets.delete_group(arguments[0], decisions)
        self.world.groups.pop(arguments[0], None)
        return self._shown(self.world.take(decisions))

    def do_delete(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        request = s.OffsetDeleteRequest(arguments[0])
        for name, index in map(_place, arguments[1:]):
            partitions = [s.OffsetDeleteRequestPartition(index)]
            request.topics.append(s.OffsetDeleteRequestTopic(name, partitions))
        response, records = self.world.delete(request)
        if response.error_code:
            return [ErrorCode(response.error_code).name]
        return self._errors(response.topics) + self._shown(records)

    # What goes on by itself

    def do_sweep(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return self._shown(self.world.drop_dead()) or ["nothing is dead"]

    def do_expire(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        records, gone = self.world.expire()
        for group_id in gone:
            del self.world.groups[group_id]
        return self._shown(records) + [f"{group_id} may go" for group_id in gone] or ["nothing expires"]

    def do_load(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.world.load()
        return [f"{self.world.offsets.count} offsets of {', '.join(sorted(self.world.offsets.group_ids()))}"]

    # Words

    def _named(self, name: str, version: int) -> tuple[str, bytes]:
        if version < 10:
            return name, bytes(16)
        topic = self.world.topics.named(name)
        return "", b"\xff" * 16 if topic is None else topic.topic_id

    def _name(self, topic: Any) -> str:
        if topic.name:
            return str(topic.name)
        known = self.world.topics.with_id(topic.topic_id)
        return "?" if known is None else known.name

    def _errors(self, topics: list[Any]) -> list[str]:
        return [
            f"{self._name(topic)}-{part.partition_index}: {ErrorCode(part.error_code).name}"
            for topic in topics
            for part in topic.partitions
        ]

    def _shown(self, records: list[Record]) -> list[str]:
        lines = []
        for record in records:
            place = decode_key(record.key)
            what = "tombstone"
            if record.value is not None:
                value = decode_value(record.value, {})
                version = int.from_bytes(record.value[:2], "big")
                what = f"{value.offset}, version {version}"
            lines.append(f"writes {place.group_id} {place.topic}-{place.partition}: {what}")
        return lines


def _fetched(part: Any) -> str:
    words = [str(part.committed_offset)]
    if part.committed_leader_epoch >= 0:
        words.append(f"epoch {part.committed_leader_epoch}")
    if part.metadata:
        words.append(f"'{part.metadata}'")
    if part.error_code:
        words.append(ErrorCode(part.error_code).name)
    return " ".join(words)


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    check_script(path, Story().play)
