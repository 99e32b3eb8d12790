"""What a seed lets happen: to a message, to a worker, to a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.simulator.baton import Actor

BEFORE = ("kill", "unsent", "late", "late", "throttled", "conflict", "conflict")
DARK = ("late", "late", "unsent", "throttled")
AFTER = ("kill", "lost", "lost", "broken")
SKEWS_MS = (0, 0, 2_000, -3_000, 60_000, -60_000, 600_000, -200_000)
PAUSES_S = (5.0, 130.0, 130.0, 130.0, 700.0)
"""A short one, ones that outlive a lease, and one that outlives DynamoDB's memory of a request."""

DARK_S = 17.0
"""Longer than a worker goes on sending the same, so that it must decide without an answer."""


ACCENTS = ("stalls", "outages", "copies", "writers")
"""What a seed has most of: holders that stand still at a commit, commits that do not get through, copies of commits
that arrive when DynamoDB has forgotten them, live writers. Everything else happens too, less often."""


@dataclass(slots=True)
class Faults:
    """`rate` is how likely something happens to one message; nothing does when it is 0.

    `dark` holds until when none of an actor's transactions gets through in time, although its reads do.
    """

    rng: Random
    rate: float
    steps_clocks: bool
    accent: str
    dark: dict[str, float] = field(default_factory=dict)

    def order(self, actor: Actor, seconds: float) -> str:
        """What becomes of the message that the actor is about to send, or waits for."""
        doing, _, message = actor.at.partition(" ")
        writes = " " not in message
        commits = message == "commit" and self.rate > 0
        chance = self.rng.random()
        if doing == "sends":
            if writes and seconds < self.dark.get(actor.name, 0):
                return self.rng.choice(DARK)
            if writes and self.rng.random() < (0.3 if commits and self.accent == "outages" else self.rate / 4):
                self.dark[actor.name] = seconds + DARK_S
                return "late"
            if commits and self.accent == "copies" and chance < 0.6:
                return "twice"
            if chance < self.rate:
                return self.rng.choice(BEFORE)
            if writes and chance < 3 * self.rate:
                return "twice"
            return "mixed" if writes and chance < 4 * self.rate else "go"
        if doing == "awaits" and chance < self.rate:
            return self.rng.choice(AFTER)
        return "go"

    def silence(self, copies: int) -> bool:
        """Whether nobody does anything now, until DynamoDB has forgotten the requests that `copies` are of."""
        likely = 0.04 if self.accent == "copies" else self.rate / 16
        return copies > 0 and self.rate > 0 and self.rng.random() < likely

    def arrival(self, seconds: float) -> float:
        """How likely a late copy arrives in this turn; none does while what its sender writes does not get through."""
        if any(seconds < until for until in self.dark.values()):
            return 0.0
        return 0.02 if self.accent == "copies" else 0.08

    def skew(self) -> int:
        return self.rng.choice(SKEWS_MS) if self.steps_clocks else 0

    def pause(self, actor: Actor) -> tuple[float, int]:
        """For how many seconds an actor stands still now, and how many turns the others have then; mostly none."""
        ends = actor.at in ("sends commit", "sends complete") and self.rate > 0
        likely = (0.25 if self.accent in ("stalls", "writers") else self.rate / 2) if ends else self.rate / 16
        return (self.rng.choice(PAUSES_S), self.rng.randrange(5, 60)) if self.rng.random() < likely else (0.0, 0)
