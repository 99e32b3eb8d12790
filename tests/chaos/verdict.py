"""What must hold once nothing is disturbed any more: by the rows that are left, and by the writes that led to them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.items import from_item
from reconciler.settings import Settings
from tests.chaos.history import Written
from tests.chaos.traffic import LIVE
from tests.sweep import judge
from tools import verify
from tools.scene import Scene

CHANGES = ("granted", "changed", "revoked")
COUNTS = (*CHANGES, "accounts", "rejected", "ranges", "view_rows", "checksum")
HOLDERS = ("commit", "complete", "end", "trip")


@dataclass(frozen=True, slots=True)
class Tables:
    """A scene's tables as they stand; a judge.Stored."""

    scene: Scene

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.scene.environment)

    def scan(self, table: str) -> list[dict[str, Any]]:
        pages = self.scene.client.get_paginator("scan").paginate(TableName=self.scene.tables[table])
        return [from_item(item) for page in pages for item in page["Items"]]

    def control(self) -> dict[str, dict[str, Any]]:
        return {row["sk"]: row for row in self.scan("ControlTable")}

    def events(self) -> Counter[str]:
        """How often runs, not people, have told of what."""
        rows = self.control().items()
        told = [row for name, row in rows if name.startswith("AUDIT#") and "#OPERATOR#" not in name]
        return Counter(row["event"] for row in told)

    def view_checksum(self) -> str:
        return verify.view_checksum(self.scene.rows("EntitlementsTable"))


def violations(
    scene: Scene, nights: Sequence[str], seeded_view: list[verify.Row], written: Sequence[Written]
) -> list[str]:
    """In words. `nights` are all that had to run, `seeded_view` is the view before the first of them."""
    tables = Tables(scene)
    rows = tables.control()
    applied = [one for one in written if one.applied]
    return [
        *unfinished(rows, nights),
        *judge.inconsistencies(tables, live_writer=False),
        *stale(applied),
        *broken_chains(applied),
        *changed_twice(applied),
        *wrong_totals(applied, rows),
        *out_of_line(scene),
        *uncounted(scene, seeded_view, applied),
    ]


def unfinished(rows: dict[str, Any], nights: Iterable[str]) -> Iterator[str]:
    """Every night is on record and completed."""
    states = {
        name.removeprefix("INTERVAL#"): row["state"] for name, row in rows.items() if name.startswith("INTERVAL#")
    }
    if states != dict.fromkeys(nights, "COMPLETED"):
        yield f"not all of {list(nights)} are COMPLETED: {states}"


def stale(applied: Sequence[Written]) -> Iterator[str]:
    """No holder wrote anything once a higher generation had been given out, nor under somebody else's generation."""
    given = [one for one in applied if one.writer in ("acquire", "verb") and one.segment]
    owner = {(one.segment, one.generation): one.caller for one in given if one.writer == "acquire"}
    for one in applied:
        if one.writer not in HOLDERS:
            continue
        if owner.get((one.segment, one.generation)) != one.caller:
            yield f"{one.night}: not by the holder of its generation: {one}"
        newer = [
            later
            for later in given
            if later.segment == one.segment
            and later.generation > one.generation
            and later.delivery.at < one.delivery.after
        ]
        if newer:
            yield f"{one.night}: applied after generation {newer[-1].generation} was given out: {one}"


def commits(applied: Iterable[Written]) -> dict[str, list[Written]]:
    """The commits of each pass of each segment, by its PROGRESS row, in the order of its ranges."""
    found: defaultdict[str, list[Written]] = defaultdict(list)
    for one in applied:
        if one.writer == "commit":
            found[one.key("PROGRESS#")].append(one)
    return {name: sorted(of_pass, key=lambda one: int(one.progress["ranges"])) for name, of_pass in found.items()}


def broken_chains(applied: Iterable[Written]) -> Iterator[str]:
    """In a pass each range was committed once, beyond the one before it, under no lower generation."""
    for name, chain in commits(applied).items():
        ranges = [int(one.progress["ranges"]) for one in chain]
        checkpoints = [one.progress["checkpoint"] for one in chain]
        generations = [one.generation for one in chain]
        if ranges != list(range(1, len(chain) + 1)):
            yield f"{name}: the ranges {ranges} were committed"
        if checkpoints != sorted(set(checkpoints)):
            yield f"{name}: the checkpoint went through {checkpoints}"
        if generations != sorted(generations):
            yield f"{name}: committed under the generations {generations}"


def changed_twice(applied: Iterable[Written]) -> Iterator[str]:
    """No account was changed twice in a pass, no version was written twice, and none by a lower generation."""
    changes: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for one in applied:
        for account_id, row in one.view.items():
            changes[account_id].append((int(row["version"]), int(row["generation"]), str(row["run_id"])))
    for account_id, made in changes.items():
        made.sort()
        versions, generations, runs = zip(*made, strict=True)
        if len(set(versions)) < len(made) or len(set(runs)) < len(made) or list(generations) != sorted(generations):
            yield f"{account_id}: changed as (version, generation, run) {made}"


def wrong_totals(applied: Sequence[Written], rows: dict[str, Any]) -> Iterator[str]:
    """What is told of a completed pass is what its commits did."""
    chains = commits(applied)
    for name, row in rows.items():
        if not name.startswith("AUDIT#") or row["event"] != "COMPLETED":
            continue
        _, night, pass_no = row["run_id"].split("/")
        chain = chains.get(f"PROGRESS#{night}#{pass_no}#{row['segment']}", [])
        last = chain[-1].progress if chain else {}
        if any(row["totals"][count] != last.get(count) for count in COUNTS):
            yield f"{row['run_id']}: told {row['totals']}, committed {last}"
        effects, rejected = sum(len(one.view) for one in chain), sum(_rejections(one) for one in chain)
        if (sum(row["totals"][count] for count in CHANGES), row["totals"]["rejected"]) != (effects, rejected):
            yield f"{row['run_id']}: told {row['totals']} of {effects} effects and {rejected} rejections"


def _rejections(one: Written) -> int:
    return sum("#REJECTED#" in name for name in one.rows)


def out_of_line(scene: Scene) -> Iterator[str]:
    """The view is what the source says of every account that can be read."""
    source = scene.rows("AccountsTable")
    unreadable = {row["account_id"]["S"] for row in source if "M" not in row["entitlements"]}
    if astray := verify.out_of_line(source, scene.rows("EntitlementsTable")) - unreadable:
        yield f"the view is not what the source says of {sorted(astray)}"


def uncounted(scene: Scene, seeded_view: list[verify.Row], applied: Iterable[Written]) -> Iterator[str]:
    """Every version that an account gained was seen on the wire: as an effect of a run, or by a live writer."""
    on_the_wire = Counter(account_id for one in applied for account_id in one.view)
    live = scene.proxy.ledger.changes(scene.tables["EntitlementsTable"], LIVE)
    on_the_wire.update({account_id: count for (_, account_id), count in live.items()})
    grown = Counter(verify.growth(seeded_view, scene.rows("EntitlementsTable")))
    if +grown != on_the_wire:
        yield f"versions grew by {grown - on_the_wire} more and {on_the_wire - grown} less than was written"
    seen = scene.view_writes()
    if seen != on_the_wire:
        yield f"the proxy counts {seen - on_the_wire} more and {on_the_wire - seen} less than was written"
