"""A call that fails in any way leaves what an undisturbed run leaves: a choice of the points of `make sweep`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import acquire, commands, commit, complete, records, release, transactions, view
from reconciler.leases import Lease
from tests.conftest import live_client
from tests.sweep.disturbances import Disturbance
from tests.sweep.play import rehearsed
from tests.sweep.scenes import COMMANDS, NIGHTS, SCENES, Scene
from tests.sweep.sweeping import Stride, sweep

THINNED = Stride(points=23, pairs=37)
"""No multiple of what can happen to a call, so that each of it is met."""


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_crash_at_any_call_leaves_what_an_undisturbed_run_leaves(scene: Scene, figures: Callable[..., None]) -> None:
    swept = sweep(scene, THINNED, offset=SCENES.index(scene))
    figures(crash_points=swept.points, crash_differences=len(swept.differences))
    assert swept.points
    assert swept.differences == []


def test_a_request_whose_token_the_service_remembers_is_repeated_without_a_trace(emulator_url: str) -> None:
    """On the emulator, which answers a token that it knows as it did before; moto forgets them."""
    with rehearsed(NIGHTS[0], live_client(emulator_url)) as play:
        for number, call in enumerate(play.whole.made[0]):
            if call.operation == "TransactWriteItems":
                assert play.differences([(number, Disturbance.LOST)]) == []


def test_every_verb_is_swept() -> None:
    assert {scene.name.split()[0] for scene in COMMANDS} == set(commands.VERBS)


# ------------------------------------------------------------------------- the sweep sees that a condition is missing

ALWAYS: ConditionBase = Attr("pk").exists() | Attr("pk").not_exists()


def without_the_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "fence", property(lambda lease: ALWAYS))


def without_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def unmoved(name: str, value: object) -> ConditionBase:
        return ALWAYS if name == "checkpoint" else records.unmoved(name, value)

    for module in (acquire, commit, complete, release):
        patch.setattr(module, "unmoved", unmoved)


def without_the_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(view, "_unchanged", lambda row: ALWAYS)


def without_the_release_token(patch: pytest.MonkeyPatch) -> None:
    def update(name: str, *about: Any, set: dict[str, object], **more: Any) -> transactions.Step:
        said = {key: value for key, value in set.items() if name != "LEASE" or key != "token"}
        return transactions.update(name, *about, set=said, **more)

    for module in (complete, release):
        patch.setattr(module, "update", update)


def seen(scene: Scene, mutate: Callable[[pytest.MonkeyPatch], None], disturbance: Disturbance) -> Iterator[str]:
    """What this, at each of the scene's commits, makes of code without a condition; undisturbed, the scene has it."""
    with rehearsed(scene) as play, pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        for number, call in enumerate(play.whole.made[0]):
            if call.name == "TransactWriteItems commit":
                yield from play.differences([(number, disturbance)])


@pytest.mark.parametrize(
    ("mutate", "disturbance"),
    [
        (without_the_fence, Disturbance.STRAY),
        (without_the_checkpoint, Disturbance.LOST),
        (without_the_version, Disturbance.OVERTAKEN),
        (without_the_release_token, Disturbance.STRAY),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_sweep_sees_a_condition_that_is_missing(
    mutate: Callable[[pytest.MonkeyPatch], None], disturbance: Disturbance
) -> None:
    assert list(seen(NIGHTS[0], mutate, disturbance))
