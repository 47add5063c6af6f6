"""Every rule of replication that is built has a story that shows it and a mutation that shows who guards it.

A story is a golden script of the state machine at which the rule is kept, and names the rule in its title. Rules of
the metadata quorum have no stories: its state machine is the library's, and property tests and mutations guard it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos.mutations.catalogue import BY_NAME

UNIT = Path(__file__).parent


class Rule(NamedTuple):
    """One rule; `stories` are paths below tests/unit without `scripts/` and `.txt`."""

    name: str
    prevents: str
    stories: tuple[str, ...]
    mutations: tuple[str, ...]


RULES = (
    Rule(
        "KIP-101",
        "truncating to the high watermark loses or forks acknowledged records",
        (
            "partition/kip_101_loss",
            "partition/kip_101_fork",
            "leader_epoch/kip_101_lost_record",
            "leader_epoch/kip_101_fork",
            "fetcher/kip_101_truncation",
        ),
        ("truncate-to-high-watermark", "epoch-cache-after-append", "leader-epoch-not-bumped"),
    ),
    Rule(
        "KIP-279",
        "fast successive elections fork logs",
        (
            "partition/kip_279_fast_elections",
            "leader_epoch/kip_279_fast_elections",
            "fetcher/kip_279_fast_elections",
        ),
        ("epoch-that-the-leader-lacks", "cut-at-the-leaders-end"),
    ),
    Rule(
        "KIP-320",
        "a leader or follower that missed an election serves or truncates",
        ("partition/kip_320_fencing", "fetcher/kip_320_fencing"),
        (
            "follower-without-epoch-fence",
            "leader-without-epoch-fence",
            "client-of-another-epoch-answered",
            "epoch-end-told-in-another-epoch",
        ),
    ),
    Rule(
        "Fetch v12",
        "a follower takes records of a log that has parted from its own",
        (
            "partition/diverging_epoch",
            "leader_epoch/fetch_v12_diverging_epoch",
            "fetcher/fetch_v12_diverging_epoch",
            "fetcher/out_of_range",
        ),
        ("no-diverging-epoch", "diverging-answer-believed"),
    ),
    Rule(
        "high watermark",
        "a new leader lacks acknowledged records",
        ("partition/high_watermark", "fetcher/high_watermark"),
        ("hw-over-the-current-isr", "hw-below-min-isr", "hw-goes-back"),
    ),
    Rule(
        "KIP-497",
        "leader and controller disagree on the ISR",
        ("partition/joining_the_isr", "partition/leaving_the_isr"),
        (
            "shrink-commits-optimistically",
            "expand-without-epoch-start",
            "expand-below-the-high-watermark",
            "laggards-stay",
            "dropped-without-delay",
            "joins-and-is-dropped-at-once",
            "rejoins-where-it-was-dropped",
        ),
    ),
    Rule(
        "AlterPartition",
        "proposals race with elections and with each other",
        (
            "partition/alter_partition_errors",
            "partition/alter_partition_late_answers",
            "partition/alter_partition_unknown_outcome",
        ),
        (
            "unknown-outcome-means-refused",
            "out-of-date-means-refused",
            "older-partition-epoch-accepted",
            "stale-metadata-applied",
        ),
    ),
    Rule(
        "KIP-841",
        "a dead broker gets back into the ISR",
        ("partition/kip_841_fenced_brokers",),
        ("fenced-broker-joins-the-isr", "controlled-shutdown-keeps-leaders"),
    ),
    Rule(
        "KIP-903",
        "a broker that came back with an empty disk counts as in sync",
        ("partition/kip_903_wiped_disk",),
        ("broker-epoch-unchecked",),
    ),
    Rule(
        "KIP-966",
        "the last replica standing takes acknowledged records along",
        ("partition/kip_966_eligible_leaders", "controller/eligible_leader_replicas"),
        ("unclean-restart-stays-eligible", "elr-not-cleared", "last-known-leader-before-the-elr"),
    ),
    Rule(
        "KIP-98",
        "a producer's retry is appended twice, or out of order",
        ("log/producers/window", "log/producers/epochs", "log/producers/restarts"),
        ("dedupe-window-of-1", "producers-not-rebuilt", "sequence-gap-accepted"),
    ),
    Rule(
        "KIP-392",
        "a reader at a follower is given what may not stay",
        ("partition/kip_392_reading_from_followers", "broker/kip_392_nearest_replica"),
        ("follower-serves-its-whole-log", "sent-to-another-rack"),
    ),
    Rule(
        "KIP-227",
        "a reader that names no partition is not told what is new there",
        ("broker/kip_227_fetch_sessions", "fetcher/kip_227_fetch_sessions"),
        (
            "sessions-deaf-to-appends",
            "sessions-deaf-to-the-high-watermark",
            "session-settled-with-news",
            "lost-session-goes-on",
            "session-requests-prove-nothing",
        ),
    ),
    Rule(
        "KIP-73",
        "who copies a lot takes the network from those who are in sync",
        ("broker/kip_73_throttled_leader", "fetcher/kip_73_throttled_follower"),
        ("held-back-for-ever",),
    ),
    Rule(
        "acks=-1",
        "too few replicas have what was acknowledged",
        ("partition/not_enough_replicas",),
        ("min-isr-ignored", "acks-all-at-leo", "refused-after-the-append"),
    ),
    Rule(
        "KIP-207",
        "the end of a partition goes back when leaders change",
        ("partition/list_offsets_after_election",),
        ("latest-before-the-epoch-start",),
    ),
    Rule(
        "KIP-595",
        "two controllers decide in one term, or a voter with a new disk votes as its old self",
        (),
        ("vote-not-fsynced", "commits-older-terms-by-counting", "new-disk-votes"),
    ),
    Rule(
        "KIP-630",
        "metadata is lost with a snapshot that is not whole",
        (),
        ("snapshot-incomplete", "snapshot-installed-half", "snapshot-before-fsync"),
    ),
)
OF_THE_QUORUM = {"KIP-595", "KIP-630"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_stories_that_name_it(rule: Rule) -> None:
    assert bool(rule.stories) != (rule.name in OF_THE_QUORUM)
    for story in rule.stories:
        folder, _, name = story.rpartition("/")
        text = (UNIT / folder / "scripts" / f"{name}.txt").read_text()
        title = text.split("\n\n")[0].replace("\n# ", " ")
        assert rule.name.lower() in title.lower(), f"{story} does not say that it is about {rule.name}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_mutations_that_are_noticed(rule: Rule) -> None:
    assert rule.mutations
    assert [name for name in rule.mutations if BY_NAME[name].equivalent] == []
