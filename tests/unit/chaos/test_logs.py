"""What nodes log is counted, noted, and judged by level and excuse."""

from __future__ import annotations

import io
import logging

import pytest
import structlog

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.logs import NodeLogs
from kraft.chaos.scenario import NodeSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.host import Process
from kraft.chaos.world.simulation import Simulation

log = structlog.get_logger(__name__)


@pytest.fixture
def stage():
    """A cluster whose only host runs a program of the test instead of a node."""
    with Simulation(1) as simulation:
        cluster = SimulatedCluster(simulation, [NodeSpec(1)])
        yield cluster, Verdicts(simulation.scheduler)


def run(stage, program, timeline=None) -> NodeLogs:
    cluster, verdicts = stage
    logs = NodeLogs(cluster, verdicts, timeline)

    async def main(process: Process) -> None:
        program(process)

    with logs.installed():
        cluster.hosts[1].start(main)
        cluster.simulation.run_for(0.1)
    return logs


def test_lines_are_counted_and_kept_with_their_values(stage):
    timeline = io.StringIO()
    logs = run(stage, lambda _: [log.info("hello", n=1), log.info("hello", n=2), log.info("bye")], timeline)
    assert logs.counts == {"hello": 2, "bye": 1}
    assert timeline.getvalue().count("LOG 10.0.0.1#1 info hello") == 2
    assert not stage[1].violations


def test_the_last_events_hold_no_repetition_and_no_chatter_of_libraries(stage):
    def program(_: Process) -> None:
        for number in (1, 2):
            log.info("hello", n=number)
            logging.getLogger("some_library").warning("%s goes on", number)
        log.info("hello", n=3)
        log.error("it broke")
        log.error("it broke")

    run(stage, program)
    assert [line.split(": ", 1)[1].rstrip() for line in stage[1].recent] == [
        "10.0.0.1#1 info hello n=1",
        "10.0.0.1#1 error it broke",
        "10.0.0.1#1 error it broke",
    ]


def test_debug_lines_are_dropped(stage):
    assert not run(stage, lambda _: log.debug("details")).counts


@pytest.mark.parametrize("level", ["error", "critical"])
def test_an_error_is_a_violation(stage, level):
    run(stage, lambda _: getattr(log, level)("it broke", why="age"))
    [violation] = stage[1].violations
    assert (violation.oracle, violation.text) == ("unexpected-error", "10.0.0.1#1 logged: it broke why=age")


def test_an_exception_is_told(stage):
    def program(_: Process) -> None:
        try:
            raise ValueError("too old")
        except ValueError:
            log.exception("it broke")

    run(stage, program)
    assert "ValueError: too old" in stage[1].violations[0].text


def test_libraries_are_judged_alike_and_their_arguments_stay_out_of_the_trace(stage):
    logs = run(stage, lambda process: logging.getLogger("library").error("lost %r", process))
    assert logs.counts == {"library: lost %r": 1}
    assert [violation.text for violation in stage[1].violations] == ["10.0.0.1#1 logged: library: lost %r"]


def test_an_excused_process_may_complain(stage):
    def program(_: Process) -> None:
        stage[0].excuse(1)
        log.error("my disk!")

    assert run(stage, program).counts == {"my disk!": 1}
    assert not stage[1].violations


def test_a_process_that_is_over_may_complain(stage):
    def program(process: Process) -> None:
        process.host.kill()
        log.error("this disk is not mine")

    run(stage, program)
    assert not stage[1].violations


def test_a_cut_below_the_high_watermark_is_left_to_the_oracles_of_replication(stage):
    assert run(stage, lambda _: log.error("truncated", partition="orders-0")).counts == {"truncated": 1}
    assert not stage[1].violations


def test_logging_is_put_back(stage):
    before, level, handlers = structlog.get_config(), logging.root.level, list(logging.root.handlers)
    run(stage, lambda _: None)
    assert structlog.get_config() == before
    assert (logging.root.level, logging.root.handlers) == (level, handlers)
