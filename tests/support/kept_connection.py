"""What librdkafka's statistics tell of one connection: how often it was authenticated again without being lost."""

from __future__ import annotations

import json
from typing import Any, Final

STATISTICS_MS: Final = 200


class KeptConnection:
    """To one broker. A machine that stalls a client for longer than the end of a session lets the broker close its
    connection, and rightly: then the count begins anew. A broker that closes sessions that are renewed in time lets it
    come to nothing."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._lost = self._before = self._now = 0

    def properties(self) -> dict[str, Any]:
        """Of the client that is watched."""
        return {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._seen}

    def messages(self) -> int:
        """SaslAuthenticate requests on the connection since it is there."""
        return self._now - self._before

    def _seen(self, text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] == self._node_id:
                if broker["disconnects"] != self._lost:
                    # What came since the last statistics may be the new connection's: it counts as the old one's.
                    self._lost, self._before = broker["disconnects"], broker["req"].get("SaslAuthenticate", 0)
                self._now = broker["req"].get("SaslAuthenticate", 0)
