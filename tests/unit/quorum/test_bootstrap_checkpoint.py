"""The file of chosen levels: what was written is read, and what is damaged is not taken for a choice."""

from __future__ import annotations

import pytest

from partitions.log.errors import DataDirectoryError
from quorum.bootstrap_checkpoint import Bootstrap, decode_bootstrap, encode_bootstrap
from quorum.metadata.records import UserScramCredential

USER = UserScramCredential("a b", 2, b"salt", b"stored", b"server", 8192)


def test_it_is_kafkas_form_of_checkpoints() -> None:
    levels = {"metadata.version": 25, "group.version": 0}
    content = encode_bootstrap(Bootstrap(levels))
    assert content == b"0\n2\ngroup.version 0\nmetadata.version 25\n"
    assert decode_bootstrap(content, "f") == Bootstrap(levels)
    assert decode_bootstrap(encode_bootstrap(Bootstrap()), "f") == Bootstrap()


def test_users_stand_beside_levels() -> None:
    chosen = Bootstrap({"group.version": 0}, (USER,))
    content = encode_bootstrap(chosen)
    assert content == b"1\n2\nfeature group.version 0\nuser 2 8192 YSBi c2FsdA== c3RvcmVk c2VydmVy\n"
    assert decode_bootstrap(content, "f") == chosen


@pytest.mark.parametrize(
    "content",
    [
        b"1\n1\ngroup.version 0\n",
        b"2\n0\n",
        b"1\n1\nuser 3 8192 YQ== YQ== YQ== YQ==\n",
        b"1\n1\nuser 1 8192 YQ== YQ== YQ==\n",
        b"1\n1\nuser 1 8192 YQ== YQ== YQ== ?\n",
        b"1\n1\nuser 1 many YQ== YQ== YQ== YQ==\n",
        b"0\n1\ngroup.version 0\ngroup.version 0\n",
        b"0\n2\ngroup.version 0\ngroup.version 1\n",
        b"0\n1\ngroup.version -1\n",
        b"0\n1\ngroup.version 0 1\n",
        b"0\n1\n\xff\n",
    ],
)
def test_another_text_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(DataDirectoryError, match=r"^/d/bootstrap\.checkpoint is damaged"):
        decode_bootstrap(content, "/d/bootstrap.checkpoint")


def test_no_beginning_of_a_file_is_taken_for_the_whole() -> None:
    content = encode_bootstrap(Bootstrap({"group.version": 0, "metadata.version": 25}, (USER,)))
    for end in range(len(content)):
        with pytest.raises(DataDirectoryError):
            decode_bootstrap(content[:end], "f")
