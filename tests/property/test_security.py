"""What comes from outside: any server's message and any text of a login module is taken, or refused as itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.security.jaas import JaasError, LoginModule, parse_jaas
from kraft.security.scram import SaslError, ScramClient
from tests.support.examples import examples

NONCE = "nonce"
PARTS = ["r=", NONCE, "s=", "QUJD", "i=", "4096", "4095", "v=", "e=", "m=", ",", "=", "x", "é", "\0"]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=3))), st.binary(max_size=20))
def test_any_challenge_is_answered_or_refused(parts: list[str], verdict: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "password", NONCE)
    try:
        answer = client.respond("".join(parts).encode("utf-8", "surrogatepass"))
    except SaslError:
        return
    assert answer is not None
    assert answer.startswith(f"c=biws,r={NONCE}".encode())
    try:
        client.respond(verdict)
    except SaslError:
        return
    raise AssertionError("no short text is the signature of a password")


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["A", "required", '"', "'", "\\", "=", ";", "/*", "*/", "//", "\n", " ", "1"])
        )
    )
)
def test_any_login_module_is_read_or_refused(parts: list[str]) -> None:
    try:
        module = parse_jaas("".join(parts))
    except JaasError:
        return
    assert module.name


@settings(max_examples=examples(100), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["username", "password", "user_alice", "$a.b-c", "ü"]),
        st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=("Cs",))),
    )
)
def test_what_is_quoted_is_read_back(options: dict[str, str]) -> None:
    quoted = "".join(
        ' {}="{}"'.format(name, text.replace("\\", "\\\\").replace('"', '\\"'))
        for name, text in options.items()
    )
    assert parse_jaas(f"org.x.Module required{quoted};") == LoginModule("org.x.Module", options)
