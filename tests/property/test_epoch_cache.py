"""The epoch cache against the list of every record's epoch; following always ends in equal logs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leader_epoch.checkpoint import decode_checkpoint, encode_checkpoint
from leader_epoch.epoch_cache import EpochCache
from leader_epoch.truncation import truncation_offset

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), st.integers(1, 3)),
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("truncate"), st.integers(0, 8)),
        st.tuples(st.just("start"), st.integers(0, 5)),
    ),
    max_size=40,
)


class Model:
    """Epoch by offset; epochs without a record at the end are what was begun but not written."""

    def __init__(self) -> None:
        self.cache = EpochCache()
        self.start = 0
        self.records: list[int] = []
        self.epoch = 0
        self.begun: int | None = None

    def play(self, action: str, amount: int) -> None:
        if action == "epoch":
            self.epoch += amount
            self.begun = self.epoch
            self.cache.assign(self.epoch, len(self.records))
        elif action == "append":
            self.cache.assign(self.epoch, len(self.records))
            self.records += [self.epoch] * amount
            self.begun = None
        elif action == "truncate":
            end = max(self.start, len(self.records) - amount)
            del self.records[end:]
            self.cache.truncate_from_end(end)
            self.begun = None
        else:
            self.start = min(len(self.records), self.start + amount)
            self.cache.truncate_from_start(self.start)

    def expected_entries(self) -> list[tuple[int, int]]:
        entries: list[tuple[int, int]] = []
        for offset in range(self.start, len(self.records)):
            if not entries or entries[-1][0] != self.records[offset]:
                entries.append((self.records[offset], offset))
        if self.begun is not None and (not entries or entries[-1][0] != self.begun):
            entries.append((self.begun, len(self.records)))
        return entries


@given(STEPS)
def test_cache_is_what_the_records_say(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for action, amount in steps:
        model.play(action, amount)
        entries = list(model.cache.entries)
        assert model.cache.latest_epoch == (entries[-1].epoch if entries else None)
        if model.start < len(model.records):
            assert entries == model.expected_entries()
            for offset in range(model.start, len(model.records)):
                assert model.cache.epoch_for_offset(offset) == model.records[offset]
        for before, after in pairwise(entries):
            assert before[0] < after[0]
            assert before[1] < after[1]
        assert list(decode_checkpoint(encode_checkpoint(model.cache.entries))) == entries


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.booleans()), max_size=12))
def test_following_makes_logs_equal(history: list[tuple[int, int, bool]]) -> None:
    """Three replicas; each turn one leads in a new epoch and appends, and perhaps another follows it."""
    logs: list[list[int]] = [[], [], []]
    caches = [EpochCache(), EpochCache(), EpochCache()]
    for epoch, (leader, count, follows) in enumerate(history):
        caches[leader].assign(epoch, len(logs[leader]))
        logs[leader] += [epoch] * count
        if follows:
            _follow(logs, caches, (leader + 1) % 3, leader)
    if history:
        leader = history[-1][0]
        for follower in range(3):
            if follower != leader:
                _follow(logs, caches, follower, leader)
                assert logs[follower] == logs[leader]


def _follow(logs: list[list[int]], caches: list[EpochCache], follower: int, leader: int) -> None:
    for _ in range(20):
        asked = caches[follower].latest_epoch
        if asked is None:
            break
        answer = caches[leader].end_offset_for(asked, len(logs[leader]))
        if answer[0] == asked and answer[1] >= len(logs[follower]):
            break
        common = _common_prefix(logs[follower], logs[leader])
        step = truncation_offset(
            caches[follower], answer, log_end_offset=len(logs[follower]), high_watermark=0
        )
        assert step.offset >= min(common, len(logs[follower])), "cut what both have"
        del logs[follower][step.offset :]
        caches[follower].truncate_from_end(step.offset)
    else:
        raise AssertionError("no end to truncating")
    for epoch in logs[leader][len(logs[follower]) :]:
        caches[follower].assign(epoch, len(logs[follower]))
        logs[follower].append(epoch)


def _common_prefix(one: list[int], other: list[int]) -> int:
    for offset, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return offset
    return min(len(one), len(other))
