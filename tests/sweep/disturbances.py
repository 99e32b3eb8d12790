"""What can happen to one call."""

from __future__ import annotations

from enum import Enum


class Disturbance(Enum):
    """What happens to one call; everything else goes well."""

    KILLED_BEFORE = "killed before it is sent"
    KILLED_AFTER = "applied, and killed before the answer"
    LOST = "applied, the answer lost, and sent again by the SDK"
    UNANSWERED = "applied, and none of the SDK's attempts answered"
    REPEATED = "applied, killed, and repeated much later"
    TIMEOUT = "not applied, and none of the SDK's attempts answered"
    STRAY = "not applied, however often it is sent, and arriving much later"
    OVERTAKEN = "a live writer comes just before it"

    @property
    def kills(self) -> bool:
        return self in (Disturbance.KILLED_BEFORE, Disturbance.KILLED_AFTER, Disturbance.REPEATED)

    @property
    def comes_late(self) -> bool:
        """Whether the request arrives, or arrives again, among the writes of later triggers."""
        return self in (Disturbance.REPEATED, Disturbance.STRAY)


READS = ("GetItem", "Query", "DescribeTable", "GET")
"""Operations that change nothing: to bring them again later means nothing."""


def possible(operation: str, live: bool) -> list[Disturbance]:
    """What can happen to a call of this operation; `live` says whether the scene has a live writer."""
    return [
        disturbance
        for disturbance in Disturbance
        if not (disturbance.comes_late and operation in READS) and (live or disturbance is not Disturbance.OVERTAKEN)
    ]
