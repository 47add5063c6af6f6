"""Campaigns: every run is counted, however it ends, and nothing outlives them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.chaos.campaign import (
    AROUND_FAULTS_S,
    Files,
    Finished,
    RunPool,
    Tally,
    Verification,
    run_campaign,
    verify,
)
from kraft.chaos.coverage import EVENTS, asked_of_clusters
from kraft.chaos.outcome import RUN_FAILED, Outcome, Violation
from kraft.chaos.pool import Limits
from kraft.chaos.report import (
    Asked,
    document,
    failure_lines,
    never_happened,
    shortcomings,
    silent_seeds,
    verification_document,
)
from kraft.chaos.scenario import Scenario
from kraft.chaos.timeline import Timeline
from tests.unit.chaos import played

ASKED = asked_of_clusters(None, ("fault-0", "fault-1"))


def children() -> set[int]:
    """The processes that this one started and has not waited for."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in text.split()}


def finished(outcome: Outcome) -> Finished:
    return Finished(0, played.scenario(outcome.seed), outcome)


def test_an_outcome_travels_unchanged():
    outcome = Outcome(
        7, digest="ab", violations=[Violation("duplicate", 3, 1.5, 'é "x"\n')], coverage={"x": 1}
    )
    assert Outcome.decoded(b"noise of a library\n" + outcome.encoded()) == outcome


def test_a_watched_run_tells_how_far_it_is():
    readable, writable = os.pipe()

    def half(scenario: Scenario, *, timeline: object = None, on_time: Callable[[float], None]) -> Outcome:
        on_time(scenario.seconds / 2)
        os.read(readable, 1)  # goes on when it was seen
        on_time(10 * scenario.seconds)
        return played.sound(scenario)

    seen: list[float] = []

    def look(tally: Tally) -> None:
        if tally.under_way and not seen:
            seen.append(tally.under_way)
            os.write(writable, b"x")

    tally = run_campaign([played.scenario(1)], half, jobs=1, on_tick=look, is_watched=True)
    assert seen == [30 / (60 + AROUND_FAULTS_S)]
    assert (tally.seeds, tally.under_way) == (1, 0)
    os.close(readable)
    os.close(writable)


def test_a_watched_verification_moves_through_both_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "gate")
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    monkeypatch.setenv(played.GATE, str(tmp_path / "gate"))
    seen: list[float] = []

    def look(played_so_far: float) -> None:
        if played_so_far not in seen:
            seen.append(played_so_far)
            if played_so_far % 0.5:
                os.write(gate, b"x")

    (one,) = verify([played.scenario(1)], played.watched, jobs=1, on_tick=look, is_watched=True)
    os.close(gate)
    assert one.equal
    part = 30 / (60 + AROUND_FAULTS_S)
    assert [seconds for seconds in seen if seconds % 0.5] == [part / 2, (1 + part) / 2]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_all_seeds_are_played_once_and_added_up():
    ended: list[int] = []
    ticks: list[int] = []
    tally = run_campaign(
        [played.scenario(seed) for seed in range(9)],
        played.fails_if(lambda scenario: scenario.seed == 4),
        jobs=3,
        on_end=lambda one: ended.append(one.scenario.seed),
        on_tick=lambda so_far: ticks.append(so_far.seeds),
    )
    assert sorted(ended) == list(range(9))
    assert ticks[-1] == tally.seeds == 9
    assert (tally.virtual_s, tally.operations) == (9 * 80.0, 90)
    assert tally.coverage["fault: fault-3"] == 9
    assert tally.acknowledged == {"producer": 45, "consumer": 0}
    assert tally.unacknowledged == {"producer": 0, "consumer": 9}
    assert [one.scenario.seed for one in tally.failed] == [4]
    assert len(set(tally.digests.values())) == 9
    assert tally.cpu_s > 0
    assert not children()


def test_scenarios_are_drawn_when_there_is_a_place_for_them():
    begun = 0

    def scenarios() -> Iterator[Scenario]:
        nonlocal begun
        for seed in range(4):
            begun += 1
            yield played.scenario(seed)

    seen: list[int] = []
    run_campaign(scenarios(), played.sound, jobs=1, on_end=lambda _: seen.append(begun))
    assert seen == [1, 2, 3, 4]


def test_a_run_that_ends_badly_is_a_failed_seed_and_the_others_go_on(capfd: pytest.CaptureFixture[str]):
    scenarios = [played.scenario(seed) for seed in (1, 2, 3, 5, 6)]
    tally = run_campaign(scenarios, played.bad_in_many_ways, jobs=5, limits=Limits(1, 50.0, 8 << 30))
    errors = {one.scenario.seed: one.outcome.error for one in tally.failed}
    assert tally.seeds == 5
    assert "died of SIGKILL" in errors[1]
    assert "ZeroDivisionError: by zero" in errors[2]
    assert "more than 1 s of CPU time" in errors[3]
    assert "bad_in_many_ways" in errors[3], "the stack says where it stuck"
    assert sorted(errors) == [1, 2, 3]
    assert tally.failed[0].outcome.oracles == [RUN_FAILED]
    assert "a library says this" not in capfd.readouterr().out
    assert not children()


def test_a_run_that_waits_for_ever_is_a_failed_seed():
    limits = Limits(cpu_s=50, wall_s=0.1, memory_bytes=8 << 30)
    tally = run_campaign([played.scenario(1)], played.endless, jobs=1, limits=limits)
    assert tally.failed[0].outcome.error == "the run took more than 0.1 s"
    assert not children()


def test_a_run_that_takes_all_memory_is_a_failed_seed():
    limits = Limits(cpu_s=50, wall_s=50.0, memory_bytes=2 << 30)
    tally = run_campaign([played.scenario(1)], played.greedy, jobs=1, limits=limits)
    assert "MemoryError" in tally.failed[0].outcome.error


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a foreground process: in the background of a shell without job control SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_all_runs_and_keeps_what_was_found(interruptible):
    pids: set[int] = set()

    def interrupt(tally: Tally) -> None:
        pids.update(children())
        os.kill(os.getpid(), signal.SIGINT)

    scenarios = [played.scenario(seed) for seed in range(10)]
    tally = run_campaign(scenarios, played.endless, jobs=3, on_tick=interrupt)
    assert tally.interrupted
    assert tally.seeds == 0
    assert len(pids) == 3
    assert not children()


def test_a_run_of_a_pool_ignores_the_terminals_ctrl_c():
    with RunPool(played.endless, 1) as pool:
        pool.begin(0, played.scenario(1))
        [pid] = children()
        while "SigIgn:\t0000000000000000" in Path(f"/proc/{pid}/status").read_text():
            pass
        os.kill(pid, signal.SIGINT)
        assert pool.finished(0.1) == []
        pool.abandon(0)
        assert not children()
        assert pool.free == 1


def test_a_timeline_goes_to_its_file(tmp_path: Path):
    file = tmp_path / "timeline.txt"
    run_campaign([played.scenario(3)], played.sound, jobs=1, files=Files(timeline=str(file)))
    assert file.read_text() == "the timeline of 3\n"


def test_a_timeline_on_a_full_disk_is_not_held_against_the_cluster():
    tally = run_campaign([played.scenario(3)], played.sound, jobs=1, files=Files(story="/dev/full"))
    assert not tally.failed
    reason = "/dev/full could not be written: No space left on device"
    assert (
        shortcomings(tally, ASKED)
        == shortcomings(tally, asked_of_clusters(None, (), case="a.json"))
        == [reason]
    )
    with Timeline("/dev/full") as timeline:
        timeline.write("a line")
        timeline.flush()
        assert timeline.write("another") == 7
        timeline.flush()
    assert timeline.problem == "No space left on device"


def test_verification_tells_one_history_from_two():
    [same] = verify([played.scenario(5)], played.sound, jobs=2)
    ended: list[int] = []
    [different] = verify(
        [played.scenario(6)], played.hashing, jobs=1, on_end=lambda one: ended.append(one.seed)
    )
    assert ended == [6]
    assert (same.equal, different.equal) == (True, False)
    assert verification_document([same]) == {
        "seed": 5, "hashes": list(same.hashes), "equal": True, "failed": []
    }  # fmt: skip
    both = verification_document([same, different])
    assert ([row["seed"] for row in both["verified"]], both["equal"]) == ([5, 6], False)
    assert not children()


def test_two_equal_runs_may_both_break_a_promise():
    [one] = verify([played.scenario(5)], played.wrong, jobs=2)
    assert (one.equal, one.failed) == (True, ("lost-write",))
    assert verification_document([one])["failed"] == ["lost-write"]


def test_two_runs_that_fail_are_not_equal():
    [one] = verify([played.scenario(5)], played.broken_when_fresh, jobs=2)
    assert not one.equal
    assert "ZeroDivisionError: by zero" in one.errors[0]


def test_what_two_runs_did_until_they_failed_proves_nothing():
    alike = Verification(5, ("ab12", "ab12"), ("code under simulation used time.sleep", ""))
    assert not alike.equal
    assert Verification(5, ("ab12", "ab12"), ("", "")).equal


def test_the_first_violation_of_each_oracle_counts():
    outcome = Outcome(
        1,
        violations=[
            Violation("duplicate", 1, 0.1, "a"),
            Violation("unseen", 2, 0.2, "b"),
            Violation("duplicate", 3, 0.3, "c"),
        ],
    )
    assert [(one.oracle, one.text) for one in outcome.first_violations] == [
        ("duplicate", "a"),
        ("unseen", "b"),
    ]


def test_the_document_of_a_campaign():
    run = played.fails_if(lambda scenario: scenario.seed == 2)
    tally = run_campaign([played.scenario(seed) for seed in (1, 2)], run, jobs=1)
    result = document(tally, asked_of_clusters(("bit rot", "kill"), ("bit rot", "kill")))
    [row] = result["violations"]
    assert row == {
        "seed": 2,
        "oracle": "lost-write",
        "step": 7,
        "at_s": 30.0,
        "text": "it is gone",
        "replay": "kraft chaos simulate --seed 2 --seconds 60 --faults 'bit rot,kill'",
    }
    assert result["seeds"] == 2
    assert result["operations_per_virtual_s"] == pytest.approx(20 / 160, abs=0.01)
    assert result["coverage"]["fault: fault-0"] == 2
    assert result["digests"].keys() == {"1", "2"}


@pytest.mark.parametrize(
    ("asked", "seconds", "command"),
    [
        (asked_of_clusters(None, ()), 60.0, "--seed 9 --seconds 60"),
        (asked_of_clusters(None, ()), 0.25, "--seed 9 --seconds 0.25"),
        (asked_of_clusters((), ()), 1234567.0, "--seed 9 --seconds 1234567 --faults none"),
        (asked_of_clusters(None, (), case="a case.json"), 60.0, "--case 'a case.json'"),
    ],
)
def test_the_command_that_replays(asked: Asked, seconds: float, command: str):
    assert asked.replay(played.scenario(9, seconds=seconds)) == f"kraft chaos simulate {command}"


def test_a_failed_run_is_told_with_its_last_events():
    outcome = played.fails_if(lambda _: True)(played.scenario(2))
    lines = failure_lines(finished(outcome), ASKED, with_events=True)
    assert lines == [
        "seed 2 failed lost-write at step 7, 30.000000 virtual s: it is gone",
        "  before it:",
        "    29.0 step 6: kill node 1",
        "  replay: kraft chaos simulate --seed 2 --seconds 60",
    ]
    assert failure_lines(finished(outcome), ASKED, with_events=False) == [lines[0], lines[-1]]


def tally_of(seeds: int, **changes: object) -> Tally:
    tally = Tally()
    for seed in range(seeds):
        outcome = Outcome(seed, coverage={"fault: fault-0": 1}, acknowledged={"producer#0": 1})
        for name, value in changes.items():
            setattr(outcome, name, value)
        tally.add(finished(outcome))
    return tally


def test_what_never_happened_counts_from_a_hundred_seeds_on():
    assert shortcomings(tally_of(99), ASKED) == []
    assert shortcomings(tally_of(100), ASKED) == ["the fault 'fault-1' was enabled and never struck"]
    silent = tally_of(100, acknowledged={"producer#0": 0, "consumer#1": 3})
    assert "no workload 'producer' got an acknowledgement" in shortcomings(silent, ASKED)


def test_what_never_happened_is_told_of_the_default_swarm():
    coverage = {"fault: fault-0": 1, **dict.fromkeys(EVENTS, 1), "truncation": 0}
    tally = tally_of(2, coverage=coverage, acknowledged={"producer#0": 0, "consumer#1": 3})
    told = ["fault: fault-1", "truncation", "acknowledged: producer"]
    assert never_happened(tally, ASKED) == document(tally, ASKED)["never_happened"] == told
    named = asked_of_clusters(("fault-0", "fault-1"), ("fault-0", "fault-1"))
    assert never_happened(tally, named) == ["fault: fault-1", "acknowledged: producer"]


def test_many_seeds_may_have_some_that_say_nothing():
    def tally(seeds: int, silent: int) -> Tally:
        tally = tally_of(seeds - silent, coverage={"fault: fault-0": 1, "fault: fault-1": 1})
        for seed in range(silent):
            outcome = Outcome(1000 + seed, undecided="nothing was left", acknowledged={"producer#0": 1})
            tally.add(finished(outcome))
        return tally

    assert shortcomings(tally(100, 5), ASKED) == []
    assert silent_seeds(tally(100, 1)) == ["seed 1000 shows nothing: nothing was left"]
    assert len(shortcomings(tally(100, 6), ASKED)) == len(silent_seeds(tally(100, 6))) == 4
    assert shortcomings(tally(99, 50), ASKED) == []
    assert shortcomings(tally(1, 1), ASKED) == ["seed 1000 shows nothing: nothing was left"]


def test_seeds_of_which_none_says_anything_are_no_proof():
    reasons = shortcomings(tally_of(5, undecided="no operation"), ASKED)
    assert reasons[0] == "seed 0 shows nothing: no operation"
    assert reasons[-1] == "so do 2 other seeds"
    assert shortcomings(Tally(), ASKED) == ["no seed was played to its end"]


def test_a_case_holds_when_nothing_fails_however_small_it_is():
    case = Asked(None, (), case="seed-1-liveness.json")
    assert shortcomings(tally_of(1, undecided="no operation"), case) == []
    assert shortcomings(Tally(), case) == ["no seed was played to its end"]
