"""Mutations of the security rooms: permissions, authentication, quotas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from kraft.broker.authorization import Judge
from kraft.broker.client_quotas import BrokerQuotas
from kraft.broker.handlers import fetch_looks
from kraft.chaos import security
from kraft.chaos.scenario import NodeSpec, Scenario
from kraft.chaos.swarm_features import secured
from kraft.network.session import Session
from kraft.security import scram
from kraft.security.authorizer import StandardAuthorizer, _Patterns, _Rule
from kraft.security.sasl_servers import PlainServer, Step
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import ClusterStage

SECONDS = 15.0
SERVED, REFUSED = "served-without-permission", "refused-with-permission"


def _guests(seed: int) -> Scenario:
    """Two or three guests and much to change, no faults: nothing else hides what a judge sees."""
    nodes = tuple(NodeSpec(number) for number in (1, 2, 3))
    scenario = secured(Random(f"{seed}/guests"), Scenario(seed, SECONDS, nodes, (), ()))
    workloads = tuple(replace(one, per_second=30.0 if one.user else 4.0) for one in scenario.workloads)
    return replace(scenario, workloads=workloads)


GUESTS = ClusterStage("guests", _guests)


def _without_denials(original: Callable[..., None]) -> Callable[..., None]:
    def count(rule: Any) -> None:
        original(rule)
        rule.denied = 0

    return count


def _without_prefixes(original: Callable[..., Any]) -> Callable[..., Any]:
    def begins(patterns: Any, name: str) -> Any:
        return (rules for rules in original(patterns, name) if rules not in patterns.prefixed.values())

    return begins


def _whatever_host(original: Callable[..., None]) -> Callable[..., None]:
    return lambda patterns, acl, *, is_there: original(patterns, acl._replace(host="*"), is_there=is_there)


def _remembers_for_ever(original: Callable[..., None]) -> Callable[..., None]:
    def on_metadata(authorizer: Any, changes: Any, image: Any) -> None:
        remembered = dict(authorizer._remembered)
        original(authorizer, changes, image)
        authorizer._remembered.update(remembered)

    return on_metadata


def _everybody_but_super_users(original: Callable[..., int]) -> Callable[..., int]:
    def decide(authorizer: Any, principal: str, host: str, rules: Any) -> int:
        if principal in security.SUPER_USERS:
            return original(authorizer, principal, host, rules)
        return original(authorizer, "User:admin", host, rules)

    return decide


class _AlwaysEqual:
    """`hmac`, whose comparison says yes."""

    digest = staticmethod(scram.hmac.digest)

    @staticmethod
    def compare_digest(one: bytes, other: bytes) -> bool:
        return True


def _any_password(server: Any, token: bytes) -> Step:
    return Step(b"", token.decode().split("\0")[1])


def _never_muted(session: Any, until_s: float) -> None:
    """It reads on."""


MUTATIONS = (
    Mutation(
        "deny-does-not-win",
        "an ACL that denies counts for nothing",
        (SERVED,),
        GUESTS,
        (Patch(_Rule, "count", _without_denials),),
    ),
    Mutation(
        "prefix-ignored",
        "an ACL about a prefix is about nothing",
        (SERVED, REFUSED),
        GUESTS,
        (Patch(_Patterns, "about_all_beginning_with", _without_prefixes),),
        faces="what it allowed is refused, what it denied is served",
    ),
    Mutation(
        "host-ignored",
        "an ACL for one host is for all",
        (SERVED, REFUSED),
        GUESTS,
        (Patch(_Patterns, "change", _whatever_host),),
        faces="what it allows is served everywhere, what it denies refused everywhere",
    ),
    Mutation(
        "everybody-is-super",
        "the check for super users lets everybody pass",
        (SERVED,),
        GUESTS,
        (Patch(StandardAuthorizer, "_decide", _everybody_but_super_users),),
    ),
    Mutation(
        "decisions-outlive-a-change",
        "a decision stays remembered when ACLs change",
        (SERVED, REFUSED),
        GUESTS,
        (Patch(StandardAuthorizer, "on_metadata", _remembers_for_ever),),
        faces="what was allowed stays served, what was not stays refused",
    ),
    Mutation(
        "fetch-unauthorized",
        "a Fetch is served whatever topic it names",
        (SERVED,),
        GUESTS,
        (Patch(fetch_looks.Looks, "_may_read", replaced_by(lambda looks, judge, topic: True)),),
    ),
    Mutation(
        "nothing-refused",
        "a permission that is missing refuses nothing",
        (SERVED,),
        GUESTS,
        (Patch(Judge, "_holds", replaced_by(lambda judge, permission, resource, name: True)),),
    ),
    Mutation(
        "scram-proof-unchecked",
        "whoever knows a user's name is that user, by SCRAM (RFC 5802)",
        ("authentication",),
        GUESTS,
        (Patch(scram, "hmac", replaced_by(_AlwaysEqual)),),  # type: ignore[arg-type]
    ),
    Mutation(
        "plain-password-unchecked",
        "whoever knows a user's name is that user, by PLAIN (RFC 4616)",
        ("authentication",),
        GUESTS,
        (Patch(PlainServer, "respond", replaced_by(_any_password)),),
    ),
    Mutation(
        "quota-not-muted",
        "who exceeds a quota is told so and read on",
        ("quota-exceeded",),
        GUESTS,
        (Patch(Session, "mute_until", replaced_by(_never_muted)),),
    ),
    Mutation(
        "quota-not-counted",
        "what is produced counts for no quota",
        ("quota-exceeded",),
        GUESTS,
        (Patch(BrokerQuotas, "_produced", replaced_by(lambda quotas, request, size_bytes, now_s: 0.0)),),
    ),
)
"""That a principal stays the same when it authenticates again needs sessions that end: a unit test holds it
(`test_another_principal_cannot_take_a_connection_over`)."""
