"""One Spark job: each task runs `write_slice` in a Python worker, and its result comes back to the driver.

The rows never cross into the JVM, which only schedules. A worker hands a failure of its slice back as a value, so that
it arrives as the error that it is; what Spark itself reports (a worker that was killed, a JVM that is gone) becomes a
JobFailedError. The session starts with the first job: a run without news starts no JVM. `run.py` takes anything that
maps tasks to results.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from kraft.ingest.model import IngestError, SliceResult, SliceTask
from kraft.spark.errors import ConnectorError

_REASON_CHARACTERS = 500


class JobFailedError(IngestError):
    """Spark did not run the tasks to their end; they may be tried again under other names."""


class SparkGoneError(IngestError):
    """The JVM has ended: this process can start no other."""


class _Failure(NamedTuple):
    error: ConnectorError


class SparkJobs:
    """Call it with tasks. Not for several threads; `close` ends the session, but not one that is given."""

    def __init__(self, master: str | None = None, *, session: Any = None) -> None:
        self._master = master
        self._session = session
        self._is_ours = session is None

    def __call__(self, tasks: Sequence[SliceTask]) -> list[SliceResult]:
        """In the order of the tasks. Raises the ConnectorError of a slice, JobFailedError, SparkGoneError."""
        from py4j.protocol import Py4JError, Py4JNetworkError
        from pyspark.errors import PySparkException

        try:
            if self._session is None:
                self._session = self._start()
            context = self._session.sparkContext
            answers = context.parallelize(tasks, len(tasks)).map(run_task).collect()
        except (Py4JNetworkError, OSError, EOFError) as error:
            raise SparkGoneError(
                f"Spark's JVM has ended ({_reason(error)}). Nothing of this cut was committed: run the command again."
            ) from error
        except (Py4JError, PySparkException) as error:
            raise JobFailedError(f"The Spark job failed: {_reason(error)}.") from error
        for answer in answers:
            if isinstance(answer, _Failure):
                raise answer.error
        return list(answers)

    def close(self) -> None:
        """Idempotent."""
        session, self._session = self._session, None
        if session is None or not self._is_ours:
            return
        from py4j.protocol import Py4JError

        try:
            session.stop()
        except (Py4JError, OSError):  # the JVM is gone, and with it all that was to be stopped
            return

    def _start(self) -> Any:
        """Signals stay as they are: Spark would end the process on Ctrl-C, in the middle of a commit.

        Nor does a signal to the whole group, which service managers send, reach the JVM: the cut at hand is finished.
        """
        from kraft.spark.java import NoJavaError
        from kraft.spark.session import start_session

        before = signal.getsignal(signal.SIGINT)
        try:
            return start_session("kraft ingest", self._master or f"local[{os.cpu_count() or 1}]", apart=True)
        except NoJavaError as error:
            raise IngestError(str(error)) from error
        finally:
            signal.signal(signal.SIGINT, before)


def run_task(task: SliceTask) -> SliceResult | _Failure:
    """In a worker. Spark may try a task again while its first attempt still writes: each has names of its own."""
    from pyspark import TaskContext

    from kraft.ingest.writing import write_slice

    context = TaskContext.get()
    assert context is not None
    try:
        return write_slice(task._replace(name=f"{task.name}-{context.taskAttemptId()}"))
    except ConnectorError as error:
        return _Failure(error)
    except OSError as error:
        return _Failure(
            IngestError(f"The rows of {task.part} could not be written to {task.folder}: {error}.")
        )


def _reason(error: BaseException) -> str:
    """The lines that name the cause, without Java's and Python's stacks."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(("at ", "File ", "Traceback", "..."))]
    return " ".join(telling)[:_REASON_CHARACTERS].rstrip(".") or type(error).__name__
