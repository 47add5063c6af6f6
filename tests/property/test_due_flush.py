"""What a replica lets count under flush.messages, over random appends, flushes, cuts and changes of the config."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partitions.log.config_values import LONG_MAX
from partitions.log.due_flush import DueFlush

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("flush begins"), st.just(0)),
        st.tuples(st.just("flush ends"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 8)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS, flush_messages=st.sampled_from((1, 2, 3, 5, LONG_MAX)))
def test_fewer_than_flush_messages_records_count_that_are_not_durable(
    steps: list[tuple[str, int]], flush_messages: int
) -> None:
    """With 1, nothing does. What a due flush covers counts once it is done; until then nothing more does."""
    due, end, durable = DueFlush(), 0, 0
    under_way: int | None = None
    for step, size in steps:
        before, was_outstanding = due.counted_end(end, durable), durable < due.due_to
        match step:
            case "append":
                due.appended(end, end + size, durable, flush_messages)
                end += size
                if was_outstanding:
                    assert due.counted_end(end, durable) == before, "it stands still"
                elif size >= flush_messages:
                    assert durable < due.due_to
            case "flush begins":
                under_way = end
            case "flush ends" if under_way is not None:
                durable, under_way = max(durable, under_way), None
                assert due.counted_end(end, durable) >= before
            case "cut":
                end = max(0, end - size)
                durable, under_way = min(durable, end), None
                due.cut(end)
            case "reopen":
                due, under_way = DueFlush(), None
                due.configured(end, durable, flush_messages)
        counted = due.counted_end(end, durable)
        assert durable <= counted <= end
        assert counted - durable < flush_messages
        if durable == end:
            assert counted == end
