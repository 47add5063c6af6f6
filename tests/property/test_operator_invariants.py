"""Random lives of a cluster with operators in it: reassignments, elections, unregistration, rebalancing.

On top of the promises of `test_controller_invariants`: a reassignment ends exactly at its target or, if it
is cancelled, exactly where it began, also when another one superseded it; and replicas change by nothing
else. Every committed entry is judged by itself, so that nothing hides between two steps.
"""

from __future__ import annotations

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from quorum.controller.proposal import AppliedProposal
from quorum.controller.reassignment import origin, under_way
from quorum.metadata.image import MetadataImage, PartitionImage
from quorum.rpc import messages as m
from tests.property.test_controller_invariants import BROKERS, ControllerLife, broker_ids
from tests.support.controller_world import registration
from tests.support.examples import examples

picks = st.integers(0, 15)
replicas = st.lists(broker_ids, unique=True, min_size=1, max_size=4)


class OperatedLife(ControllerLife):
    def __init__(self) -> None:
        super().__init__()
        self.wanted: set[tuple[int, ...]] = set()
        self.base: dict[tuple[bytes, int], tuple[int, ...]] = {}
        commit = self.world.append

        def judged(data: bytes | None) -> AppliedProposal | None:
            before = self.world.image
            applied = commit(data)
            self.judge(before, self.world.image)
            return applied

        self.world.append = judged  # type: ignore[method-assign]

    @initialize()
    def begin(self) -> None:
        super().begin()
        for name in ("a", "b"):
            self.ask(m.CreateTopicsRequest((m.NewTopic(name, 2, 2),)))

    def some_partition(self, pick: int) -> tuple[str, int]:
        """One that exists, if there is one."""
        image = self.world.controller.image
        names = [
            (topic.name, number) for topic in image.topics.values() for number in range(len(topic.partitions))
        ]
        return sorted(names)[pick % len(names)] if names else ("a", 0)

    # Operators

    @rule(pick=picks, to=replicas, any_size=st.booleans())
    def reassign(self, pick: int, to: list[int], any_size: bool) -> None:
        self.wanted.add(tuple(to))
        self.ask_for(pick, tuple(to), any_size)

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        under_way = self.world.controller._index.reassigning() if self.world.controller.is_active else []
        if under_way:
            topic_id, number = under_way[pick % len(under_way)]
            name = self.world.controller.image.topics[topic_id].name
            item = m.PartitionReassignment(number)
            self.ask(m.AlterPartitionReassignmentsRequest((m.TopicReassignments(name, (item,)),)))
        else:
            self.ask_for(pick, None, True)

    def ask_for(self, pick: int, to: tuple[int, ...] | None, any_size: bool) -> None:
        name, number = self.some_partition(pick)
        item = m.PartitionReassignment(number, to)
        self.ask(m.AlterPartitionReassignmentsRequest((m.TopicReassignments(name, (item,)),), any_size))

    @rule(pick=picks, members=st.just(set(BROKERS)) | st.sets(broker_ids))
    def propose_isr(self, pick: int, members: set[int]) -> None:
        """Once everybody is well, a leader proposes all of its replicas, or some of them."""
        self.everybody_is_well()
        name, number = self.some_partition(pick)
        active = {b.broker_id for b in self.world.controller.image.brokers.values() if b.is_active}
        self.alter_partition(name, members & active, number, (0, 0, 0))

    @rule()
    def everybody_is_well(self) -> None:
        for broker_id in BROKERS:
            if broker_id not in self.world.controller.image.brokers:
                self.ask(registration(broker_id))
            self.beat(broker_id, 0, (False, False))
            self.beat(broker_id, 0, (False, False))

    @rule(pick=picks)
    def list_reassignments(self, pick: int) -> None:
        name, number = self.some_partition(pick)
        self.ask(m.ListPartitionReassignmentsRequest((m.TopicPartitions(name, (number,)),)))

    @rule(kind=st.sampled_from([0, 1, 2]), pick=st.none() | picks)
    def elect(self, kind: int, pick: int | None) -> None:
        chosen = None if pick is None else self.some_partition(pick)
        self.ask(m.ElectLeadersRequest(kind, None if chosen is None else (chosen, chosen)))

    @rule(broker_id=broker_ids)
    def unregister(self, broker_id: int) -> None:
        self.ask(m.UnregisterBrokerRequest(broker_id))

    @rule(value=st.sampled_from(["1", "2", "3", None]))
    def min_insync_replicas_of_all(self, value: str | None) -> None:
        change = m.ConfigChange("min.insync.replicas", value, m.SET if value else m.DELETE)
        self.ask(m.AlterConfigsRequest((m.ConfigResourceChange("broker", "", (change,)),)))

    @rule(value=st.sampled_from(["2", None]), own=st.sampled_from(["2", None]), pick=picks)
    def min_insync_replicas_of_all_and_of_one(self, value: str | None, own: str | None, pick: int) -> None:
        """In one request: which of them is effective changes with it."""
        resources = (("broker", "", value), ("topic", self.some_partition(pick)[0], own))
        self.ask(
            m.AlterConfigsRequest(
                tuple(
                    m.ConfigResourceChange(
                        kind,
                        name,
                        (m.ConfigChange("min.insync.replicas", text, m.SET if text else m.DELETE),),
                    )
                    for kind, name, text in resources
                )
            )
        )

    @rule()
    def leaders_are_rebalanced(self) -> None:
        for broker_id in sorted(self.world.controller.image.brokers):
            self.beat(broker_id, 0, (False, False))
        self.world.advance(300_000)

    # Promises

    def judge(self, before: MetadataImage, after: MetadataImage) -> None:
        """One committed entry, partition by partition."""
        for topic_id, topic in after.topics.items():
            old_topic = before.topics.get(topic_id)
            for number, new in enumerate(topic.partitions):
                known = old_topic is not None and number < len(old_topic.partitions)
                old = old_topic.partitions[number] if old_topic is not None and known else None
                self.judge_partition((topic_id, number), old, new)

    def judge_partition(
        self, key: tuple[bytes, int], old: PartitionImage | None, new: PartitionImage
    ) -> None:
        if old is None:
            self.base[key] = new.replicas
            return
        if new.is_reassigning:
            assert set(origin(new)) == set(self.base[key]), "the way back is lost"
            assert under_way(new).target in self.wanted
            assert new.replicas == (*under_way(new).target, *new.removing_replicas)
            assert not set(under_way(new).target) <= set(new.isr), "it is complete and goes on"
            return
        if new.replicas != old.replicas or old.is_reassigning:
            if new.replicas in self.wanted:
                event("a reassignment is completed")
                assert set(new.isr) | set(new.elr) <= set(new.replicas)
            else:
                assert old.is_reassigning
                assert set(new.replicas) == set(self.base[key]), "cancelled to somewhere else"
                event("a reassignment is cancelled")
        self.base[key] = new.replicas


TestOperatedLife = OperatedLife.TestCase
TestOperatedLife.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
