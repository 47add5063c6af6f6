"""asyncio's own promises hold on the simulated loop."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from kraft.chaos.world.simulation import Simulation

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


def test_time_jumps_to_the_next_timer(play):
    seen = []

    async def program(process):
        loop = asyncio.get_running_loop()
        for delay in (0.5, 3600.0, 0.25):
            before = loop.time()
            await asyncio.sleep(delay)
            seen.append(round(loop.time() - before, 3))

    simulation = play(program, seconds=4000)
    assert seen == [0.5, 3600.0, 0.25]
    assert simulation.now == 4000
    assert simulation.scheduler.steps < 20


def test_who_looks_in_the_middle_of_a_run_sees_the_step_of_now(play):
    seen = []

    async def program(process):
        scheduler = process.host.simulation.scheduler
        for _ in range(5):
            seen.append(scheduler.steps)
            await asyncio.sleep(0)

    simulation = play(program)
    assert seen == list(range(seen[0], seen[0] + 5))
    assert seen[0] > 0
    assert seen[-1] < simulation.scheduler.steps


def test_callbacks_run_in_order_of_time_then_of_scheduling(play):
    seen = []

    async def program(process):
        loop = asyncio.get_running_loop()
        now = loop.time()
        for name, delay in (("c", 2), ("a", 1), ("b", 1), ("d", 2)):
            loop.call_at(now + delay, seen.append, name)
        loop.call_soon(seen.append, "soon 1")
        loop.call_soon_threadsafe(seen.append, "soon 2")
        cancelled = loop.call_later(1, seen.append, "never")
        cancelled.cancel()
        await asyncio.sleep(3)

    play(program)
    assert seen == ["soon 1", "soon 2", "a", "b", "c", "d"]


def test_spinning_on_sleep_0_lets_time_pass(play):
    seen = []

    async def program(process):
        timer = asyncio.get_running_loop().call_later(0.01, seen.append, "due")
        spins = 0
        while not seen:
            await asyncio.sleep(0)
            spins += 1
        timer.cancel()
        seen.append(spins)

    play(program)
    assert seen[0] == "due"
    assert 1000 <= seen[1] <= 2010


def test_primitives(play):
    seen = []

    async def program(process):
        event, condition, queue = asyncio.Event(), asyncio.Condition(), asyncio.Queue(maxsize=1)
        lock, semaphore = asyncio.Lock(), asyncio.Semaphore(2)

        async def wait_for_all():
            await event.wait()
            async with condition:
                await condition.wait_for(lambda: len(seen) >= 3)
            async with lock, semaphore:
                seen.append("woken")

        async def fill():
            for number in range(3):
                await queue.put(number)

        waiter = asyncio.create_task(wait_for_all())
        filler = asyncio.create_task(fill())
        for _ in range(3):
            seen.append(await queue.get())
        event.set()
        await asyncio.sleep(0)
        async with condition:
            condition.notify_all()
        await asyncio.gather(waiter, filler)

    play(program)
    assert seen == [0, 1, 2, "woken"]


async def fail_together():
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(100))
        group.create_task(asyncio.wait_for(asyncio.sleep(100), 0.5))


def test_timeouts_and_cancellation(play):
    seen = []

    async def program(process):
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.sleep(100)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 0.5)
        done, pending = await asyncio.wait(
            {asyncio.create_task(asyncio.sleep(n)) for n in (0.1, 9)}, timeout=1
        )
        for task in pending:
            task.cancel()
        assert [len(done), len(pending)] == [1, 1]
        with pytest.raises(ExceptionGroup):
            await fail_together()
        seen.append(round(loop.time(), 2))

    play(program)
    assert seen == [3.5]


def test_cancelled_timers_do_not_pile_up(play):
    async def program(process):
        for _ in range(20_000):
            async with asyncio.timeout(30):
                await asyncio.sleep(0)

    simulation = play(program, seconds=5)
    assert len(simulation.scheduler.heap) < 4_000


def test_context_variables_belong_to_their_task_and_node(play):
    seen = []

    async def task(name):
        variable.set(name)
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_soon(lambda: seen.append(variable.get()))
        await asyncio.sleep(0.1)

    async def program(process):
        assert variable.get(None) is None
        variable.set(process.host.name)
        await asyncio.gather(task("one"), task("two"))
        seen.append(variable.get())

    variable.set("outside")
    play(program)
    play(program, program)
    assert seen[:3] == ["one", "two", "host-1"]
    assert sorted(seen[3:]) == ["host-1", "host-2", "one", "one", "two", "two"]
    assert variable.get() == "outside"


def test_streams(play):
    seen = []

    async def serve(process):
        async def on_connection(reader, writer):
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(on_connection, port=7)
        async with server:
            await asyncio.sleep(5)

    async def call(process):
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection("host-1", 7)
        writer.writelines([b"hello\n", b"world\n"])
        writer.write_eof()
        seen.append(await reader.read())
        writer.close()
        await writer.wait_closed()

    play(serve, call)
    assert seen == [b"HELLO\nWORLD\n"]


def test_executor_jobs_complete_later_and_elsewhere(play):
    seen = []

    def job(number):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        seen.append(("ran", number))
        return number * 2

    def fail():
        raise KeyError("lost")

    async def program(process):
        loop = asyncio.get_running_loop()
        before = loop.time()
        jobs = [asyncio.create_task(process.executor.run(job, number)) for number in range(20)]
        loop.call_soon(seen.append, "other work")
        assert await asyncio.gather(*jobs) == [number * 2 for number in range(20)]
        assert seen[0] == "other work"
        assert loop.time() - before > 20 / 4 * 20e-6
        with pytest.raises(KeyError, match="lost"):
            await process.executor.run(fail)
        assert await loop.run_in_executor(None, job, 21) == 42
        assert asyncio.get_running_loop() is loop

    play(program)
    assert len(seen) == 22


def test_a_cancelled_caller_drops_a_job_that_waits(play):
    async def program(process):
        ran = []
        jobs = [asyncio.create_task(process.executor.run(ran.append, number)) for number in range(100)]
        await asyncio.sleep(0)
        for job in jobs[10:]:
            job.cancel()
        await asyncio.wait(jobs)
        assert sorted(ran) == list(range(10))
        assert await process.executor.run(len, "ab") == 2

    play(program)


def test_abandoned_async_generators_are_closed_by_their_loop(play):
    seen = []

    async def numbers():
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0)
            seen.append(asyncio.get_running_loop())

    async def program(process):
        async for _ in numbers():
            break
        await asyncio.sleep(0.1)
        assert seen == [process.loop]

    play(program)
    assert len(seen) == 1


def test_unhandled_errors_are_reported_and_a_handler_may_take_them():
    taken = []

    async def program(process):
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.1)
        loop.set_exception_handler(lambda _, context: taken.append(type(context["exception"])))
        loop.call_soon(lambda: [][0])
        await asyncio.sleep(0.1)
        raise KeyError("the program fails")

    with Simulation(1) as simulation:
        host = simulation.add_host()
        host.start(program)
        simulation.run_until(1)
        assert not host.alive
    assert [type(error.error) for error in simulation.errors] == [ZeroDivisionError, KeyError]
    assert taken == [IndexError]


def test_a_program_that_returns_cleans_up_and_exits():
    seen = []

    async def background():
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.5)
            seen.append("cleaned up")

    with Simulation(1) as simulation:
        host = simulation.add_host()
        tasks = []

        async def main(process):
            tasks.append(asyncio.create_task(background()))
            await asyncio.sleep(0)

        host.start(main)
        simulation.run_until(5)
        assert not host.alive
        assert seen == ["cleaned up"]
        host.restart()
        assert host.alive


def test_what_is_not_simulated_says_so(play):
    async def program(process):
        loop = asyncio.get_running_loop()
        with pytest.raises(NotImplementedError, match="TLS"):
            await loop.create_connection(asyncio.Protocol, "host-1", 1, ssl=True)
        with pytest.raises(NotImplementedError):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol)
        with pytest.raises(RuntimeError, match="Executor port"):
            loop.run_in_executor(object(), print)

    play(program)


def test_running_until_something_holds():
    seen = []

    async def program(process):
        await asyncio.sleep(3)
        seen.append("done")
        await asyncio.Event().wait()

    with Simulation(1) as simulation:
        simulation.add_host().start(program)
        assert not simulation.run_until_true(lambda: bool(seen), within_s=2)
        assert simulation.now == 2
        assert simulation.run_until_true(lambda: bool(seen), within_s=2)
        assert 3 <= simulation.now < 3.02
