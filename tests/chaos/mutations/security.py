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
from kraft.coordinator.groups.consumer import ConsumerGroup
from kraft.coordinator.groups.context import describes_all
from kraft.coordinator.groups.shard import GroupShard
from kraft.network.session import Session
from kraft.protocol.api import ApiKey
from kraft.security import scram
from kraft.security.authentication import Authentication
from kraft.security.authorizer import StandardAuthorizer, _Patterns, _Rule
from kraft.security.sasl_servers import PlainServer, ScramUsers, Step
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import ClusterStage

SECONDS = 15.0
SERVED, REFUSED = "served-without-permission", "refused-with-permission"


def _guests(seed: int) -> Scenario:
    """Two or three guests and much to change, no faults: nothing else hides what a judge sees."""
    nodes = tuple(NodeSpec(number) for number in (1, 2, 3))
    scenario = secured(Random(f"{seed}/guests"), Scenario(seed, SECONDS, nodes, (), ()))
    workloads = tuple(replace(one, per_second=30.0 if one.user else 4.0) for one in scenario.workloads)
    properties = {**scenario.properties, security.SESSIONS: "2500"}
    return replace(scenario, workloads=workloads, properties=properties)


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


def _told_and_not_muted(quotas: Any, session: Any, kind: str, wait_ms: int) -> int:
    return quotas._counted(kind, wait_ms) if wait_ms > 0 else 0  # type: ignore[no-any-return]


def _for_ever(original: Callable[..., str | None]) -> Callable[..., str | None]:
    def problem(authentication: Any, api_key: int, now_s: float) -> str | None:
        return None if authentication.principal else original(authentication, api_key, now_s)

    return problem


def _lets_strangers_ask(original: Callable[..., str | None]) -> Callable[..., str | None]:
    def problem(authentication: Any, api_key: int, now_s: float) -> str | None:
        return None if api_key == ApiKey.METADATA else original(authentication, api_key, now_s)

    return problem


def _takes_over(original: Callable[..., Any]) -> Callable[..., Any]:
    def known(authentication: Any, principal: str, *rest: Any) -> Any:
        authentication._before = None
        return original(authentication, principal, *rest)

    return known


def _remembers_users(original: Callable[..., Any]) -> Callable[..., Any]:
    def credential(users: Any, mechanism: str, name: str) -> Any:
        remembered = vars(users).setdefault("remembered", {})
        found = original(users, mechanism, name)
        if found[1]:
            remembered[mechanism, name] = found
        return remembered.get((mechanism, name), found)

    return credential


def _sees_all(original: Callable[..., None]) -> Callable[..., None]:
    def heartbeat(group: Any, *arguments: Any) -> None:
        original(group, *arguments[:-1], describes_all)

    return heartbeat


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
    Mutation(
        "fetch-quota-not-muted",
        "who fetched more than its quota is told so and read on",
        ("read-while-muted",),
        GUESTS,
        (Patch(BrokerQuotas, "throttle", replaced_by(_told_and_not_muted)),),
    ),
    Mutation(
        "fetch-quota-not-counted",
        "what is fetched counts for no quota",
        ("quota-exceeded",),
        GUESTS,
        (Patch(BrokerQuotas, "fetched", replaced_by(lambda quotas, request, size_bytes: 0)),),
    ),
    Mutation(
        "request-time-not-counted",
        "the loop's time counts for no quota",
        ("quota-exceeded",),
        GUESTS,
        (Patch(BrokerQuotas, "_worked", replaced_by(lambda quotas, request, busy_s, now_s: 0.0)),),
    ),
    Mutation(
        "strangers-served",
        "Metadata is answered to whoever asks (KIP-43)",
        ("authentication",),
        GUESTS,
        (Patch(Authentication, "problem", _lets_strangers_ask),),
    ),
    Mutation(
        "session-never-ends",
        "a client is believed after the end of its session (KIP-368)",
        ("session-outlived",),
        GUESTS,
        (Patch(Authentication, "problem", _for_ever),),
    ),
    Mutation(
        "principal-changes",
        "a connection becomes somebody else's when it is said anew whose it is (KIP-368)",
        ("principal-changed",),
        GUESTS,
        (Patch(Authentication, "_known", _takes_over),),
    ),
    Mutation(
        "removed-user-believed",
        "a user that was removed is believed on brokers that knew it",
        ("authentication",),
        GUESTS,
        (Patch(ScramUsers, "credential", _remembers_users),),
    ),
    Mutation(
        "expression-unfiltered",
        "an expression comes to topics that its member may not describe (KIP-848)",
        (SERVED,),
        GUESTS,
        (Patch(ConsumerGroup, "heartbeat", _sees_all),),
    ),
    Mutation(
        "expression-outlives-a-change",
        "what an expression came to stays when ACLs change",
        (SERVED,),
        GUESTS,
        (Patch(GroupShard, "on_acls", replaced_by(lambda shard: None)),),
    ),
)
