"""What probes and faults measure: waits for acknowledgements, rates, latencies, errors; and the counts of a history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.chaos.experiments.counts import counts_of
from kraft.chaos.experiments.evidence import Reading, Sample, samples_of
from kraft.chaos.experiments.measures import Window, activities, gaps, measure, noticed, percentile
from kraft.chaos.history import History, OperationKind, OperationStatus
from tests.unit.chaos.experiments.planted import FAULT, evidence, send

WHOLE = Window(0.0, 100.0)
KEY = (b"t" * 16, 0)


def waits(*samples: Sample, window: Window = WHOLE) -> list[tuple[float, float]]:
    return [(one.from_s, one.until_s) for one in gaps(samples, window)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((send(1.0, 0.5),), [(1.0, 1.5)]),
        ((send(1.0, 0.5), send(3.0, 0.5)), [(1.0, 1.5), (3.0, 3.5)]),
        ((send(1.0, 0.5), send(1.2, 4.0)), [(1.0, 1.5), (1.5, 5.2)]),
        ((send(1.0, 0.5), send(2.0, 1.0, status="fail"), send(4.0, 1.0)), [(1.0, 1.5), (2.0, 5.0)]),
        ((send(1.0, 0.5, acks=0),), []),
        ((send(1.0, 0.5, status="info"),), [(1.0, 100.0)]),
        ((replace(send(1.0), ended_s=None, status="info"),), [(1.0, 100.0)]),
        ((), []),
    ],
    ids=[
        "one",
        "nobody sends between",
        "one is open",
        "one failed",
        "acks=0",
        "unknown",
        "never ended",
        "nothing",
    ],
)
def test_a_wait_is_a_time_in_which_somebody_wanted_an_acknowledgement(samples, expected):
    assert waits(*samples) == expected


def test_waits_are_cut_to_the_window_and_counted_by_partition():
    both = (send(1.0, 10.0), send(2.0, 1.0, partition=1))
    assert waits(*both, window=Window(4.0, 6.0)) == [(4.0, 6.0)]
    assert {one.partition for one in gaps(both, WHOLE)} == {("orders", 0), ("orders", 1)}


def test_probes_measure_their_window():
    samples = [*(send(n / 10, 0.02) for n in range(100)), send(20.0, 2.0), send(20.5, 1.0, status="fail")]
    polls = [Sample("poll", "c", "orders", 0, -1, 5.0, 5.1, "ok", 30)]
    window = Window(0.0, 10.0)
    assert measure("acknowledged", samples, (), window) == (10.0, "")
    unanswered = (*samples, *(replace(one, acks=0) for one in samples))
    assert measure("acknowledged", unanswered, (), window) == (10.0, "")
    assert measure("read", [*samples, *polls], (), window) == (3.0, "")
    assert measure("errors", samples, (), Window(20.0, 30.0)) == (0.5, "")
    assert measure("latency-p50", samples, (), window)[0] == pytest.approx(0.02)
    assert measure("latency-p99", samples, (), Window(0.0, 30.0))[0] == pytest.approx(0.02)
    assert measure("latency-p99", samples, (), Window(20.0, 30.0))[0] == pytest.approx(2.0)
    assert measure("unavailable", samples, (), Window(0.0, 30.0))[0] == pytest.approx(2.0)


def test_nothing_to_measure_is_no_value():
    for name in ("errors", "latency-p50", "latency-p99", "unavailable", "ailments", "leaderless"):
        value, why = measure(name, (), (), WHOLE)
        assert value is None
        assert why
    assert measure("acknowledged", (), (), Window(5.0, 5.0))[0] is None


def test_the_worst_reading_counts():
    readings = [Reading(1.0, 0, 0, 0), Reading(2.0, 3, 1, 2, "broker 1 is fenced"), Reading(99.0, 9, 9, 9)]
    assert measure("ailments", (), readings, Window(0.0, 10.0)) == (3.0, "broker 1 is fenced")
    assert measure("leaderless", (), readings, Window(0.0, 10.0))[0] == 1.0
    assert measure("under-replicated", (), readings, Window(0.0, 1.5))[0] == 0.0


def test_percentiles_are_of_the_nearest_rank():
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.25, 0.5, 0.99, 1.0)] == [
        1,
        1,
        2,
        4,
        4,
    ]


def test_a_fault_is_measured_in_its_partitions():
    good = evidence()
    [one] = activities(FAULT, good)
    assert (one.partition, one.acknowledged_before, one.attempts_during) == (("orders", 0), 70, 22)
    assert (one.acknowledged_during, one.acknowledged_after, one.unavailable_ms) == (21, 119, 3000)
    [everywhere] = activities(replace(FAULT, partitions=()), good)
    assert everywhere.partition is None
    assert activities(replace(FAULT, began_s=None), good) == ()


def test_the_journal_tells_when_a_fault_was_noticed():
    journal = evidence().journal
    assert noticed(FAULT, journal) == (9.9, 9.9)
    assert noticed(replace(FAULT, nodes=(2,)), journal) == (9.9, None)
    assert noticed(FAULT, None) == (None, None)


def history_of(*reads: tuple[int, bytes], final: bool = True, log_start: int = 0) -> History:
    """Three acknowledged sends, one for each acks, one unknown and one refused; and what was read."""
    history = History(log_starts={KEY: log_start})
    for acks, value, offset in ((-1, b"a", 0), (1, b"b", 1), (0, b"c", -1)):
        one = history.invoke(
            "p", OperationKind.SEND, 1.0, key=KEY, topic="orders", acks=acks, values=(value,)
        )
        history.complete(one, OperationStatus.OK, 1.5, base_offset=offset)
    for status, value in ((OperationStatus.INFO, b"d"), (OperationStatus.FAIL, b"e")):
        one = history.invoke(
            "p", OperationKind.SEND, 2.0, key=KEY, topic="orders", values=(value,), idempotent=True
        )
        history.complete(one, status, 2.5)
    poll = history.invoke("c", OperationKind.POLL, 3.0, key=KEY, topic="orders", position=0, final=final)
    history.complete(poll, OperationStatus.OK, 3.5, records=reads, next_offset=9)
    return history


def test_losses_and_doubles_are_counted_by_acks():
    nothing = counts_of(history_of())
    assert (nothing["acked"], nothing["acked_acks1"], nothing["acked_acks0"]) == (1, 1, 1)
    assert (nothing["lost"], nothing["lost_acks1"], nothing["lost_acks0"]) == (1, 1, 1)
    assert (nothing["unknown"], nothing["refused"], nothing["lost(orders)"]) == (1, 1, 1)
    whole = counts_of(history_of((0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"d")))
    assert (whole["lost"], whole["lost_acks1"], whole["lost_acks0"], whole["doubled"]) == (0, 0, 0, 1)


def test_without_a_final_read_no_loss_is_counted():
    assert counts_of(history_of(final=False))["lost"] == 0
    assert "lost_acks1" not in counts_of(history_of(final=False))


def test_what_retention_took_is_not_lost():
    counts = counts_of(history_of(log_start=2))
    assert (counts["lost"], counts["lost_acks1"], counts["lost_acks0"]) == (0, 0, 0)


def test_samples_have_no_final_phase_and_times_of_the_workload():
    samples = samples_of(history_of(), began_s=1.0)
    assert [one.kind for one in samples] == ["send"] * 5
    assert (samples[0].began_s, samples[0].ended_s, samples[0].acks) == (0.0, 0.5, -1)
