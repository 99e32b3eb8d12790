"""One seed: a small world, workers, writers and people in an order that the seed decides, and what that broke."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, cast

from botocore.awsrequest import AWSResponse

from reconciler import app
from reconciler.errors import InvalidTrigger, OutOfTime, TransientFailure, VerbRefused
from reconciler.items import from_item
from reconciler.settings import Settings
from tests.kit import Killed
from tests.simulator import aftermath, operator, writers
from tests.simulator.baton import Actor
from tests.simulator.clock import Time, WorkersClock
from tests.simulator.faults import Faults
from tests.simulator.invariants import broken
from tests.simulator.ledger import Ledger
from tests.simulator.network import TOKEN_SECONDS, Message, Network
from tests.simulator.population import Population, settle
from tests.simulator.stage import Stage
from tests.simulator.writes import Write
from tests.world import JOB, Context, event

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from types_boto3_dynamodb import DynamoDBClient

EXPECTED_ERRORS = (Killed, TransientFailure, OutOfTime, VerbRefused, InvalidTrigger)


@dataclass(slots=True)
class Simulation:
    """`schedule` is what happened, a line each; `violations` what should not have. A broken seed ends there."""

    seed: int
    population: Population
    client: DynamoDBClient
    time: Time
    ledger: Ledger
    schedule: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    nights: int = 1
    rng: Random = field(init=False)
    network: Network = field(init=False)
    faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(f"order of {self.seed}")
        self.network = Network(self.client, self.time, self.rng, self.watch)
        people = self.population
        self.faults = Faults(self.rng, people.fault_rate, people.steps_clocks, people.accent)

    def play(self) -> None:
        """Everything that the seed holds; faults stop before the end."""
        settle(self.population, self.client, self.ledger)
        try:
            for number in range(self.population.turns):
                self.turn(number)
                if self.violations:
                    return
            self.let_go()
            if not self.violations:
                aftermath.check(self)
        finally:
            for actor in self.actors:
                actor.kill()

    def note(self, what: str) -> None:
        self.schedule.append(f"{self.time.text} {what}")

    # one turn

    def turn(self, number: int) -> None:
        """Time passes, somebody may come, a late copy may arrive, and one actor goes on to its next message."""
        rng = self.rng
        self.time.advance(rng.uniform(0.01, 0.3) if rng.random() > 0.01 else rng.choice((5, 40, 130, 300)))
        if self.faults.silence(len(self.network.late)):
            self.silence()
        self.arrivals()
        if self.network.late and rng.random() < self.faults.arrival(self.time.seconds):
            self.late_copy()
        awake = [actor for actor in self.actors if not actor.ended and actor.frozen_until <= number]
        if not awake:
            return
        actor = rng.choice(awake)
        human = actor.name.startswith("live")
        order = ("kill" if rng.random() < 0.02 else "go") if human else self.faults.order(actor, self.time.seconds)
        if not human and rng.random() < self.faults.rate / 3:
            actor.clock_ms = self.faults.skew()
        pause_s, turns = self.faults.pause(actor)
        if pause_s:
            actor.frozen_until = number + turns
            self.time.advance(pause_s)
            self.note(f"{pause_s:g} s pass while {actor.name} stands still, as it {actor.at}")
            return
        self.step(actor, order)

    def step(self, actor: Actor, order: str = "go") -> None:
        self.note(f"{actor.name} {actor.at}" + ("" if order == "go" else f" — {order}"))
        actor.step(order)
        if actor.ended:
            self.note(f"{actor.name} ended: {_told(actor)}")
            if actor.error is not None and not isinstance(actor.error, EXPECTED_ERRORS):
                self.violations.append(f"{actor.name} raised {actor.error!r}")

    def arrivals(self) -> None:
        rng, people = self.rng, self.population
        working = [actor for actor in self.actors if not actor.ended]
        workers = [actor for actor in working if actor.name.startswith("worker")]
        if len(workers) < people.workers and rng.random() < 0.25:
            repeated = self.events and rng.random() < 0.1
            said = rng.choice(self.events) if repeated else event(rng.choice(("tick", "nightly")), self.time.text)
            self.invoke("worker", said)
        if rng.random() < people.live_rate:
            account_id, mark = rng.choice(people.names), f"live{len(self.actors)}"
            self.enter("live", lambda: writers.change(self.client, self.ledger, rng, account_id, mark))
        if rng.random() < people.order_rate:
            said = operator.order(rng, self.time.text[:10], people.segment_count, len(self.actors))
            self.invoke("operator", said)
        idle = any(_told(actor).startswith("idle") for actor in self.actors[-2:] if actor.ended)
        if idle and self.nights < people.nights:
            self.nights += 1
            self.note("a day passes")
            self.time.advance(86_400)

    def invoke(self, kind: str, said: dict[str, Any]) -> None:
        """The function is woken, on a machine with a clock of its own."""
        self.events.append(said)
        seconds = self.rng.choice((900, 900, 900, 150))
        name = f"{kind}-{len(self.actors)}"
        context = cast("LambdaContext", Context(cast(Any, WorkersClock(self.time)), seconds, name))
        actor = self.enter(kind, lambda: app.reconcile(said, context))
        actor.clock_ms = self.faults.skew()
        self.note(f"{actor.name} is woken by {said['detail-type']} {said.get('time', '')} {said['detail']}")

    def enter(self, kind: str, work: Callable[[], object]) -> Actor:
        actor = Actor(f"{kind}-{len(self.actors)}", work)
        self.actors.append(actor)
        return actor

    def silence(self) -> None:
        """Nobody does anything for so long that DynamoDB has forgotten what it was asked; then copies arrive."""
        self.note("silence")
        self.time.advance(TOKEN_SECONDS + 100)
        for _ in list(self.network.late):
            if self.rng.random() < 0.7:
                self.late_copy()

    def late_copy(self) -> None:
        message = self.rng.choice(self.network.late)
        self.note(f"a late copy of {message.name} arrives: {self.network.arrive(message)}")

    def let_go(self) -> None:
        """Faults stop. Some of those still at work go on, the others are gone for good."""
        for actor in self.actors:
            while not actor.ended and actor.name.startswith("live"):
                self.step(actor)
            if self.rng.random() < 0.5:
                actor.kill()
        while running := [actor for actor in self.actors if not actor.ended]:
            self.time.advance(0.05)
            self.step(self.rng.choice(running))

    # what the network applies

    def watch(self, message: Message, apply: Callable[[], AWSResponse]) -> AWSResponse:
        """Let moto do it, and judge what it changed."""
        if not message.consistent:
            self.violations.append(f"{message.name}: read without consistency")
        rows = [_named(message, body) for action in message.actions for body in action.values()]
        before = [self.ledger.row(*row) for row in rows]
        answer = apply()
        self.ledger.step += 1
        if answer.status_code != 200:
            return answer
        if rows:
            writes = [Write(row[0], row[-1], was, self.ledger.row(*row)) for row, was in zip(rows, before, strict=True)]
            try:
                found = broken([write for write in writes if write.before != write.after], self.ledger)
            except Exception as error:
                found = [f"cannot be judged: {error!r}"]
            self.violations += [f"{message.name}: {one}" for one in found]
        elif message.operation in ("PutItem", "UpdateItem", "DeleteItem"):
            key = message.body.get("Key") or message.body["Item"]
            if "account_id" in key:
                self.ledger.notice(key["account_id"]["S"])
        return answer


def _named(message: Message, body: dict[str, Any]) -> tuple[str, str, str]:
    key = from_item(body.get("Key") or body["Item"])
    table = body["TableName"].partition("-")[0]
    return (table, JOB, key["sk"]) if "sk" in key else (table, key["segment"], key["account_id"])


def _told(actor: Actor) -> str:
    if actor.error is not None:
        return repr(actor.error)[:200]
    answer = actor.result
    if isinstance(answer, dict):
        attempts = [(one["interval"], one["segment"], one["outcome"]) for one in answer.get("attempts", ())]
        return f"{answer['outcome']} {attempts or ''}"
    return "done"


def simulate(seed: int, stage: Stage) -> Simulation:
    """Play one seed to its end."""
    population = Population.of(seed)
    time = Time()
    with stage.playing(seed, time, population.settings) as client:
        ledger = Ledger(stage.tables, Settings.from_env(), time, clocks_are_right=not population.steps_clocks)
        simulation = Simulation(seed, population, client, time, ledger)
        simulation.play()
    return simulation
