"""reconcilectl's commands are carried out by the real handler, once each, and say what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler import clock, keys
from reconciler.errors import SettingsError
from tests.ctl import DAY_MS, HOUR_MS, Operator, operator
from tests.faults import Wire
from tests.kit import grants, killed, numbered
from tools import reconcilectl
from tools.ctl import answers as ctl_answers
from tools.ctl import target
from tools.ctl import verbs as ctl_verbs
from tools.ctl.errors import Uncertain
from tools.ctl.verbs import Command


@pytest.fixture
def person(
    emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    return operator(emulator_url, tmp_path, monkeypatch, capsys, RANGE_SIZE=10, PAGE_SIZE=10)


def test_a_forced_rerun_and_its_audit_tell_the_whole_story(person: Operator) -> None:
    world, night = person.world, person.night
    grants(world, *numbered(20))
    world.run("nightly", owner="reconcile/1")
    first = world.interval(night)
    assert "is COMPLETED: --force runs it again" in person.fails("rerun", night, "--reason", "again")
    shown = person.sees(
        "rerun", night, "--reason", "the source was wrong", "--by", "ada", "--force", "--id", "r-1", "--yes"
    )
    assert f"as entitlements/{night}/2" in " ".join(shown.split())
    world.clock.advance(60)
    world.account("acct-0001", plan="silver")
    killed(world, Wire(world.client), "commit", 2, kind="tick", owner="reconcile/2")
    world.expire_lease()
    world.run("tick", owner="reconcile/3")

    story = person.knows("audit", night)
    told = [(row["event"], row["run_id"].rpartition("/")[2], row.get("generation")) for row in story["events"]]
    assert told == [
        ("OBSERVED", "1", None),
        ("STARTED", "1", 1),
        ("COMPLETED", "1", 1),
        ("RERUN", "2", None),
        ("STARTED", "2", 3),
        ("TAKEOVER", "2", 4),
        ("COMPLETED", "2", 4),
    ]
    rerun = story["events"][3]
    assert (rerun["actor"], rerun["reason"], rerun["event_id"]) == ("ada", "the source was wrong", "r-1")
    assert rerun["before"]["checksum"] == first["checksum"]
    shown = " ".join(person.sees("audit", night).split())
    for words in (
        "by ada", "because: the source was wrong", "before: COMPLETED, pass 1", "it was COMPLETED; pass 2",
        "forced, from the start (", "before: 20 accounts, 20 granted",
        f"checksum {first['checksum']}", "TAKEOVER pass 2, segment 000, generation 4", "taken from reconcile/2",
        world.interval(night)["checksum"],
    ):  # fmt: skip
        assert words in shown, words
    rerun_told = shown[shown.index(" RERUN ") : shown.index("STARTED pass 2")]
    assert not any(words in rerun_told for words in ("asked", "verb", "None", "False", "added", "[]", "{}"))
    assert rerun_told.count("pass 2") == 2, "in its first line, and as what it begins"


def test_the_audit_tells_of_the_job_only_in_the_nights_own_time_and_of_a_release_once(person: Operator) -> None:
    world, night = person.world, person.night
    grants(world, *numbered(20))
    world.run("nightly")
    person.sees("pause", "--reason", "later", "--yes")
    person.sees("resume", "--reason", "later")
    assert "PAUSED" not in person.sees("audit", night)
    person.sees("rerun", night, "--reason", "again", "--force", "--yes")
    killed(world, Wire(world.client), "commit", 2, kind="tick", owner="reconcile/2")
    person.sees("pause", "--reason", "to look", "--yes")
    person.sees("release-lease", "000", "--reason", "hangs", "--yes")
    person.sees("resume", "--reason", "seen", "--by", "ada")
    world.clock.advance(60)
    events = [row["event"] for row in person.knows("audit", night)["events"]]
    assert events[-3:] == ["PAUSED", "RELEASED", "RESUMED"]
    shown = " ".join(person.sees("audit", night).split())
    assert shown.startswith(f"entitlements · local emulator at {person.url} {night}: RUNNING")
    assert "ended the pause by " in shown
    assert ": to look by ada" in shown
    assert "restored" not in shown
    assert "pause no" not in shown


def test_the_same_id_is_done_once_and_says_so(person: Operator) -> None:
    person.world.run("nightly")
    first = person.knows("pause", "--reason", "billing moves", "--id", "p-[/1]", "--yes")
    assert (first["verb"], first["id"], first["outcome"], first["result"]["pause_no"]) == ("Pause", "p-[/1]", "done", 1)
    again = person.knows("pause", "--reason", "billing moves", "--id", "p-[/1]", "--yes")
    assert (again["outcome"], again["result"]) == ("duplicate", first["result"])
    assert person.world.row(keys.CONTROL)["pause_no"] == 1
    assert "had been done before" in person.sees("pause", "--reason", "billing moves", "--id", "p-[/1]", "--yes")
    assert "billing moves" in person.sees("status")
    shown = person.sees("resume", "--reason", "done", "--by", "ada")
    assert shown == "Resumed. The next tick goes on.\n"
    assert person.knows("status")["pause"] is None


def test_verify_ends_with_1_when_another_writer_was_there(person: Operator) -> None:
    grants(person.world, *numbered(5))
    person.world.run("nightly")
    assert "matches" in person.sees("verify", person.night, "--reason", "audit")
    later = clock.text(person.world.clock.now_ms() + 1000)
    person.world.put("EntitlementsTable", "acct-0003", version=7, entitlements={"plan": "x"}, updated_at=later)
    code, out, err = person.types("verify", person.night, "--reason", "audit")
    assert (code, err) == (1, "")
    assert "does NOT match" in out
    assert "1 row was written by others since; the time is the row's own `updated_at`:" in " ".join(out.split())
    assert "acct-0003  by another writer" in out
    found = person.knows("verify", person.night, "--reason", "audit", code=1)
    assert (found["result"]["matches"], found["result"]["touched"]) == (False, 1)
    person.world.view_row("acct-0003", version=None, plan="x")
    shown = " ".join(person.types("verify", person.night, "--reason", "audit")[1].split())
    assert "No row tells who: the writer left no trace, or a row was deleted. preview shows" in shown
    assert f"rerun {person.night} --force corrects it" in shown


def test_preview_shows_what_the_run_then_does(person: Operator) -> None:
    world = person.world
    grants(world, *numbered(3))
    world.run("nightly")
    world.account("acct-0000", plan="silver")
    world.account("acct-0001", status="cancelled", plan="gold")
    world.put("AccountsTable", "acct-0002", status="active", entitlements="gold")
    grants(world, "acct-0009")
    counts = {"granted": 1, "changed": 1, "revoked": 1, "rejected": 1}
    found = person.knows("preview", "--reason", "look")
    assert {name: found["result"][name] for name in counts} == counts
    assert (found["invocations"], found["result"]["complete"]) == (1, True)
    shown = person.sees("preview", "--reason", "look")
    for words in (
        'granted   acct-0009  {"plan":"gold"}', 'changed   acct-0000  {"plan":"gold"} → {"plan":"silver"}',
        'revoked   acct-0001  {"plan":"gold"}', "rejected  acct-0002  ",
    ):  # fmt: skip
        assert words in shown
    assert 'keeps {"plan":"gold"}' in " ".join(shown.split())


def test_release_lease_fences_the_holder_and_restores_a_lost_row(person: Operator) -> None:
    grants(person.world, *numbered(20))
    killed(person.world, Wire(person.world.client), "commit", 2)
    shown = " ".join(person.sees("release-lease", "000", "--reason", "hangs", "--yes").split())
    assert "Segment 000 is free at generation 2: killed (generation 1) can change nothing any more." in shown
    person.world.delete_control(keys.lease("000"))
    assert "restored at generation 3" in person.sees("release-lease", "000", "--reason", "lost", "--yes")


def test_a_skip_is_recorded_and_acknowledged_with_the_nights_of_a_span(person: Operator) -> None:
    world = person.world
    due_ms = world.clock.wall_ms - HOUR_MS - 3 * DAY_MS
    world.clock.wall_ms = due_ms + 1
    world.run("nightly", time=clock.text(due_ms))
    world.clock.wall_ms += HOUR_MS - 1 + 3 * DAY_MS
    first, second = person.before(2), person.before(1)
    assert f"{first} is SKIPPED" in person.sees("skip", first, "--reason", "no data that night", "--yes")
    person.sees("skip", second, "--reason", "nor that one", "--by", "ada", "--yes")
    assert "SKIPPED" in person.sees("status")
    shown = person.sees("acknowledge", first, "--through", second, "--reason", "known", "--by", "bob")
    assert f"Acknowledged: {first} to {second} (2 nights). Their alarms" in " ".join(shown.split())
    assert "Not touched" not in shown
    states = {one["interval"]: one for one in person.knows("status")["intervals"]}
    assert [states[one]["closed"] for one in (first, second)] == [True, True]
    assert states[second]["acknowledged_by"] == "bob"
    story = person.knows("audit", second)["events"]
    assert [(row["event"], row["actor"]) for row in story][1:] == [("SKIPPED", "ada"), ("ACKNOWLEDGED", "bob")]
    assert f"ACKNOWLEDGED with night {first}" in " ".join(person.sees("audit", second).split()).replace("  ", " ")


def test_a_dry_run_prints_the_event_and_needs_no_stack(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECONCILER_STACK", raising=False)
    arguments = ["rerun", "2026-11-29", "--reason", "why", "--by", "ada", "--id", "r-1", "--dry-run"]
    assert reconcilectl.main([*arguments, "--from", "start", "--revocation-bound", "0"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "source": "operator",
        "detail-type": "Rerun",
        "id": "r-1",
        "detail": {
            "interval": "2026-11-29",
            "from": "start",
            "revocation_bound": 0,
            "requested_by": "ada",
            "reason": "why",
        },
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("skip", "2026-11-28"),
        ("rerun", "2026-11-28", "--force"),
        ("pause",),
        ("release-lease", "000"),
    ],
)
def test_what_cannot_be_undone_is_asked_first_of_whoever_can_answer(
    person: Operator, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked: list[str] = []

    def no(text: str, **_: Any) -> bool:
        asked.append(text)
        return False

    monkeypatch.setattr("typer.confirm", no)
    assert person.fails(*arguments, "--reason", "why") == "nothing was done"
    assert len(asked) == 1
    assert "local emulator" in asked[0]
    sent = catches(monkeypatch)
    person.types(*arguments, "--reason", "why", "--yes")
    assert (len(asked), len(sent)) == (1, 1)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert person.fails(*arguments, "--reason", "why") == "not a terminal, so nobody can be asked: add --yes"
    assert (len(asked), len(sent)) == (1, 1)


@pytest.mark.parametrize("option", ["--id", "--by", "--reason"])
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_option_is_refused_by_its_name(person: Operator, option: str, blank: str) -> None:
    reason = [] if option == "--reason" else ["--reason", "why"]
    assert person.fails("resume", *reason, option, blank).startswith(f"{option} is blank")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rerun", "2026-11-28", "--reason", "x" * 2001), "refused: --reason: has 2001 characters"),
        (("rerun", "yesterday", "--reason", "why"), "refused: INTERVAL: must be a date"),
        (("rerun", "2026-11-28", "--reason", "why", "--from", "end"), "refused: --from: must be"),
        (("rerun", "2026-11-28", "--reason", "why", "--revocation-bound", "-1"), "refused: --revocation-bound: must"),
        (("rerun", "2999-11-28", "--reason", "why"), "refused: INTERVAL: 2999-11-28 lies in the future"),
        (("acknowledge", "2026-01-01", "--through", "2026-11-01", "--reason", "why"), "refused: --through: "),
        (("acknowledge", "2026-11-28", "--through", "2026-11-27", "--reason", "why"), "--through 2026-11-27 is before"),
        (("release-lease", "1", "--reason", "why", "--yes"), "refused: SEGMENT: must be a segment"),
        (("pause", "--reason", "why", "--yes", "--id", "<unique>"), "refused: --id: <unique> was not substituted"),
    ],
)
def test_a_refusal_and_a_dry_run_speak_of_the_options(person: Operator, arguments: tuple[str, ...], words: str) -> None:
    assert person.fails(*arguments).startswith(words)
    assert person.fails(*arguments, "--dry-run").startswith(words)


def test_what_a_span_leaves_out_is_named(person: Operator) -> None:
    world = person.world
    grants(world, *numbered(20))
    killed(world, Wire(world.client), "commit", 2)
    first = person.before(1)
    row = world.interval(person.night) | {
        "state": "SKIPPED",
        "skip": {"reason": "r", "at": clock.text(0), "actor": "a"},
    }
    world.put_control(keys.interval(first), **{name: row[name] for name in row if name not in ("pk", "sk")})
    world.put_control(keys.CONTROL, open_from=first, first_interval=first)
    shown = person.sees("acknowledge", first, "--through", person.night, "--reason", "known")
    assert f"Acknowledged: {first}. Its alarm ends" in shown
    assert f"Not touched: {person.night} RUNNING." in shown


def test_a_long_preview_shows_20_accounts_the_guard_last_and_accents_as_they_are() -> None:
    first = [
        {"what": "revoked", "account_id": f"a-{n:02}", "before": '{"n":1.50,"plan":"\\u00e9t\\u00e9"}', "after": None}
        for n in range(100)
    ]
    result = {"revoked": 250, "first": first, "guard": "too many", "view_rows": 1, "source_rows": 0}
    shown = list(ctl_answers.lines({"verb": "Preview", "id": "p", "outcome": "done", "result": result}))
    assert "1 view row, 0 source rows" in shown[0]
    assert shown[1] == '  revoked   a-00  {"n":1.50,"plan":"été"}'
    assert len(shown) == 1 + ctl_answers.SHOWN + 2
    assert shown[-2:] == ["… and 230 more (--json has the first 100)", "The revocation guard would stop it: too many"]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (r"\u00e9", "é"),
        (r"\\u00e9", r"\\u00e9"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d", r"\ud83d"),
        (r"\u001b[31m", r"\u001b[31m"),
    ],
)
def test_only_what_can_be_printed_is_decoded(stored: str, shown: str) -> None:
    assert ctl_answers.readable(stored) == shown


def catches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Commands that would be sent from now on."""
    sent: list[Any] = []

    def obey(command: Command, send: Callable[..., Any]) -> Any:
        sent.append(command.event())
        return {"verb": command.verb, "id": command.id, "outcome": "done", "result": {}}

    monkeypatch.setattr(ctl_verbs, "obey", obey)
    return sent


@pytest.mark.parametrize(
    "verb", ["resume", "acknowledge 2026-11-28", "rerun 2026-11-28", "verify 2026-11-28", "preview"]
)
def test_the_others_are_not_asked(person: Operator, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: pytest.fail("asked"))
    sent = catches(monkeypatch)
    person.types(*verb.split(), "--reason", "why")
    person.types(*verb.split(), "--reason", "why", "--yes")
    assert [event["detail"]["reason"] for event in sent] == ["why", "why"]


def test_every_new_command_has_an_id_of_its_own(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = catches(monkeypatch)
    for _ in range(2):
        person.types("resume", "--reason", "why")
    assert len({event["id"] for event in sent}) == 2


def test_nobody_is_made_up_when_the_system_has_no_name_for_the_user(
    person: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert "--by" in person.fails("resume", "--reason", "why")


def answered(parts: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Callable[[dict[str, Any]], dict[str, Any]]]:
    """A function that answers these parts of a preview; and what it was sent."""
    sent: list[dict[str, Any]] = []

    def send(event: dict[str, Any]) -> dict[str, Any]:
        sent.append(event)
        return {"outcome": "done", "result": parts[len(sent) - 1]}

    return sent, send


def part(**more: Any) -> dict[str, Any]:
    return (
        dict.fromkeys(ctl_verbs.ADDED, 1) | {"first": [{}] * 60, "guard": None, "complete": True, "next": None} | more
    )


def test_a_long_preview_goes_on_from_next_until_it_is_complete_and_adds_up() -> None:
    sent, send = answered(
        [
            part(complete=False, next={"segment": "000", "after": "b"}),
            part(complete=False, next={"segment": "001", "after": None}, guard="too many"),
            part(),
        ]
    )
    told: list[int] = []
    command = Command("Preview", "ada", "why", "p", {})
    whole = ctl_verbs.preview(
        command, send, guard_of=lambda _: None, part_done=lambda part: told.append(part["accounts"])
    )
    assert told == [1, 2, 3]
    assert [event["id"] for event in sent] == ["p", "p/2", "p/3"]
    asked = [{name: event["detail"].get(name) for name in ("segment", "after")} for event in sent]
    assert asked == [
        {"segment": None, "after": None},
        {"segment": "000", "after": "b"},
        {"segment": "001", "after": None},
    ]
    assert (whole["invocations"], whole["id"], whole["outcome"]) == (3, "p", "done")
    result = whole["result"]
    assert [result[name] for name in ctl_verbs.ADDED] == [3] * len(ctl_verbs.ADDED)
    assert (len(result["first"]), result["guard"], result["complete"]) == (100, "too many", True)


def test_revocations_that_are_too_many_only_together_are_guarded_too() -> None:
    _, send = answered([part(complete=False, next={"segment": "000", "after": "b"}), part()])
    guard = {1: None, 2: "too many"}
    whole = ctl_verbs.preview(
        Command("Preview", "ada", "why", "p", {}), send, guard_of=guard.__getitem__, part_done=lambda _: None
    )
    assert whole["result"]["guard"] == "too many"


def answering(monkeypatch: pytest.MonkeyPatch, send: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """From now on the local function is this one."""
    found = target.local()
    made = target.Target(found.name, found.settings, found.client, send)
    monkeypatch.setattr(target, "local", lambda: made)


def test_a_command_still_at_work_is_not_taken_for_done(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda event: {"outcome": "duplicate", "first": None})
    line = person.fails("pause", "--reason", "why", "--id", "p-1", "--yes")
    until = clock.text(person.world.clock.now_ms() + 900_000)[11:16]
    assert "may still be at work, or was killed" in line
    assert f"at {until}" in line
    assert "the same --id" in person.fails("pause", "--reason", "why", "--id", "p-1", "--yes")


@pytest.mark.parametrize("error", [Uncertain("the function raised OutOfTime"), KeyboardInterrupt()])
def test_a_command_that_may_have_been_done_says_how_to_repeat_it(
    person: Operator, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(event: dict[str, Any]) -> dict[str, Any]:
        raise error

    answering(monkeypatch, fail)
    assert person.fails("pause", "--reason", "why", "--id", "p-1", "--yes").endswith(
        "repeat it with --id p-1: it is done once"
    )


def test_an_error_of_the_handler_is_one_line(person: Operator) -> None:
    person.world.environ["SDK_MAX_ATTEMPTS"] = "10"  # then three calls outlive a lease
    broken = target.local()
    person.writes_file()
    with pytest.raises(SettingsError, match="LEASE_SECONDS"):
        target.local()
    broken.close()
    assert "LEASE_SECONDS" in person.fails("pause", "--reason", "why", "--yes")
