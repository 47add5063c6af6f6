"""The histories, as scripts: who does what, which message comes late, who dies when.

Each is told in the KIP that it is named after. A script names no rule: it plays the same steps under every rule,
and the verdicts that `HISTORIES` states for the rules are held against what the checker says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from kraft.chaos.replay.rules import (
    EpochEndOnly,
    HighWatermark,
    LeaderEpoch,
    Rule,
    UnfencedFetch,
    UnnamedIncarnation,
    UnverifiedTransactions,
    WithoutEligibleLeaders,
)
from kraft.chaos.replay.stage import Stage
from kraft.chaos.replay.transactions import ReplayCoordinator, ReplayProducer

Verdict = Literal["held", "lost", "forked"]
"""What the checker finds: nothing; an acknowledged record that nobody can read; one offset with two values."""


@dataclass(frozen=True)
class KnownHistory:
    """A history and the rules it can be played under."""

    name: str
    title: str
    script: Callable[[Stage], None]
    option: Literal["truncation", "rule"]
    """The command's option that names the rule."""
    old: Rule
    """The rule that this history made obsolete."""
    today: Rule
    verdicts: Mapping[str, Verdict]
    """By rule."""
    others: tuple[Rule, ...] = ()
    """Further rules to play it under."""
    brokers: int = 2
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def rules(self) -> dict[str, Rule]:
        """All of them by name, the old one first."""
        return {rule.name: rule for rule in (self.old, self.today, *self.others)}


def _kip_101_loss(stage: Stage) -> None:
    with stage.step("Broker 2 leads, broker 1 follows; both have m1."):
        stage.create_topic(2, 1)
        stage.produce("m1")
        stage.replicate(1)
    with stage.step("m2 is written; broker 1 fetches it, and its next fetch commits it."):
        stage.produce("m2")
        stage.fetch(1)
        stage.brokers[1].checkpoint_high_watermark()
        late = stage.send_fetch(1)
        stage.deliver_fetch(late)
    with stage.step(
        "Broker 1 is killed before the answer tells it: its high watermark is 1, though it has m2."
    ):
        stage.brokers[1].crash()
    with stage.step("Broker 1 starts again and follows broker 2."):
        stage.start(1)
    with stage.step("Broker 2 dies before broker 1 has fetched anything; broker 1 is elected."):
        stage.kill(2)
        stage.publish_all()
    with stage.step("A consumer reads."):
        stage.consume()
    with stage.step("m3 is written; broker 2 comes back and follows."):
        stage.produce("m3")
        stage.start(2)
        stage.publish_all()
        stage.replicate(2)
        stage.change_isr()
        stage.replicate(2)
    with stage.step("A consumer reads everything."):
        stage.consume(final=True)


def _kip_101_fork(stage: Stage) -> None:
    with stage.step("Broker 1 leads, broker 2 follows; both have m1, on disk."):
        stage.create_topic(1, 2)
        stage.produce("m1")
        stage.replicate(2)
        for broker in stage.brokers.values():
            broker.sync()
    with stage.step("m2 is written with acks=1 and replicated; broker 1 flushes it, broker 2 does not."):
        stage.produce("m2", acks=1)
        stage.replicate(2)
        for broker in stage.brokers.values():
            broker.checkpoint_high_watermark()
        stage.brokers[1].sync()
    with stage.step("Both lose power: broker 2 loses m2 with it."):
        stage.brokers[2].lose_power()
        stage.brokers[1].lose_power()
        stage.end_session(2)
        stage.end_session(1)
    with stage.step("Broker 2 is back first, leads, and writes m3 where m2 was."):
        stage.start(2)
        stage.produce("m3")
    _old_leader_returns(stage)


def _kip_101_fork_acks_all(stage: Stage) -> None:
    with stage.step("Broker 1 leads, broker 2 follows; both have m1, on disk."):
        stage.create_topic(1, 2)
        stage.produce("m1")
        stage.replicate(2)
        for broker in stage.brokers.values():
            broker.sync()
    with stage.step("m2 is written with acks=all, and acknowledged; broker 1 flushes it, broker 2 does not."):
        stage.produce("m2")
        stage.replicate(2)
        for broker in stage.brokers.values():
            broker.checkpoint_high_watermark()
        stage.brokers[1].sync()
    with stage.step("Both lose power: broker 2 loses m2 with it."):
        stage.lose_power(2, 1)
    with stage.step("The session of broker 1 ends first: the ISR is broker 2 alone."):
        stage.end_session(1)
    with stage.step("The session of broker 2 ends: it may be elected again, if it comes back as it was."):
        stage.end_session(2)
    with stage.step("Broker 2 is back first, as the leader known last; it writes m3 where m2 was."):
        stage.start(2)
        stage.produce("m3")
    _old_leader_returns(stage)


def _old_leader_returns(stage: Stage) -> None:
    """Broker 2 leads, and has m3 where broker 1 has m2."""
    with stage.step("A consumer reads from broker 2."):
        stage.consume()
    with stage.step("Broker 1 is back and follows broker 2."):
        stage.start(1)
        stage.publish_all()
        stage.replicate(1)
        stage.change_isr()
        stage.replicate(1)
    with stage.step("Broker 2 dies; broker 1 leads."):
        stage.kill(2)
        stage.publish_all()
    with stage.step("A consumer reads everything from broker 1."):
        stage.consume(final=True)


def _kip_279(stage: Stage) -> None:
    with stage.step(
        "Broker 2 is preferred but away; broker 1 leads and writes m1; broker 2 comes and gets it."
    ):
        stage.kill(2)
        stage.create_topic(2, 1)
        stage.produce("m1")
        stage.start(2)
        stage.publish_all()
        stage.replicate(2)
        stage.change_isr()
    with stage.step("Broker 1 writes m2 with acks=1; broker 2 has not fetched it."):
        stage.produce("m2", acks=1)
    with stage.step(
        "Broker 2 is elected and writes m3 and m4 with acks=1; broker 1 has not heard of it yet."
    ):
        stage.prefer(2)
        stage.publish(2)
        stage.produce("m3", acks=1)
        stage.produce("m4", acks=1)
    with stage.step("Broker 2 dies at once; broker 1 leads again and hears of both elections together."):
        stage.kill(2)
        stage.publish(1)
    with stage.step("Broker 1 writes m5; a consumer reads."):
        stage.produce("m5")
        stage.consume()
    with stage.step("Broker 2 is back; its last epoch is one that broker 1 does not know."):
        stage.start(2)
        stage.publish_all()
    with stage.step("Broker 2 follows and is in sync."):
        stage.replicate(2)
        stage.change_isr()
        stage.replicate(2)
    with stage.step("Broker 1 dies; broker 2 leads."):
        stage.kill(1)
        stage.publish_all()
    with stage.step("A consumer reads everything from broker 2."):
        stage.consume(final=True)


def _kip_320(stage: Stage) -> None:
    with stage.step("Broker 1 leads; all three have m1."):
        stage.create_topic(1, 3, 2)
        stage.produce("m1")
        stage.replicate(2, 3)
    with stage.step(
        "Broker 1 writes m2 with acks=1; broker 2 gets it and asks for more: that fetch comes late."
    ):
        stage.produce("m2", acks=1)
        stage.fetch(2)
        late = stage.send_fetch(2)
    with stage.step(
        "Broker 1 is away for a moment: broker 3 leads, broker 1 comes back, follows it and gives up m2."
    ):
        stage.brokers[1].checkpoint_high_watermark()
        stage.kill(1)
        stage.start(1)
        stage.publish(3)
        stage.replicate(1)
        stage.deliver_proposals()
    with stage.step("Broker 1 leads again and writes m3; broker 2 has heard of none of this."):
        stage.prefer(1)
        stage.publish(1, 3)
        stage.produce("m3")
        stage.replicate(3)
    with stage.step("The late fetch of broker 2 arrives, two elections later: it has two records."):
        stage.deliver_fetch(late)
    with stage.step("Brokers 3 and 1 die; broker 2, still in the ISR, leads."):
        for broker_id in (3, 1):
            stage.kill(broker_id)
        stage.publish(2)
    with stage.step("Brokers 1 and 3 are back; m4 is written; a consumer reads everything."):
        stage.start(1)
        stage.start(3)
        stage.publish_all()
        stage.replicate(1, 3)
        stage.produce("m4")
        stage.replicate(1, 3)
        stage.consume(final=True)


def _kip_903(stage: Stage) -> None:
    with stage.step("Broker 2 was away: broker 1 leads alone and has m1 and m2."):
        stage.create_topic(1, 2)
        stage.kill(2)
        stage.publish(1)
        stage.produce("m1")
        stage.produce("m2")
    with stage.step(
        "Broker 2 is back and catches up; broker 1 asks to take it into the ISR: the request comes late."
    ):
        stage.start(2)
        stage.publish_all()
        stage.replicate(2)
    with stage.step("Broker 2 loses its disk, starts with an empty one and registers anew."):
        stage.brokers[2].wipe()
        stage.start(2)
    with stage.step("The request of broker 1 arrives."):
        stage.change_isr()
    with stage.step("Broker 1 dies."):
        stage.kill(1)
        stage.publish_all()
    with stage.step("Broker 1 is back."):
        stage.start(1)
        stage.publish_all()
        follower = 2 if stage.controller.partition.leader == 1 else 1
        stage.replicate(follower)
    with stage.step("m3 is written; a consumer reads everything."):
        stage.produce("m3")
        stage.replicate(follower)
        stage.consume(final=True)


def _kip_966(stage: Stage) -> None:
    with stage.step("Broker 1 leads; all three have m1; min.insync.replicas=2."):
        stage.create_topic(1, 2, 3)
        stage.produce("m1")
        stage.replicate(2, 3)
    with stage.step("Broker 3 is stopped, then broker 2: broker 1 is the last replica standing."):
        for broker_id in (3, 2):
            stage.stop(broker_id)
            stage.publish(1)
    with stage.step("Broker 1 loses power, and with it m1, which it had not flushed."):
        stage.brokers[1].lose_power()
        stage.end_session(1)
    with stage.step("Broker 1 is the first to come back."):
        stage.start(1)
    with stage.step("Brokers 2 and 3 come back."):
        stage.start(2)
        stage.start(3)
        stage.publish_all()
    with stage.step("The two that do not lead follow, and are in sync again."):
        followers = [n for n in stage.brokers if n != stage.controller.partition.leader]
        for follower_id in followers:
            stage.replicate(follower_id)
            stage.change_isr()
    with stage.step("m2 is written; a consumer reads everything."):
        stage.produce("m2")
        stage.replicate(*followers)
        stage.consume(final=True)


def _kip_890(stage: Stage) -> None:
    coordinator = ReplayCoordinator(stage)
    with stage.step("Broker 1 leads, broker 2 follows; producer t commits m1."):
        stage.create_topic(1, 2)
        producer = ReplayProducer(stage, coordinator, "t")
        producer.writes("m1")
        producer.ends_whole(committed=True)
    with stage.step(
        "t aborts m2; the coordinator heard nothing of its marker for a while, and sent it twice."
    ):
        producer.writes("m2")
        _, markers = producer.ends_whole(committed=False)
    with stage.step("t writes m3, in its next transaction."):
        producer.writes("m3")
    with stage.step("The late marker of the transaction before arrives."):
        for marker in markers:
            producer.marker_arrives(marker)
    with stage.step("t writes m4 and commits m3 and m4; a consumer of committed records reads."):
        producer.writes("m4")
        end, _ = producer.ends_whole(committed=True)
        stage.consume_committed()
    with stage.step("t writes m5. The commit before comes once more: it was sent twice, too."):
        producer.writes("m5")
        producer.end_arrives(end)
        stage.consume_committed()
    with stage.step("t thinks better of it, and aborts m5."):
        producer.ends_whole(committed=False)
    with stage.step("t sends m6, has no answer for long, gives up and aborts; it goes away."):
        late = producer.send("m6")
        producer.gives_up(late)
        producer.ends_whole(committed=False)
    with stage.step("m6 arrives."):
        producer.arrives(late)
        stage.replicate(2)
    with stage.step("Another producer commits m7; consumers read everything."):
        other = ReplayProducer(stage, coordinator, "u")
        other.writes("m7")
        other.ends_whole(committed=True)
        stage.consume(final=True)
        stage.consume_committed(final=True)


UNCLEAN: Final = {"unclean.leader.election.enable": "true"}
"""The default of the time when KIP-101 was written."""

HISTORIES: Final = {
    history.name: history
    for history in (
        KnownHistory(
            "kip-101-loss",
            "A follower restarts with a stale high watermark and is elected (unclean election is on)",
            _kip_101_loss,
            "truncation",
            HighWatermark(),
            LeaderEpoch(),
            {"high-watermark": "lost", "kip-101": "held", "leader-epoch": "held"},
            others=(EpochEndOnly(),),
            configs=UNCLEAN,
        ),
        KnownHistory(
            "kip-101-fork",
            "Both replicas lose power, and the one that lost a record leads first (unclean election is on)",
            _kip_101_fork,
            "truncation",
            HighWatermark(),
            LeaderEpoch(),
            {"high-watermark": "forked", "kip-101": "held", "leader-epoch": "held"},
            others=(EpochEndOnly(),),
            configs=UNCLEAN,
        ),
        KnownHistory(
            "kip-101-fork-acks-all",
            "The same, and the record was acknowledged with acks=all: nobody who may lead has it any more",
            _kip_101_fork_acks_all,
            "truncation",
            HighWatermark(),
            LeaderEpoch(),
            {"high-watermark": "forked", "kip-101": "held", "leader-epoch": "held"},
            others=(EpochEndOnly(),),
        ),
        KnownHistory(
            "kip-279",
            "Two elections in a row, and the leader does not know the follower's epoch",
            _kip_279,
            "truncation",
            EpochEndOnly(),
            LeaderEpoch(),
            {"high-watermark": "held", "kip-101": "forked", "leader-epoch": "held"},
            others=(HighWatermark(),),
        ),
        KnownHistory(
            "kip-320",
            "A fetch from before two elections counts as progress",
            _kip_320,
            "rule",
            UnfencedFetch(),
            Rule(),
            {"old": "lost", "current": "held"},
            brokers=3,
        ),
        KnownHistory(
            "kip-903",
            "A broker comes back with an empty disk and is taken for in sync",
            _kip_903,
            "rule",
            UnnamedIncarnation(),
            Rule(),
            {"old": "lost", "current": "held"},
        ),
        KnownHistory(
            "kip-966",
            "The last replica standing comes back without its records",
            _kip_966,
            "rule",
            WithoutEligibleLeaders(),
            Rule(),
            {"old": "lost", "current": "held"},
            brokers=3,
            configs={"min.insync.replicas": "2"},
        ),
        KnownHistory(
            "kip-890",
            "A marker, the end of a transaction and a batch come late, each in a transaction that is not theirs",
            _kip_890,
            "rule",
            UnverifiedTransactions(),
            Rule(),
            {"old": "lost", "current": "held"},
        ),
    )
}
