"""Values of real workloads, and the histories that programs of the user's own write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft.chaos.checker import check_history
from kraft.chaos.group_history import GroupAction, GroupProtocol, Sender
from kraft.chaos.history import OperationKind, OperationStatus, TopicKey
from kraft.chaos.real.workload.commands import HistoryError, read_history
from kraft.chaos.real.workload.recorder import Recorder, made_value, recorded_value

UNIX_S = 1_760_000_000.0
SEND: dict[str, Any] = {
    "op": "send",
    "process": "p",
    "topic": "orders",
    "partition": 0,
    "values": ["a"],
    "status": "ok",
    "offset": 0,
    "idempotent": True,
    "began": UNIX_S + 1,
    "ended": UNIX_S + 2,
}
POLL: dict[str, Any] = {
    "op": "poll",
    "process": "c",
    "topic": "orders",
    "partition": 0,
    "position": 0,
    "records": [[0, "a"]],
    "next": 1,
    "sought": True,
    "status": "ok",
    "began": UNIX_S + 3,
    "ended": UNIX_S + 4,
}


@pytest.fixture
def recorder() -> Recorder:
    made = Recorder({"orders": b"o" * 16}, {"orders": 2})
    made.unix_origin_s, made.origin_s = UNIX_S, made.origin_s - 60.0
    return made


@pytest.mark.parametrize("size", [0, 10, 100])
def test_a_value_that_comes_as_it_was_sent_is_known_by_its_head(size: int) -> None:
    head, value = made_value("producer-1.1", 0, 7, size)
    assert len(value) >= size
    assert recorded_value(value) == head


def test_a_value_that_was_changed_is_not_the_one_that_was_sent() -> None:
    head, value = made_value("producer-1.1", 0, 7, 100)
    for changed in (value[:-1], value + b"x", value[:-1] + b"y", b"", None):
        assert recorded_value(changed) != head


def written(folder: Path, *lines: dict[str, Any]) -> Path:
    file = folder / "history.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_program_s_history_is_judged_like_our_own(recorder: Recorder, tmp_path: Path) -> None:
    lost = {**SEND, "values": ["b"], "offset": 1}
    assert read_history(written(tmp_path, SEND, lost, POLL), recorder) == 3
    recorder.polled("final", "orders", 0, recorder.clock(), 0, [(0, b"a")], 2, sought=True, final=True)
    recorder.finish()
    send, _, poll, _ = recorder.history.operations
    assert (send.kind, send.status, send.invoked_s, send.completed_s) == (
        OperationKind.SEND,
        OperationStatus.OK,
        pytest.approx(1.0),
        pytest.approx(2.0),
    )
    assert poll.records == ((0, b"a"),)
    assert {one.oracle for one in check_history(recorder.history).anomalies} & {"lost-write", "unseen"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"topic": "others"}, "no partition others-0"),
        ({"partition": 2}, "no partition orders-2"),
        ({"status": "maybe"}, "maybe"),
        ({"acks": 2}, "acks is -1, 0 or 1"),
        ({"began": "soon"}, "soon"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    recorder: Recorder, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(HistoryError, match="line 2") as error:
        read_history(written(tmp_path, SEND, {**SEND, **change}), recorder)
    assert told in str(error.value)


def test_no_file_is_no_history(recorder: Recorder, tmp_path: Path) -> None:
    assert read_history(tmp_path / "history.jsonl", recorder) == 0


def test_who_has_begun(recorder: Recorder) -> None:
    """A partition has when it acknowledged, a group when a member was given something: an empty assignment is none."""
    sent = [
        recorder.send("p", "orders", partition, [b"a"], acks=acks, idempotent=False)
        for partition, acks in ((0, 1), (1, 0))
    ]
    assert recorder.acknowledged() == set()
    for operation in sent:
        recorder.sent(operation, OperationStatus.OK, 0)
    assert recorder.acknowledged() == {("orders", 0)}

    def assign(*owned: TopicKey) -> None:
        sender = Sender("readers", GroupProtocol.CLASSIC, "m", 1)
        asked = recorder.asked(GroupAction.ASSIGNED, sender)
        assert "readers" not in recorder.assigned(), "not answered yet"
        recorder.answered(asked, OperationStatus.OK, owned=owned)

    assign()
    assert recorder.assigned() == set()
    assign(recorder.key("orders", 0))
    assert recorder.assigned() == {"readers"}
