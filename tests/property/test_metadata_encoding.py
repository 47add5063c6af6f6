"""Whatever bytes arrive: they are read as written, or refused with the one error of their kind."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorum.controller.proposal import Proposal, ProposalFence, apply_proposal
from quorum.errors import MalformedImageError, MalformedMessageError, MalformedRecordError
from quorum.metadata import record_codec as codec
from quorum.metadata import records as r
from quorum.metadata.acls import Acl, AclFilter
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.rpc import message_codec
from quorum.rpc.messages import METHODS

ids = st.integers(0, 2**31 - 1)
uuids = st.binary(min_size=16, max_size=16)
offsets = st.integers(0, 2**63 - 1)
short = st.text(max_size=20)
isrs = st.lists(ids, max_size=4, unique=True).map(tuple)
listeners = st.builds(r.Listener, short, short, st.integers(0, 65535), short)
levels = st.integers(0, 2**15 - 1)
features = st.tuples(short, levels, levels).map(lambda range_: (range_[0], *sorted(range_[1:])))
mechanisms = st.sampled_from([r.SCRAM_SHA_256, r.SCRAM_SHA_512])
entities = st.dictionaries(short, short, min_size=1, max_size=2).map(
    lambda names: tuple(sorted(names.items()))
)
recovery = st.sampled_from([r.RECOVERED, r.RECOVERING])

codes = st.integers(-128, 127)
names = st.none() | short
acls = st.builds(Acl, codes, short, codes, short, short, codes, codes)

any_record: st.SearchStrategy[r.Record] = st.one_of(
    st.builds(
        r.RegisterBroker,
        ids,
        uuids,
        st.lists(listeners, max_size=2).map(tuple),
        st.none() | short,
        st.lists(uuids, max_size=2).map(tuple),
        st.booleans(),
        st.just(-1) | offsets,
        st.booleans(),
        st.lists(features, max_size=2).map(tuple),
    ),
    st.builds(r.UnregisterBroker, ids, offsets),
    st.builds(r.BrokerChange, ids, offsets, st.none() | st.booleans(), st.none() | st.booleans()),
    st.builds(r.Topic, short, uuids),
    st.builds(r.Partition, uuids, ids, isrs, isrs, st.integers(-1, 5), ids, ids, recovery, *([isrs] * 5)),
    st.builds(
        r.PartitionChange,
        uuids,
        ids,
        st.none() | isrs,
        st.none() | st.integers(-1, 5),
        st.none() | recovery,
        *([st.none() | isrs] * 6),
        st.none() | st.integers(0, 5),
    ),
    st.builds(r.RemoveTopic, uuids),
    st.builds(r.Config, st.just("broker"), short, short, st.none() | short),
    st.builds(r.ProducerIds, ids, offsets, offsets),
    st.builds(r.NoOp),
    st.builds(r.FeatureLevel, short, levels),
    st.builds(r.VoterIdentity, ids, uuids),
    st.builds(
        r.UserScramCredential, short, mechanisms, *([st.binary(max_size=8)] * 3), st.integers(1, 2**31 - 1)
    ),
    st.builds(r.RemoveUserScramCredential, short, mechanisms),
    st.builds(r.AccessControlEntry, acls),
    st.builds(r.RemoveAccessControlEntry, acls),
    st.builds(r.ClientQuota, entities, short, st.none() | st.floats(allow_nan=False, allow_infinity=False)),
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.binary(max_size=20)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(st.lists(any_record, max_size=8))
def test_records_are_read_as_written(records: list[r.Record]) -> None:
    data = codec.encode_records(records)
    assert codec.decode_records(data) == records
    for record in records:
        codec.validate(record)


@given(st.lists(any_record, min_size=1, max_size=4), st.data())
def test_damaged_records_are_read_or_refused(records: list[r.Record], data: st.DataObject) -> None:
    encoded = bytearray(codec.encode_records(records))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    try:
        read = codec.decode_records(encoded)
    except MalformedRecordError:
        return
    assert codec.decode_records(codec.encode_records(read)) == read


@given(plain | st.lists(st.lists(plain, max_size=9), max_size=3))
def test_foreign_values_never_apply_and_never_raise(value: object) -> None:
    data = msgpack.packb(value)
    with pytest.raises(MalformedImageError):
        MetadataImage.decode(data)
    fence = ProposalFence(3, 2)
    for proposal in (
        data,
        Proposal(3, 2, data).encode(),
        Proposal(3, 2, codec.encode_record(r.NoOp())).encode()[:-1],
    ):
        applied = apply_proposal(EMPTY, fence, proposal, 5, 3)
        if not applied.accepted:
            assert applied.rejection
            assert (applied.image, applied.fence) == (EMPTY.at(5, 3), fence)
        else:
            assert not applied.records  # only an empty list is a list of records by chance


@given(st.binary(max_size=200))
def test_noise_is_rejected(noise: bytes) -> None:
    applied = apply_proposal(EMPTY, ProposalFence(), noise, 5, 3)
    assert not applied.accepted
    assert applied.image == EMPTY.at(5, 3)


@given(st.lists(any_record, max_size=5), st.integers(0, 3))
def test_a_proposal_applies_whole_or_not_at_all(records: list[r.Record], sequence: int) -> None:
    data = Proposal.of(3, sequence, records).encode()
    first = apply_proposal(EMPTY, ProposalFence(), data, 5, 3)
    assert first == apply_proposal(EMPTY, ProposalFence(), data, 5, 3)
    if first.accepted:
        assert sequence == 0
        assert first.records == tuple(records)
        assert MetadataImage.decode(first.image.encode()) == first.image
    else:
        assert first.image == EMPTY.at(5, 3)


# Messages


def strategy_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a message's field, as its type says."""
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: short,
        bytes: st.binary(max_size=20),
        bool: st.booleans(),
        r.Listener: listeners,
        Acl: acls,
        AclFilter: st.builds(AclFilter, codes, names, codes, names, names, codes, codes),
    }
    if hint in scalars:
        return scalars[hint]
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{field.name: strategy_of(hints[field.name]) for field in fields(hint)})
    arguments = get_args(hint)
    if get_origin(hint) is UnionType:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return st.none() | strategy_of(inner)
    if arguments[-1] is Ellipsis:
        return st.lists(strategy_of(arguments[0]), max_size=2).map(tuple)
    return st.tuples(*map(strategy_of, arguments))


MESSAGES = [message for rpc in METHODS.values() for message in (rpc.request, rpc.response)]


@pytest.mark.parametrize("message_class", MESSAGES, ids=lambda cls: cls.__name__)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_messages_are_read_as_written(message_class: type[Any], data: st.DataObject) -> None:
    message = data.draw(strategy_of(message_class))
    body = msgpack.unpackb(msgpack.packb(message_codec.encode(message)))
    assert message_codec.decode(message_class, body) == message
    for field in fields(message_class):
        if field.default is MISSING:
            with pytest.raises(MalformedMessageError, match=f"field {field.name} is missing"):
                message_codec.decode(message_class, {k: v for k, v in body.items() if k != field.name})
        with pytest.raises(MalformedMessageError, match=f"field {field.name}: "):
            message_codec.decode(message_class, {**body, field.name: 1.5})
    with pytest.raises(MalformedMessageError, match="is unknown"):
        message_codec.decode(message_class, {**body, "surprise": 1})


@given(plain)
def test_foreign_bodies_are_refused(value: object) -> None:
    if isinstance(value, dict):
        value = {f"x{key}": inner for key, inner in value.items()}
    with pytest.raises(MalformedMessageError):
        message_codec.decode_request("heartbeat", value)
    with pytest.raises(MalformedMessageError, match="serves no method"):
        message_codec.decode_request("format_disk", value)
