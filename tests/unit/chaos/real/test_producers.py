"""A producer of the workload whose client does not survive an error: another one takes its place."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kraft.chaos.experiments.document import Workload
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload import producers
from kraft.chaos.real.workload.producers import RecordProducer
from kraft.chaos.real.workload.recorder import Recorder

SPEC = Workload("idempotent-producer", "orders", rate=1000.0)


class Dying:
    """librdkafka, whose first client meets an error in whatever it is asked; the second one is to stop."""

    error = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True)
    client: RecordProducer
    lives = 0

    def __init__(self, _settings: dict[str, Any]) -> None:
        type(self).lives += 1
        self._dies = self.lives == 1

    def _asked(self) -> int:
        if self._dies:
            raise KafkaException(self.error)
        self.client.stopping.set()
        return 0

    def poll(self, _timeout_s: float) -> int:
        return self._asked()

    def flush(self, _timeout_s: float) -> int:
        return self._asked()

    def purge(self) -> None:
        self._asked()

    def produce(self, *_: Any, **__: Any) -> None:
        """Nobody answers."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> RecordProducer:
    recorder = Recorder({"orders": b"o" * 16}, {"orders": 1})
    made = RecordProducer("producer-1", Brokers("127.0.0.1:1"), recorder, SPEC, idempotent=True)
    monkeypatch.setattr(producers, "Producer", Dying)
    monkeypatch.setattr(Dying, "lives", 0)
    monkeypatch.setattr(Dying, "client", made, raising=False)
    return made


def test_after_a_fatal_error_another_client_goes_on(client: RecordProducer) -> None:
    client.run()
    assert Dying.lives == 2
    assert client.recorder.problems == []


def test_any_other_error_is_a_problem_of_the_run(
    client: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dying, "error", KafkaError(KafkaError._INVALID_ARG, "what is this"))
    client.run()
    assert Dying.lives == 1
    (problem,) = client.recorder.problems
    assert "producer-1 ended: KafkaException" in problem
