"""What keeps a controller from being ready, in sentences; and what is recorded of voters."""

import pytest
from structlog.testing import capture_logs

from quorum.controller.voter_control import record_voters
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import VoterIdentity
from quorum.raft.events import VoterStanding
from quorum.voter_status import VoterStatus

ONE, TWO = b"one".ljust(16), b"two".ljust(16)


def reasons(standing, leader_id=1):
    status = VoterStatus()
    status.take(standing)
    return status.unready_reasons(leader_id)


def test_a_whole_quorum_has_nothing_to_say():
    assert VoterStatus().unready_reasons(1) == []


def test_without_a_leader():
    assert VoterStatus().unready_reasons(None) == ["the quorum has no leader"]


@pytest.mark.parametrize(
    ("standing", "leader_id", "sentence"),
    [
        (
            VoterStanding(is_founded=False, unseen=(3,)),
            None,
            "waiting for voter 3 to be seen for the first time",
        ),
        (VoterStanding(is_founded=False, unseen=(2, 3)), None, "waiting for voters 2, 3 to be seen for the"),
        (VoterStanding(is_founded=False), None, "too many of them came back with empty disks"),
        (VoterStanding(is_founded=False), 2, "has not heard yet who the quorum's voters are"),
        (
            VoterStanding(counts=False, replaced=(1,)),
            2,
            "is being brought up to date, and its votes do not count yet",
        ),
        (VoterStanding(is_far_behind=True), 2, "far behind the leader"),
    ],
)
def test_what_is_missing_is_said(standing, leader_id, sentence):
    assert sentence in reasons(standing, leader_id)[-1]


def test_a_lost_quorum_is_said_and_logged_with_what_to_do():
    status = VoterStatus()
    with capture_logs() as logs:
        status.take(VoterStanding(replaced=(2, 3), is_lost=True))
        status.take(VoterStanding(replaced=(2, 3), is_lost=True))
    (reason,) = status.unready_reasons(None)
    assert "voters 2, 3" in reason
    assert "start them with their old disks" in reason
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [reason]


def test_only_what_the_image_lacks_is_recorded_and_all_of_it_at_once():
    image = MetadataImage(voters={1: ONE, 2: ONE})
    (unit,) = record_voters(image, {1: ONE, 2: TWO, 3: TWO})
    assert unit.records == (VoterIdentity(2, TWO), VoterIdentity(3, TWO))
    assert record_voters(image, {1: ONE, 2: ONE}) == []
