"""Power that is lost at a step of whatever works on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable


class PowerCut(BaseException):
    """Power is lost before a disk operation. No Exception, so that nothing on the way takes it for its own."""


def power_cut_before(step: int) -> Callable[[str, str], None]:
    """For `Storage.before_operation`: so many operations go through, and none after them."""
    left = step

    def hook(_operation: str, _path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerCut

    return hook
