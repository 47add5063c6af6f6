"""The client's half of a fetch session with one broker (KIP-227).

An incremental request names partitions that are new, changed or gone since the last one; its answer leaves out
those without news. If the broker does not know the session any more, or an answer may be lost, the next request
names everything and asks for a new session. It is written apart from the product's own followers, so that brokers
are judged by another reading of the protocol. `reader` keeps one for every broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

Key = tuple[bytes, int]
"""Topic id and partition."""

NO_SESSION, NEW_SESSION, WITHOUT_SESSION = 0, 0, -1
"""A session id, and two epochs."""
SESSION_ERRORS = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


class ReadSession:
    """One session after another, with one request at a time."""

    __slots__ = ("_epoch", "_id", "_known", "_wanted")

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, NEW_SESSION
        self._known: dict[Key, tuple[int, int]] = {}
        """The partitions that the broker knows: offset and leader epoch."""
        self._wanted: dict[Key, tuple[int, int]] = {}
        """The partitions that it knows once it has taken the request under way."""

    @property
    def is_full(self) -> bool:
        """Whether the request under way, or else the next one, names everything."""
        return self._epoch == NEW_SESSION

    def name(self, request: FetchRequest, wanted: Mapping[Key, FetchPartition]) -> None:
        """Puts into a request everything that it needs to fetch all of `wanted`."""
        self._wanted = {key: (one.fetch_offset, one.current_leader_epoch) for key, one in wanted.items()}
        request.session_id, request.session_epoch = self._id, self._epoch
        known = {} if self.is_full else self._known
        request.topics = by_topic(
            (key[0], one) for key, one in wanted.items() if known.get(key) != self._wanted[key]
        )
        gone: dict[bytes, ForgottenTopic] = {}
        for topic_id, number in known.keys() - self._wanted.keys():
            gone.setdefault(topic_id, ForgottenTopic("", topic_id, [])).partitions.append(number)
        request.forgotten_topics_data = [gone[topic_id] for topic_id in sorted(gone)]
        for topic in request.forgotten_topics_data:
            topic.partitions.sort()

    def answered(self, answer: FetchResponse) -> bool:
        """Takes the answer; False if the broker refuses the session and has to be asked anew."""
        code = ErrorCode.of(answer.error_code)
        if code in SESSION_ERRORS and not self.is_full:
            self.lost()
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            return False
        if answer.session_id == NO_SESSION or answer.error_code:
            self._id, self._epoch = NO_SESSION, NEW_SESSION
        else:
            self._id, self._epoch = answer.session_id, self._epoch + 1
            self._known = self._wanted
        return True

    def lost(self) -> None:
        """Notes that the broker may not have taken the request: the next one begins anew, and ends this session."""
        self._epoch = NEW_SESSION


def by_topic(wanted: Iterable[tuple[bytes, FetchPartition]]) -> list[FetchTopic]:
    """Partitions under their topics, as in a request, in the given order."""
    topics: dict[bytes, FetchTopic] = {}
    for topic_id, partition in wanted:
        topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[])).partitions.append(partition)
    return list(topics.values())
