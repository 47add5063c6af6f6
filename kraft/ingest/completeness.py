"""Whether what workers read accounts for every offset of a cut, and whether its holes may be.

For each slice records + control records + aborted records + holes is the number of its offsets; the slices of a range
follow each other. A hole is an offset that holds nothing any more: only compaction makes one, so that it is refused
unless the topic's cleanup.policy includes compact, or did within the life of the topic, as the user says. `run.py`
calls it between the job and the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraft.ingest.model import CommitRange, IncompleteError, PartitionKey, SliceResult, partition_key
from kraft.protocol import ErrorCode
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraft.spark.client import ClusterClient, TransientError
from kraft.spark.errors import ClusterUnavailableError, RequestFailedError
from kraft.spark.retry import Attempts

_CLEANUP_POLICY = "cleanup.policy"
_NAMED = 5


def check_complete(ranges: Mapping[PartitionKey, CommitRange], results: Sequence[SliceResult]) -> None:
    """Raises IncompleteError, which names topic, partition and offsets."""
    at = {key: taken.start for key, taken in ranges.items()}
    for result in sorted(results, key=lambda result: result.part.start):
        part, key = result.part, partition_key(result.part)
        if at.get(key) != part.start:
            raise IncompleteError(
                f"{part} does not begin where the slice before it ends, at offset {at.get(key)}."
            )
        if result.audit.offsets != part.end - part.start:
            raise IncompleteError(
                f"{part} has {part.end - part.start} offsets, but {result.audit.offsets} were accounted for:"
                f" {result.audit.records} records, {result.audit.control} control records, {result.audit.aborted}"
                f" aborted, {result.audit.hole_offsets} holes."
            )
        rows = sum(file.rows for file in result.files)
        if rows != result.audit.records:
            raise IncompleteError(
                f"{part} has {result.audit.records} records, but its files have {rows} rows."
            )
        at[key] = part.end
    for key, taken in ranges.items():
        if at[key] != taken.end:
            raise IncompleteError(
                f"{key.topic}-{key.partition} was read up to offset {at[key]} only, and not up to {taken.end}."
            )


def check_holes(results: Sequence[SliceResult], compacted: Iterable[str]) -> None:
    """Raises IncompleteError if a topic that is not one of `compacted` has holes."""
    allowed = set(compacted)
    for result in results:
        if result.audit.hole_offsets and result.part.topic not in allowed:
            named = ", ".join(f"[{start}, {end})" for start, end in result.audit.holes[:_NAMED])
            more = " and more" if len(result.audit.holes) > _NAMED else ""
            raise IncompleteError(
                f"{result.part} has {result.audit.hole_offsets} offsets without a record: {named}{more}. The topic's"
                f" {_CLEANUP_POLICY} does not include compact, so that records are missing. If it did include it"
                " earlier, say so with --allow-holes; else check the log of the partition's leader (kraft log verify)."
            )


def compacted_topics(client: ClusterClient, topics: Iterable[str]) -> set[str]:
    """Those whose cleanup.policy includes compact. Raises ConnectorError."""
    wanted = sorted(set(topics))
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(ConfigResourceType.TOPIC, name, [_CLEANUP_POLICY]) for name in wanted
        ]
    )
    attempts = Attempts(client.policy)
    while True:
        try:
            return _compacted(client.call(None, request, DescribeConfigsResponse))
        except TransientError as failure:
            attempts.wait_or_raise(failure.error)


def _compacted(response: DescribeConfigsResponse) -> set[str]:
    compacted = set()
    for result in response.results:
        code = ErrorCode.of(result.error_code)
        if code is not ErrorCode.NONE:
            what = f"The brokers do not tell whether topic {result.resource_name} is compacted"
            sentence = f"{what}: {code.name}. {code.message}"
            if code.retriable:
                raise TransientError(ClusterUnavailableError(sentence))
            raise RequestFailedError(f"{sentence} Allow DescribeConfigs on it, or say --allow-holes.")
        policies = {config.value or "" for config in result.configs if config.name == _CLEANUP_POLICY}
        if any("compact" in policy.split(",") for policy in policies):
            compacted.add(result.resource_name)
    return compacted
