"""The same requests give the same log, byte for byte, whatever seed Python hashes with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LIFE = """
import hashlib, random
from quorum.metadata.acls import Acl, AclFilter
from quorum.metadata.image import MetadataImage
from quorum.rpc import messages as m
from tests.support.controller_world import World, registration

dice = random.Random({seed})
world = World(seed={seed})
names = [f"topic-{{n}}" for n in range(8)]
def acl():
    principal = f"User:u{{dice.randrange(3)}}"
    return Acl(2, dice.choice(names), dice.choice([3, 4]), principal, "*", dice.randint(2, 12), dice.choice([2, 3]))
for broker in range(1, 8):
    world.register(broker, rack="abc"[broker % 3])
    world.heartbeat(broker)
for _ in range(250):
    match dice.randrange(8):
        case 0:
            keys = dice.sample(["retention.ms", "segment.ms", "max.message.bytes"], 2)
            configs = tuple((key, "1000") for key in keys)
            topic = m.NewTopic(dice.choice(names), dice.randint(1, 9), dice.randint(1, 5), None, configs)
            world.call(m.CreateTopicsRequest((topic,)))
        case 1:
            world.call(m.DeleteTopicsRequest((m.TopicToDelete(name=dice.choice(names)),)))
        case 2:
            world.now_ms += 5000
            for broker in dice.sample(sorted(world.image.brokers), 5):
                world.heartbeat(broker)
            world.advance(4000)
        case 3:
            world.register(dice.randint(1, 7), incarnation=dice.randint(1, 3), rack="abc"[dice.randrange(3)])
        case 4:
            world.heartbeat(dice.choice(sorted(world.image.brokers)), shutdown=dice.random() < 0.3)
        case 5:
            world.lead()
        case 6:
            drawn = [acl() for _ in range(dice.randint(1, 4))]
            world.call(m.CreateAclsRequest(tuple(drawn)))
        case 7:
            one = acl()
            name = dice.choice([None, one.resource_name])
            wanted = AclFilter(1, name, dice.choice([1, 2]), one.principal, None, 1, 1)
            world.call(m.DeleteAclsRequest((wanted,)))
digest = hashlib.sha256()
for term, data in world.entries:
    digest.update(repr((term, data)).encode())
digest.update(repr(world.completed).encode())
digest.update(world.image.encode())
assert world.replay().encode() == world.image.encode() == MetadataImage.decode(world.image.encode()).encode()
assert world.image.acls, "some are there"
assert sum(len(topic.partitions) for topic in world.image.topics.values()) > 5
print(len(world.entries), digest.hexdigest())
"""


def live(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", LIFE.format(seed=seed)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hash_seeds_do_not_matter(seed: int) -> None:
    assert live(seed, "0") == live(seed, "4242")
