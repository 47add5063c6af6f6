"""Reports of offline replicas: what the golden scripts do not tell of them."""

from __future__ import annotations

import pytest

from quorum.controller.cluster_index import ClusterIndex
from quorum.controller.proposal import Proposal
from quorum.errors import ControllerError
from quorum.metadata.record_codec import decode_records
from quorum.metadata.records import BrokerChange, PartitionChange, RegisterBroker
from quorum.rpc import messages as m
from quorum.rpc.messages import DAMAGED, DIRECTORY, MAX_REPLICA_STATES, ReplicaStateResult
from tests.support.controller_world import World, registration


def world_of(partitions: int, replicas: tuple[int, ...] = (1, 2)) -> tuple[World, bytes]:
    """Brokers 1 to 3, and a topic of so many partitions on the given ones; and its id."""
    world = World()
    world.start(1, 2, 3)
    chosen = tuple(m.PartitionAssignment(number, replicas) for number in range(partitions))
    world.call(m.CreateTopicsRequest((m.NewTopic("t", assignments=chosen),)))
    (topic_id,) = world.image.topics
    return world, topic_id


def report(
    world: World,
    broker_id: int,
    offline: tuple[tuple[bytes, int, str], ...] = (),
    online: tuple[tuple[bytes, int], ...] = (),
) -> tuple[ReplicaStateResult, ...]:
    epoch = world.image.brokers[broker_id].epoch
    response = world.call(m.ReplicaStatesRequest(broker_id, epoch, offline, online))
    assert isinstance(response, m.ReplicaStatesResponse)
    return response.partitions


def test_results_are_in_the_order_of_the_request() -> None:
    world, topic = world_of(3)
    offline = ((topic, 2, DAMAGED), (topic, 7, DAMAGED), (topic, 0, DIRECTORY))
    assert report(world, 1, offline, ((topic, 1), (b"?" * 16, 0))) == (
        ReplicaStateResult(topic, 2),
        ReplicaStateResult(topic, 7, "UNKNOWN_TOPIC_OR_PARTITION"),
        ReplicaStateResult(topic, 0),
        ReplicaStateResult(topic, 1),
        ReplicaStateResult(b"?" * 16, 0, "UNKNOWN_TOPIC_ID"),
    )
    marks = [partition.offline_replicas for partition in world.image.topics[topic].partitions]
    assert marks == [(1,), (), (1,)]


def test_a_replica_that_is_named_twice_is_what_it_was_named_first() -> None:
    world, topic = world_of(2)
    offline = ((topic, 0, DAMAGED), (topic, 0, DIRECTORY))
    errors = [result.error for result in report(world, 1, offline, ((topic, 0), (topic, 1)))]
    assert errors == ["NONE", "INVALID_REQUEST", "INVALID_REQUEST", "NONE"]
    assert world.image.topics[topic].partitions[0].offline_replicas == (1,)


@pytest.mark.parametrize("kind", ["online", "", "None", "DAMAGED"])
def test_kinds_that_nobody_knows_are_refused(kind: str) -> None:
    world, topic = world_of(1)
    before = len(world.proposed)
    (result,) = report(world, 1, ((topic, 0, kind),))
    assert result.error == "INVALID_REQUEST"
    assert len(world.proposed) == before


def test_a_request_is_bounded() -> None:
    world, topic = world_of(1)
    request = m.ReplicaStatesRequest(
        1, world.image.brokers[1].epoch, ((topic, 0, DAMAGED),) * MAX_REPLICA_STATES
    )
    response = world.call(request)
    assert isinstance(response, m.ReplicaStatesResponse)
    assert len(response.partitions) == MAX_REPLICA_STATES
    more = m.ReplicaStatesRequest(1, request.broker_epoch, request.offline, ((topic, 0),))
    error = world.call(more)
    assert isinstance(error, ControllerError)
    assert (error.code, "at most 10000" in error.message) == ("INVALID_REQUEST", True)


def test_a_report_is_answered_when_it_is_committed() -> None:
    world, topic = world_of(1)
    world.holding = True
    first = world.send(m.ReplicaStatesRequest(1, world.image.brokers[1].epoch, ((topic, 0, DAMAGED),)))
    repeated = world.send(m.ReplicaStatesRequest(1, world.image.brokers[1].epoch, ((topic, 0, DAMAGED),)))
    assert len(world.queue) == 1, "what is on its way is not proposed twice"
    assert world.outcome(first) is world.outcome(repeated) is None
    world.commit()
    assert world.outcome(first) is not None
    assert world.outcome(repeated) is not None


def test_all_marks_of_a_broker_go_in_one_proposal_with_its_registration() -> None:
    world, topic = world_of(2500)
    report(world, 1, tuple((topic, number, DIRECTORY) for number in range(2000)))
    assert all(p.leader == 2 for p in world.image.topics[topic].partitions[:2000])
    world.heartbeat(1, shutdown=True)
    world.heartbeat(1, shutdown=True)
    before = len(world.proposed)
    world.register(1, incarnation=2)
    (proposal,) = world.proposed[before:]
    *changes, last = decode_records(Proposal.decode(proposal.data).records)
    assert isinstance(last, RegisterBroker)
    assert [change for change in changes if isinstance(change, PartitionChange)] == [
        PartitionChange(topic, number, offline_replicas=()) for number in range(2000)
    ]


def test_a_registration_without_marks_and_memberships_is_one_record() -> None:
    world, _ = world_of(3)
    world.heartbeat(3, shutdown=True)
    world.heartbeat(3, shutdown=True)
    before = len(world.proposed)
    world.register(3, incarnation=2)
    (proposal,) = world.proposed[before:]
    (record,) = decode_records(Proposal.decode(proposal.data).records)
    assert isinstance(record, RegisterBroker)


def test_a_registration_that_is_repeated_keeps_what_was_reported_since() -> None:
    world, topic = world_of(1)
    report(world, 1, ((topic, 0, DAMAGED),))
    before = len(world.proposed)
    world.call(registration(1))
    assert len(world.proposed) == before
    assert world.image.topics[topic].partitions[0].offline_replicas == (1,)


def test_a_fenced_broker_reports_before_it_is_unfenced() -> None:
    world, topic = world_of(1)
    world.heartbeat(1, shutdown=True)
    world.heartbeat(1, shutdown=True)
    world.heartbeat(2, fence=True)
    world.register(1, incarnation=2)
    report(world, 1, ((topic, 0, DIRECTORY),))
    before = len(world.proposed)
    world.heartbeat(1)
    world.heartbeat(1)  # the first time, broker 2 might have been about to come as well
    (proposal,) = world.proposed[before:]
    (record,) = decode_records(Proposal.decode(proposal.data).records)
    assert isinstance(record, BrokerChange)
    assert not world.image.topics[topic].partitions[0].has_leader


def test_an_operator_learns_why_nobody_can_lead() -> None:
    world, topic = world_of(1)
    for broker_id in (2, 1):
        report(world, broker_id, ((topic, 0, DAMAGED),))
    election = m.ElectLeadersRequest(m.UNCLEAN_ELECTION, (("t", 0),))

    def reason() -> str | None:
        response = world.call(election)
        assert isinstance(response, m.ElectLeadersResponse)
        (result,) = response.partitions
        assert result.error == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
        return result.message

    assert reason() == (
        "The replicas [1, 2] are offline: their brokers are alive and cannot serve their logs, which are damaged "
        "or in a failed directory. Repair one of the offline logs and restart its broker."
    )
    world.heartbeat(2, fence=True)
    assert reason() == (
        "The replicas [1] are offline: their brokers are alive and cannot serve their logs, which are damaged or in "
        "a failed directory. Start one of the brokers [2], or repair one of the offline logs and restart its broker."
    )
    world.heartbeat(1, fence=True)
    assert reason() == "None of the replicas [1, 2] is alive; start one of these brokers."


def test_a_replica_that_is_back_begins_a_leader_epoch() -> None:
    """Its log may be a new and empty one, in the same registration: what leaders know is of the one before."""
    world, topic = world_of(2)

    def leaders() -> list[tuple[int, int]]:
        return [(p.leader, p.leader_epoch) for p in world.image.topics[topic].partitions]

    report(world, 2, ((topic, 0, DAMAGED),))
    assert leaders() == [(1, 0), (1, 0)], "the leader knows from the mark that it is not there"
    report(world, 2, online=((topic, 0), (topic, 1)))
    report(world, 2, online=((topic, 0),))
    assert leaders() == [(1, 1), (1, 0)], "once, and only where it had been away"
    report(world, 2, ((topic, 1, DAMAGED),))
    world.register(2, incarnation=2)
    assert leaders() == [(1, 1), (1, 0)], "a new registration says it by itself"


def test_the_index_knows_where_replicas_are_offline() -> None:
    world, topic = world_of(3)
    report(world, 1, ((topic, 2, DAMAGED), (topic, 0, DIRECTORY)))
    index = world.controller._index
    assert index.offline_on(1) == ClusterIndex(world.image).offline_on(1) == [(topic, 0), (topic, 2)]
    assert index.offline_on(2) == []
    report(world, 1, online=((topic, 0),))
    assert index.offline_on(1) == [(topic, 2)]
    world.call(m.DeleteTopicsRequest((m.TopicToDelete(name="t"),)))
    assert index.offline_on(1) == []
