"""Which authorizer a broker has, and who may do everything: keys of server.properties, read by `kraft.config_keys`."""

from __future__ import annotations

import re
from typing import Final

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""What `authorizer.class.name` calls it."""
_PRINCIPAL = re.compile(r"[^:]+:.+", re.DOTALL)


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`, which semicolons part. Raises ValueError for one without a type."""
    principals = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in sorted(principals):
        if not _PRINCIPAL.fullmatch(principal):
            raise ValueError(f"{principal!r} is no principal; write User:NAME, parted by semicolons")
    return principals
