"""What is remembered of passwords that were right, and until when."""

from __future__ import annotations

import pytest

from kraft.security import password_verdicts
from kraft.security.password_verdicts import Question, Verdicts
from kraft.security.sasl_servers import CODES, ScramUsers
from kraft.security.scram import HASHES, salted_password, scram_keys
from quorum.metadata.records import UserScramCredential


def credential(name: str, password: str, mechanism: str, salt: bytes = b"salt") -> UserScramCredential:
    keys = scram_keys(mechanism, salted_password(mechanism, password, salt, 4096))
    return UserScramCredential(name, CODES[mechanism], salt, keys.stored, keys.server, 4096)


class World:
    def __init__(self, *credentials: UserScramCredential) -> None:
        self.put(*credentials)
        self.verdicts = Verdicts(ScramUsers(lambda: self.credentials, b"secret"), b"key")

    def put(self, *credentials: UserScramCredential) -> None:
        self.credentials = {(one.name, one.mechanism): one for one in credentials}

    def logs_in(self, name: str, password: str) -> bool:
        question = self.verdicts.ask(name, password)
        right = question.answer()
        if right is not None:
            self.verdicts.note(question, right)
        return right is not None

    def remembers(self, name: str, password: str) -> bool:
        return self.verdicts.knows(self.verdicts.ask(name, password))


@pytest.mark.parametrize("mechanism", HASHES)
def test_who_is_right_by_either_mechanism_is_remembered_and_nobody_else(mechanism: str) -> None:
    world = World(credential("alice", "right", mechanism))
    assert not world.remembers("alice", "right")
    assert world.logs_in("alice", "right")
    assert world.remembers("alice", "right")
    for name, password in (("alice", "wrong"), ("alicer", "ight"), ("nobody", "right"), ("alice", "")):
        assert not world.logs_in(name, password)
        assert not world.remembers(name, password)


def test_a_false_credential_lets_nobody_in_whatever_the_password() -> None:
    assert not World().logs_in("nobody", "")


def test_it_is_forgotten_when_the_user_changes_or_goes() -> None:
    mechanism = "SCRAM-SHA-512"
    world = World(credential("alice", "right", mechanism))
    world.logs_in("alice", "right")
    world.put(credential("alice", "right", mechanism), credential("bob", "x", mechanism))
    assert world.remembers("alice", "right"), "another user is no matter"
    world.put(credential("alice", "new", mechanism))
    assert not world.remembers("alice", "right")
    assert not world.logs_in("alice", "right")
    world.put(credential("alice", "right", mechanism))
    assert not world.remembers("alice", "right"), "it was forgotten for good"
    world.logs_in("alice", "right")
    world.put()
    assert not world.remembers("alice", "right")


def test_so_many_are_remembered_and_the_longest_unused_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_verdicts, "VERDICTS_MAX", 2)
    world = World(*(credential(name, "p", "SCRAM-SHA-256") for name in "abc"))
    world.logs_in("a", "p")
    world.logs_in("b", "p")
    assert world.remembers("a", "p")
    world.logs_in("c", "p")
    assert [name for name in "abc" if world.remembers(name, "p")] == ["a", "c"]


def test_no_password_is_shown() -> None:
    question: Question = World().verdicts.ask("alice", "hidden-words")
    assert "hidden-words" not in repr(question)
    assert "hidden-words" not in str(question)
