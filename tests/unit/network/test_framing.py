"""FrameBuffer: cuts frames wherever the stream is cut, never overwrites a view, never trusts a length."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.network.framing import (
    MAX_WINDOW_BYTES,
    MIN_WINDOW_BYTES,
    SPARE_BYTES,
    UNPROVEN_FRAME_BYTES,
    FrameBuffer,
    FrameError,
)
from tests.support.examples import examples

MIB = 1024 * 1024


def wire(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(frames: FrameBuffer, data: bytes) -> list[memoryview]:
    """Delivers `data` as a transport would; returns the frames that became whole."""
    view = memoryview(data)
    taken: list[memoryview] = []
    while view:
        room = frames.writable()
        assert len(room) > 0
        size = min(len(room), len(view))
        room[:size] = view[:size]
        frames.advance(size)
        view = view[size:]
        while len(batch := frames.take(3)) == 3:
            taken += batch
        taken += batch
    return taken


def new(max_frame_bytes: int = 100 * MIB) -> FrameBuffer:
    return FrameBuffer(max_frame_bytes=max_frame_bytes, min_frame_bytes=1)


def body_of(index: int, size: int) -> bytes:
    return (b"%07d." % index * (size // 8 + 1))[:size]


@settings(max_examples=examples(50), deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(1, 300), st.integers(3000, 90_000), st.just(400_000)), max_size=12),
    cuts=st.lists(st.integers(1, 200_000), min_size=1, max_size=40),
)
def test_frames_survive_any_cut_and_are_never_overwritten(sizes: list[int], cuts: list[int]) -> None:
    bodies = [body_of(index, size) for index, size in enumerate(sizes)]
    stream = wire(*bodies)
    frames = new()
    taken: list[memoryview] = []
    position = 0
    turn = 0
    while position < len(stream):
        cut = cuts[turn % len(cuts)] + len(stream) // 500
        taken += feed(frames, stream[position : position + cut])
        position += cut
        turn += 1
    # All views are still held here: each must show what it showed when it was handed out.
    assert [bytes(view) for view in taken] == bodies
    assert frames.pending_bytes == 0


def test_a_length_alone_allocates_next_to_nothing() -> None:
    frames = new()
    assert feed(frames, struct.pack(">i", 100 * MIB) + b"x" * 100) == []
    frames.writable()
    assert frames.capacity_bytes <= UNPROVEN_FRAME_BYTES


def test_a_large_frame_grows_with_its_data() -> None:
    frames = new()
    body = body_of(1, 5 * MIB)
    stream = wire(body)
    fed = 0
    taken: list[memoryview] = []
    for start in range(0, len(stream), 64 * 1024):
        taken += feed(frames, stream[start : start + 64 * 1024])
        fed += 64 * 1024
        assert frames.capacity_bytes <= max(UNPROVEN_FRAME_BYTES, 2 * fed)
    assert [bytes(view) for view in taken] == [body]


def test_a_connection_that_delivered_large_frames_gets_buffers_of_exactly_their_size() -> None:
    frames = new()
    body = body_of(1, MIB)
    feed(frames, wire(body))
    feed(frames, wire(body)[:MIN_WINDOW_BYTES])
    frames.writable()
    assert frames.capacity_bytes == MIB + 4
    (view,) = feed(frames, wire(body)[MIN_WINDOW_BYTES:])
    assert view.obj is not None
    assert len(view.obj) == MIB + 4
    assert frames.capacity_bytes == 0  # nothing but the view holds the memory


def test_small_pipelined_frames_share_one_buffer() -> None:
    frames = new()
    first, second = feed(frames, wire(b"a" * 100, b"b" * 100))
    assert first.obj is second.obj


def test_the_receive_buffer_grows_with_the_traffic_and_is_given_back_when_idle() -> None:
    frames = new()
    for _ in range(40):
        feed(frames, wire(*[b"z" * 500] * 200))
    assert MIN_WINDOW_BYTES < frames.capacity_bytes <= MAX_WINDOW_BYTES
    frames.release_idle_memory()
    assert frames.capacity_bytes == 0
    assert [bytes(view) for view in feed(frames, wire(b"again"))] == [b"again"]


def test_idle_memory_is_kept_while_half_a_frame_waits_in_it() -> None:
    frames = new()
    feed(frames, wire(b"half")[:6])
    frames.release_idle_memory()
    assert [bytes(view) for view in feed(frames, wire(b"half")[6:])] == [b"half"]


@pytest.mark.parametrize("length", [-1, 0, 7, 1001, 2**31 - 1, -(2**31)])
def test_a_length_outside_the_limits_is_an_error(length: int) -> None:
    frames = FrameBuffer(max_frame_bytes=1000, min_frame_bytes=8)
    with pytest.raises(FrameError, match=str(abs(length))):
        feed(frames, struct.pack(">i", length) + b"data")


@pytest.mark.parametrize(
    ("head", "says"),
    [(b"HTTP/1.1 400 ", "does not speak Kafka"), (b"\x15\x03\x03\x00\x02\x02\x28", "is encrypted")],
)
def test_what_a_client_meets_at_another_port(head: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        feed(new(), head)


def test_frames_before_a_bad_length_are_delivered_first() -> None:
    frames = FrameBuffer(max_frame_bytes=1000, min_frame_bytes=1)
    room = frames.writable()
    stream = wire(b"good") + struct.pack(">i", -5)
    room[: len(stream)] = stream
    frames.advance(len(stream))
    assert [bytes(view) for view in frames.take(10)] == [b"good"]
    with pytest.raises(FrameError):
        frames.take(10)


def test_take_leaves_what_is_beyond_its_limit() -> None:
    frames = new()
    stream = wire(b"1", b"2", b"3")
    frames.writable()[: len(stream)] = stream
    frames.advance(len(stream))
    assert [bytes(view) for view in frames.take(2)] == [b"1", b"2"]
    assert [bytes(view) for view in frames.take(2)] == [b"3"]


def test_a_large_frame_gets_the_memory_of_the_one_before_when_nobody_looks_at_it() -> None:
    frames = new()
    first = body_of(1, MIB)
    (view,) = feed(frames, wire(first))
    memory = id(view.obj)
    del view
    (view,) = feed(frames, wire(body_of(2, MIB - 100)))
    assert id(view.obj) == memory
    assert bytes(view) == body_of(2, MIB - 100)


def test_memory_of_which_a_part_is_held_is_not_used_again() -> None:
    frames = new()
    first = body_of(1, MIB)
    (view,) = feed(frames, wire(first))
    part = view[100:200]
    del view
    (view,) = feed(frames, wire(body_of(2, MIB)))
    assert view.obj is not part.obj
    assert bytes(part) == first[100:200]


def test_the_memory_of_a_very_large_frame_is_not_kept() -> None:
    frames = new()
    (view,) = feed(frames, wire(body_of(1, SPARE_BYTES + MIB)))
    del view
    assert frames.spare_bytes == 0


def test_an_idle_connection_keeps_no_memory_for_a_next_large_frame() -> None:
    frames = new()
    feed(frames, wire(body_of(1, MIB)))
    assert frames.spare_bytes > 0
    frames.release_idle_memory()
    assert frames.spare_bytes == 0


def test_a_full_receive_buffer_is_used_again_when_nobody_looks_at_it() -> None:
    frames = new()
    memories = set()
    for number in range(8):  # more than one buffer has room for
        (frame,) = feed(frames, wire(bytes([number]) * 900))
        assert frame == bytes([number]) * 900
        memories.add(id(frame.obj))
        del frame
    assert len(memories) == 1


def test_a_receive_buffer_of_which_a_frame_is_held_is_not() -> None:
    frames = new()
    held = [feed(frames, wire(bytes([number]) * 900))[0] for number in range(8)]
    assert [bytes(frame) for frame in held] == [bytes([number]) * 900 for number in range(8)]
    assert len({id(frame.obj) for frame in held}) > 1
