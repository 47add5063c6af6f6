"""A client of the workload: a thread that runs librdkafka until it is told to stop."""

from __future__ import annotations

import threading
import traceback
from abc import abstractmethod
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload.recorder import Recorder

SETTINGS: Final[dict[str, Any]] = {
    "log_level": 0,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
}
"""As librdkafka comes, but for waits that would outlast an experiment; it reports errors to its caller and need not
print them too."""
END_S: Final = 60.0


class Client(threading.Thread):
    """`run` goes on until `stopping` is set; what ends it before is a problem of the run."""

    def __init__(self, name: str, brokers: Brokers, recorder: Recorder) -> None:
        super().__init__(name=name, daemon=True)
        self.brokers = brokers
        self.recorder = recorder
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - whatever ends a client is for the run to tell
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.recorder.problem(
                f"client {self.name} ended: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
            )

    @abstractmethod
    def work(self) -> None:
        """Works until `stopping` is set; returns when all outcomes that will come are recorded."""


def error_of(error: KafkaException) -> KafkaError:
    """librdkafka's error in its exception."""
    found = error.args[0]
    assert isinstance(found, KafkaError), "librdkafka raises nothing else"
    return found
