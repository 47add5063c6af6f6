"""What must be so at the end of a run."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kraft.chaos.oracles.convergence import Convergence
from quorum.metadata.image import MetadataImage
from tests.unit.chaos.oracles.model import NODES, Model


@pytest.fixture
def model() -> Model:
    model = Model()
    model.committed(3)
    return model


def judge(
    model: Model,
    images: dict[str, MetadataImage] | None = None,
    *,
    beyond_repair: bool = False,
    high_watermarks: dict[int, int] | None = None,
) -> list[str]:
    def segments_in(node: int, directory: str) -> Sequence[bytes]:
        assert directory == f"/data/{node}"
        return [b"".join(model.disks[node])]

    convergence = Convergence(
        model.verdicts,
        model.metadata,
        model.replication,
        segments_in,
        lambda key: beyond_repair,
        lambda node, key: (high_watermarks or {}).get(node),
    )
    convergence.judge({"controller 1": model.image()} if images is None else images)
    return model.oracles


def test_equal_replicas_are_fine(model: Model) -> None:
    assert judge(model) == []


def test_every_acknowledged_write_reaches_all_replicas(model: Model) -> None:
    model.change(isr=(1, 2))
    model.cut(3, 2)
    assert judge(model) == ["liveness"]


def test_the_end_of_the_log_is_committed(model: Model) -> None:
    model.append(3, *NODES)
    assert judge(model) == ["liveness"]


def test_every_replica_knows_what_is_committed(model: Model) -> None:
    assert judge(model, high_watermarks={1: 3, 2: 3, 3: 3}) == []
    assert judge(model, high_watermarks={1: 3, 2: 2}) == ["liveness"]


def test_replicas_of_one_length_hold_the_same(model: Model) -> None:
    model.change(isr=(1, 2))
    model.cut(3, 2)
    model.append(2, 3, value=b"other")
    assert judge(model) == ["log-matching"]


def test_replicas_need_not_begin_at_the_same_offset(model: Model) -> None:
    model.replicas.start_raised((next(iter(model.image().topics)), 0), 3, 2, by_retention=True)
    assert judge(model) == []


def test_disks_hold_what_was_committed(model: Model) -> None:
    model.disks[2][1] = bytes(len(model.disks[2][1]))
    assert judge(model) == ["no-committed-record-lost"]


def test_everybody_has_the_newest_metadata(model: Model) -> None:
    old = model.image()
    model.commit_metadata()
    assert judge(model, {"broker 2": old}) == ["liveness"]


def test_images_are_equal_at_the_end(model: Model) -> None:
    images = {"controller 1": model.image(), "broker 2": replace(model.image(), next_producer_id=1)}
    assert judge(model, images) == ["metadata-agreement"]


def test_what_rotted_and_nobody_read_is_no_difference(model: Model) -> None:
    model.rot(2, 1)
    model.running.pop(3)
    model.rot(3, 2)
    model.restart(3)
    assert judge(model) == []


def rot_everywhere(model: Model) -> None:
    """One copy after the other is found to be damaged; the last one stays eligible."""
    for node in NODES:
        model.rot(node, 1)
    model.change(isr=(1, 2), elr=(), offline_replicas=(3,))
    model.change(isr=(1,), elr=(), offline_replicas=(2, 3))
    model.change(isr=(), leader=-1, elr=(1,), offline_replicas=NODES)
    assert model.oracles == []


def test_a_partition_without_a_sound_copy_need_not_converge(model: Model) -> None:
    model.append(3, 1)
    rot_everywhere(model)
    assert judge(model) == ["liveness"]
    model.verdicts.violations.clear()
    assert judge(model, {}, beyond_repair=True) == []


@pytest.mark.parametrize("number", [0, 2])
def test_of_such_a_copy_only_what_rotted_is_excused(model: Model, number: int) -> None:
    rot_everywhere(model)
    del model.disks[2][number]
    assert judge(model, {}, beyond_repair=True) == ["no-committed-record-lost"]
