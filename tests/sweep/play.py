"""One scene, played undisturbed and then once for each point."""

from __future__ import annotations

import io
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from reconciler import http_wire, read_ahead
from reconciler.clock import text
from reconciler.errors import TransientFailure
from tests.conftest import AS_DEPLOYED, SESSION
from tests.kit import AtOnce, Killed, delivered
from tests.sweep.calls import Call, Calls
from tests.sweep.disturbances import Disturbance, possible
from tests.sweep.judge import differences, inconsistencies, kept, lasting
from tests.sweep.provider import provider
from tests.sweep.scenes import LIVE, NIGHTS, PAGE, Scene
from tests.sweep.snapshot import Snapshot, on_moto, row_by_row
from tests.world import World, event

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

TICK_S = 300
"""Seconds between two ticks: longer than a lease, and than the first wait after a failed attempt."""

TICKS = 10
"""Until when a scene has to be over."""

READ_AGAIN = {"AccountsTable": PAGE, "EntitlementsTable": 3 * PAGE - 1, "provider": 2}
AND_AHEAD = {"AccountsTable": PAGE, "EntitlementsTable": PAGE, "provider": 1}
"""Rows that a night reads again at most for one disturbance: a page of the source, and of the view what is buffered
ahead of it, less than three pages; and requests to a provider, also for each of its answers that was lost. Where the
job reads ahead, a page more of each. A command keeps no checkpoint: it reads from the start."""

OVERTAKEN = frozenset({"changed", "checksum"})
"""What a run record tells of the account that a live writer brought in line before the run did."""

Point = tuple[int, Disturbance]
"""What happens to the call of which number."""

Plan = Sequence[Point | None]
"""What happens in the first invocation, in the second one, ..."""


@dataclass(slots=True)
class Played:
    """What is left of a scene, and what was asked for on the way; `found` is what must not be."""

    lasting: dict[str, Any]
    read: Counter[str]
    made: list[list[Call]]
    found: list[str]
    interruptions: int


@dataclass(slots=True)
class Play:
    """A scene that is ready to be played any number of times."""

    scene: Scene
    world: World
    calls: Calls
    snapshot: Snapshot
    whole: Played = field(init=False)
    live_row: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calls.live_write = self._live_write
        self.whole = self.play()
        assert not self.whole.found, self.whole.found

    @property
    def plans(self) -> list[Plan]:
        """Every call of the scene's invocations, and all that can happen to it."""
        return [
            [None] * invocation + [point]
            for invocation, made in enumerate(self.whole.made)
            for point in self._points(made, live=self.scene.live and not invocation)
        ]

    def _points(self, made: Sequence[Call], live: bool) -> list[Point]:
        return [
            (number, disturbance) for number, call in enumerate(made) for disturbance in possible(call.operation, live)
        ]

    def pairs(self, every: int) -> Iterator[Plan]:
        """A kill, or a request that strays, and one more thing to the invocation that follows: every nth of each."""
        first = (Disturbance.KILLED_BEFORE, Disturbance.KILLED_AFTER, Disturbance.STRAY)
        begin = self._points(self.whole.made[0], self.scene.live)
        for number, disturbance in [point for point in begin if point[1] in first][::every]:
            following = self.play([(number, disturbance)]).made[1]
            then = [
                point
                for point in self._points(following, live=False)
                if not (disturbance.comes_late and point[1].comes_late)
            ]
            for point in then[number % every :: every]:
                yield [(number, disturbance), point]

    def differences(self, plan: Plan) -> list[str]:
        """How the scene so disturbed differs from the undisturbed one, each with the point that it is about."""
        played = self.play(plan)
        overtaken = _overtaken(plan)
        found = list(played.found)
        before, after = self.whole.lasting, played.lasting
        if overtaken:
            before, after = (kept(rows, OVERTAKEN) | {f"view {LIVE}": None} for rows in (before, after))
        found += differences(before, after)
        if overtaken and self._stands() != self.live_row:
            found.append(f"a live writer's {self.live_row} became {self._stands()}")
        for table, rows in READ_AGAIN.items():
            again = played.read[table] - self.whole.read[table]
            most = rows + AND_AHEAD[table] * self.scene.ahead
            if self.scene in NIGHTS and again > most * played.interruptions:
                found.append(f"{again} of {table} were read again")
        return [f"{self._told(plan, played)}: {difference}" for difference in found]

    def play(self, plan: Plan = ()) -> Played:
        """The event with what is planned for it, then ticks until nothing is left to do."""
        self.snapshot.restore()
        self.calls.forget()
        random.seed(0)
        waiting = list(plan)
        made: list[list[Call]] = []
        found: list[str] = []

        def deliver(sent: dict[str, Any], remaining_s: float = 900) -> dict[str, Any]:
            number, disturbance = (waiting.pop(0) if waiting else None) or (-1, None)
            try:
                with self.calls.listening(number, disturbance):
                    return delivered(self.world, sent, remaining_s)
            except Killed:
                pass
            except Exception as error:
                if disturbance is None or not isinstance(error, TransientFailure):
                    found.append(f"invocation {len(made) + 1} failed: {type(error).__name__}: {error}")
            finally:
                made.append(self.calls.made)
            return {}

        sent = self.scene.sent(self.world)
        answer = deliver(sent, self.scene.remaining_s)
        command = sent if sent["source"] == "operator" else None
        for _ in range(TICKS):
            self.world.clock.advance(TICK_S)
            self.calls.deliver_late()
            if command and _unanswered(answer):
                self._forget_slots_in_progress()
                answer = deliver(command)
            told = deliver(event("tick", text(self.world.clock.wall_ms)))
            if "attempts" in told and {attempt["outcome"] for attempt in told["attempts"]} <= {"paused"}:
                break
        else:
            found.append(f"not over after {TICKS} ticks")
        self.calls.deliver_late()
        if command and _unanswered(answer):
            found.append(f"the command was answered {answer}")
        found += self.calls.found + inconsistencies(self.world, live_writer=_overtaken(plan))
        read: Counter[str] = Counter()
        for (table, _), count in self.calls.read.items():
            read[table.partition("-")[0]] += count
        interruptions = max(sum(point is not None for point in plan), self.calls.unheard)
        return Played(lasting(self.world), read, made, found, interruptions)

    def _live_write(self) -> None:
        """As live writers do: the source first, then the view."""
        before = self._stands()
        self.live_row = {"entitlements": {"plan": "live"}, "version": before["version"] + 1}
        self.world.account(LIVE, plan="live")
        self.world.view_row(LIVE, self.live_row["version"], plan="live")

    def _stands(self) -> dict[str, Any]:
        row = next(row for row in self.world.scan("EntitlementsTable") if row["account_id"] == LIVE)
        return {"entitlements": row["entitlements"], "version": row["version"]}

    def _forget_slots_in_progress(self) -> None:
        """Their time limit has passed; Powertools would look at the machine's clock for that."""
        for row in self.world.scan("IdempotencyTable"):
            if row["status"] == "INPROGRESS":
                key: Any = {"id": {"S": row["id"]}}
                self.world.client.delete_item(TableName=self.world.tables["IdempotencyTable"], Key=key)

    def _told(self, plan: Plan, played: Played) -> str:
        points = [
            f"invocation {nth}, {_name(made, point[0])} {point[1].value}"
            for nth, (point, made) in enumerate(zip(plan, played.made, strict=False), 1)
            if point is not None
        ]
        return f"{self.scene.name}, {', then '.join(points)}"


def _name(made: Sequence[Call], number: int) -> str:
    return f"call {number} ({made[number].name if number < len(made) else 'none'})"


def _overtaken(plan: Plan) -> bool:
    return any(point is not None and point[1] is Disturbance.OVERTAKEN for point in plan)


def _unanswered(answer: dict[str, Any]) -> bool:
    outcome = answer.get("outcome")
    return outcome not in ("done", "repeated") and not (outcome == "duplicate" and answer["first"])


@contextmanager
def rehearsed(scene: Scene, live: DynamoDBClient | None = None) -> Iterator[Play]:
    """The scene in a world of its own on moto, or on the emulator that `live` talks to; its functions keep quiet."""
    with ExitStack() as stack:
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        stack.enter_context(redirect_stdout(io.StringIO()))
        if live is None:
            stack.enter_context(mock_aws())
        client = live or SESSION.client("dynamodb", config=AS_DEPLOYED)
        world = World(client, {"SegmentCount": scene.segments})
        stack.enter_context(world.deployed(stack.enter_context(pytest.MonkeyPatch.context())))
        calls = Calls(client)
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(http_wire, "get", provider(world, calls))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(read_ahead, "ThreadPoolExecutor", AtOnce)
        scene.prepare(world)
        world.set(read_ahead=scene.ahead)
        yield Play(scene, world, calls, row_by_row(world) if live else on_moto(world))
