"""A provider in this process: its accounts are those of the AccountsTable, its requests are calls like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from reconciler.checksum import canonical
from reconciler.provider_answers import Answer
from tools.provider import Provider

if TYPE_CHECKING:
    from tests.sweep.calls import Calls
    from tests.world import World


def provider(world: World, calls: Calls) -> Callable[..., Answer | str]:
    """What stands in place of `http_wire.get`."""
    logic = Provider()

    def answer(url: str) -> Answer:
        rows = world.scan("AccountsTable")
        logic.accounts = {row["account_id"]: canonical(_without_segment(row)) for row in rows}
        draft = logic.page(dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)))
        return Answer(draft.status, draft.headers, draft.rendered())

    return lambda url, headers, *, connect_s, read_s: calls.asked_for(url, lambda: answer(url))


def _without_segment(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "segment"}
