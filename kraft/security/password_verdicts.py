"""Whether a name and a password are those of a SCRAM user, for whoever sends the password itself (HTTP Basic).

A salted password costs milliseconds to make (PBKDF2), which is what keeps passwords from being guessed. `Verdicts`
remembers who was right, by a keyed hash of what was sent, as long as the user's credential is the same. It remembers
nobody who was wrong. Pure: credentials and key are passed in; `kraft.http.login` has the work done beside the loop.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from typing import Final, NamedTuple

from kraft.security.sasl_servers import ScramUsers
from kraft.security.scram import HASHES, StoredCredential, salted_password, scram_keys

VERDICTS_MAX: Final = 1024


class _Candidate(NamedTuple):
    mechanism: str
    credential: StoredCredential
    is_users: bool


class Question(NamedTuple):
    """One name and password, with the credentials of this moment. May be given to another thread."""

    digest: bytes
    password: str
    candidates: tuple[_Candidate, ...]

    def __repr__(self) -> str:
        return "Question(…)"

    def answer(self) -> _Candidate | None:
        """The credential that the password is right for. Takes milliseconds, the same for each name: a user without a
        credential of some mechanism, and a name of nobody, have false ones, which are worked through, too."""
        found = None
        for candidate in self.candidates:
            mechanism, credential, is_users = candidate
            salted = salted_password(mechanism, self.password, credential.salt, credential.iterations)
            keys = scram_keys(mechanism, salted)
            is_right = hmac.compare_digest(keys.stored, credential.stored_key)
            if is_right and is_users:
                found = candidate
        return found


class Verdicts:
    """The users of one node."""

    def __init__(self, users: ScramUsers, key: bytes) -> None:
        """`key`: random, of this process alone."""
        self._users = users
        self._key = key
        self._right: OrderedDict[bytes, _Candidate] = OrderedDict()

    def ask(self, name: str, password: str) -> Question:
        """What has to be found out."""
        candidates = tuple(
            _Candidate(mechanism, *self._users.credential(mechanism, name)) for mechanism in HASHES
        )
        text = len(name).to_bytes(4, "big") + name.encode() + password.encode()
        return Question(hmac.digest(self._key, text, "sha256"), password, candidates)

    def knows(self, question: Question) -> bool:
        """Whether it was found right before, and its user has that credential still."""
        found = self._right.get(question.digest)
        if found is None:
            return False
        if found not in question.candidates:
            del self._right[question.digest]
            return False
        self._right.move_to_end(question.digest)
        return True

    def note(self, question: Question, right: _Candidate) -> None:
        """It was right."""
        self._right[question.digest] = right
        if len(self._right) > VERDICTS_MAX:
            self._right.popitem(last=False)
