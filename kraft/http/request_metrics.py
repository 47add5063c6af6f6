"""The metrics of requests by API, as `kraft.http.metrics` shows them.

Sums and counts under the names of Kafka's RequestMetrics, in ms; histograms of the same phases, in seconds, under names
of kraft's own. An API that nobody has asked for has no series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric, SummaryMetricFamily

from kraft.http.histograms import times_histogram
from kraft.network.request_times import RequestTimes
from kraft.protocol.api import APIS, ApiKey

_BEAN = "kafka_network_requestmetrics_"
_PHASES = (
    ("queue", "requestqueuetimems", "behind requests that came before it on its connection"),
    ("local", "localtimems", "in the broker, until it is answered or waits"),
    ("remote", "remotetimems", "waiting for other brokers, records, or the controller"),
    ("send", "responsesendtimems", "until its answer had left"),
)
"""Field of RequestTimes, Kafka's name of the phase, text."""


def request_families(request_times: Mapping[ApiKey, RequestTimes]) -> Iterator[Metric]:
    """All metrics of requests."""
    asked = {APIS[key].stem: times for key, times in request_times.items() if times.count}
    requests = CounterMetricFamily(f"{_BEAN}requests", "Requests, by their API.", labels=["request"])
    total = SummaryMetricFamily(
        f"{_BEAN}totaltimems",
        "How long a request took, from the arrival of its last bytes until its answer had left, in ms.",
        labels=["request"],
    )
    for stem, times in asked.items():
        requests.add_metric([stem], times.count)
        total.add_metric(
            [stem], times.count, sum(getattr(times, phase).sum_s for phase, _, _ in _PHASES) * 1000
        )
    yield from (requests, total)
    for phase, name, text in _PHASES:
        family = SummaryMetricFamily(
            _BEAN + name, f"How long a request was {text}, in ms.", labels=["request"]
        )
        for stem, times in asked.items():
            family.add_metric([stem], times.count, getattr(times, phase).sum_s * 1000)
        yield family
        yield times_histogram(
            f"kraft_request_{phase}_seconds",
            f"How long a request was {text}.",
            "request",
            {stem: getattr(times, phase) for stem, times in asked.items()},
        )
