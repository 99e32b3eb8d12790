"""All points of some scenes, or every nth of them, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sweep.play import Plan, Play, rehearsed
from tests.sweep.scenes import SCENES, Scene


@dataclass(slots=True)
class Swept:
    """`points` that were played, the pairs of them among these, and the differences that were seen, each in words."""

    points: int = 0
    pairs: int = 0
    differences: list[str] = field(default_factory=list)

    def __add__(self, other: Swept) -> Swept:
        return Swept(self.points + other.points, self.pairs + other.pairs, self.differences + other.differences)


@dataclass(frozen=True, slots=True)
class Stride:
    """Every how many points are played, and every how many of the pairs; 0 for no pairs."""

    points: int = 1
    pairs: int = 0


def sweep(scene: Scene, stride: Stride, offset: int = 0) -> Swept:
    """One scene. Raises AssertionError when already the undisturbed scene contradicts itself."""
    with rehearsed(scene) as play:
        singles = _played(play, play.plans[offset % stride.points :: stride.points])
        if not (stride.pairs and scene.paired):
            return singles
        pairs = _played(play, list(play.pairs(stride.pairs)))
        return singles + Swept(pairs.points, pairs.points, pairs.differences)


def sweep_number(number: int, stride: Stride) -> Swept:
    """The scene of that number: what one consists of cannot be sent to another process."""
    return sweep(SCENES[number], stride)


def _played(play: Play, plans: Sequence[Plan]) -> Swept:
    differences = [difference for plan in plans for difference in play.differences(plan)]
    return Swept(len(plans), 0, differences)
