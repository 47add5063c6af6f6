"""`kraft features`: shows the levels of the cluster's features and changes them, as Kafka's `kafka-features` does.

A change is the controller's decision: all levels that are named, or none (KIP-584, KIP-1022). The option `--feature` is
also that of `kraft storage format`.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs, reflowed
from kraft.cli.shared.output import print_json, print_line
from kraft.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraft.protocol.schemas.features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from quorum.metadata.features import METADATA_VERSION, METADATA_VERSION_NAMES

app = typer.Typer(help="The levels of the cluster's features: behaviours that all nodes switch to together.")

Features = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="A feature and its level; may be repeated."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask whether it could be done, and change nothing.")]

API_VERSIONS_VERSION = 4
"""The first that tells of features whose lowest level is 0."""
UPDATE_FEATURES_VERSION = 2
SOFTWARE = ("kraft-cli", "1")
MAX_LEVEL = 2**15 - 1


@app.command()
@reflowed
def describe(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show each feature that the broker supports: from which level to which, and the one that the cluster works with.

    The epoch is the offset of the metadata that the broker answers from. Exit code 0: shown; 1: failed; 2: wrong usage;
    3: no broker answers.
    """

    async def work(admin: AdminClient) -> ApiVersionsResponse:
        answer = await admin.request(ApiVersionsRequest(*SOFTWARE), version=API_VERSIONS_VERSION)
        return cast("ApiVersionsResponse", answer)

    answer = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    raise_for(answer.error_code, None, "the features cannot be told")
    rows = _rows(answer)
    if as_json:
        print_json({"epoch": answer.finalized_features_epoch, "features": rows})
        return
    for row in rows:
        name = row["name"]
        fields = {
            "Feature": name,
            "SupportedMinVersion": _level_text(name, row["supported_min_version"]),
            "SupportedMaxVersion": _level_text(name, row["supported_max_version"]),
            "FinalizedVersionLevel": _level_text(name, row["finalized_version_level"]),
            "Epoch": answer.finalized_features_epoch,
        }
        print_line("\t".join(f"{title}: {text}" for title, text in fields.items()))


@app.command()
@reflowed
def upgrade(
    feature: Features = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Raise the levels of features: all that are named, or none.

    Every registered broker must support a level before the cluster can work with it. Exit code 0: done, or it could be;
    1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    _update(bootstrap_server, feature, UpgradeType.UPGRADE, dry_run=dry_run, as_json=as_json)


@app.command()
@reflowed
def downgrade(
    feature: Features = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Lower the levels of features: all that are named, or none. Level 0 switches a feature off.

    Exit code 0: done, or it could be; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    _update(bootstrap_server, feature, UpgradeType.SAFE_DOWNGRADE, dry_run=dry_run, as_json=as_json)


def parse_features(texts: list[str]) -> dict[str, int]:
    """The levels by name of `Features`. Raises UserError, wrong usage, for what is no level of a feature."""
    levels: dict[str, int] = {}
    for name, text in parse_pairs(texts, "--feature"):
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_LEVEL))
        if not is_number or int(text) > MAX_LEVEL:
            raise UserError(
                f"--feature {name}: a level is a number from 0 to {MAX_LEVEL}, not {text!r}", EXIT_USAGE
            )
        if name in levels:
            raise UserError(f"--feature names {name} twice", EXIT_USAGE)
        levels[name] = int(text)
    return levels


def _update(
    bootstrap_server: str, texts: list[str] | None, kind: UpgradeType, *, dry_run: bool, as_json: bool
) -> None:
    levels = parse_features(texts or [])
    if not levels:
        raise UserError("nothing to change: name a --feature", EXIT_USAGE)
    updates = [FeatureUpdateKey(name, level, upgrade_type=kind.value) for name, level in levels.items()]
    request = UpdateFeaturesRequest(
        timeout_ms=CHANGE_TIMEOUT_MS, feature_updates=updates, validate_only=dry_run
    )

    async def work(admin: AdminClient) -> UpdateFeaturesResponse:
        return cast("UpdateFeaturesResponse", await admin.request(request, version=UPDATE_FEATURES_VERSION))

    answer = run_admin(bootstrap_server, work)
    raise_for(
        answer.error_code,
        answer.error_message,
        "the features cannot be changed so" if dry_run else "the features were not changed",
        change=None if dry_run else "they were changed",
    )
    if as_json:
        print_json({"features": levels, "dry_run": dry_run})
        return
    done = "upgraded" if kind is UpgradeType.UPGRADE else "downgraded"
    for name, level in levels.items():
        print_line(f"{name} {'can be' if dry_run else 'was'} {done} to {_level_text(name, level)}")


def _rows(answer: ApiVersionsResponse) -> list[dict[str, Any]]:
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return [
        {
            "name": feature.name,
            "supported_min_version": feature.min_version,
            "supported_max_version": feature.max_version,
            "finalized_version_level": finalized.get(feature.name, 0),
        }
        for feature in sorted(answer.supported_features, key=lambda feature: feature.name)
    ]


def _level_text(name: str, level: int) -> str:
    """The level as Kafka's tool shows it: those of metadata.version have names."""
    return METADATA_VERSION_NAMES.get(level, str(level)) if name == METADATA_VERSION else str(level)
