"""What may be wrong with a provider's answer, by name: `throttle:5`, `cut`, `drip:0.2`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Draft:
    """An answer about to be sent: `accounts` are JSON texts, `body` replaces what they would make.

    `wait_s` passes before it, `drip_s` before each of its bytes; `cut` ends it in the middle, `hang_up` before it.
    """

    accounts: list[str]
    on: str | None
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    body: bytes | None = None
    wait_s: float = 0.0
    drip_s: float = 0.0
    cut: bool = False
    hang_up: bool = False

    def rendered(self) -> bytes:
        if self.body is not None:
            return self.body
        return f'{{"accounts": [{", ".join(self.accounts)}], "next": {json.dumps(self.on)}}}'.encode()


def _refuse(draft: Draft, status: int, headers: dict[str, str]) -> None:
    draft.status, draft.body = status, b'{"error": "said by the provider"}'
    draft.headers |= headers


def _throttle(draft: Draft, argument: str) -> None:
    _refuse(draft, 429, {"Retry-After": argument} if argument else {})


def _unavailable(draft: Draft, argument: str) -> None:
    _refuse(draft, 503, {"Retry-After": argument} if argument else {})


def _status(draft: Draft, argument: str) -> None:
    _refuse(draft, int(argument or 500), {})


def _redirect(draft: Draft, argument: str) -> None:
    _refuse(draft, 302, {"Location": argument or "https://elsewhere.example/accounts"})


def _type(draft: Draft, argument: str) -> None:
    draft.headers["Content-Type"] = argument or "text/html; charset=utf-8"


def _body(draft: Draft, argument: str) -> None:
    draft.body = argument.encode() or b"{"


def _long(draft: Draft, argument: str) -> None:
    draft.body = draft.rendered().ljust(int(argument))


def _endless(draft: Draft, _: str) -> None:
    draft.body = draft.rendered()[:-1]


def _no_next(draft: Draft, _: str) -> None:
    draft.body = f'{{"accounts": [{", ".join(draft.accounts)}]}}'.encode()


def _shuffled(draft: Draft, _: str) -> None:
    draft.accounts.reverse()


def _twice(draft: Draft, _: str) -> None:
    draft.accounts += draft.accounts[-1:]


def _stuck(draft: Draft, argument: str) -> None:
    draft.accounts, draft.on = [], argument


def _slow(draft: Draft, argument: str) -> None:
    draft.wait_s = float(argument)


def _drip(draft: Draft, argument: str) -> None:
    draft.drip_s = float(argument or 0.1)


def _cut(draft: Draft, _: str) -> None:
    draft.cut = True


def _hang_up(draft: Draft, _: str) -> None:
    draft.hang_up = True


FAULTS: dict[str, Callable[[Draft, str], None]] = {
    "throttle": _throttle,  # 429; the argument is Retry-After
    "unavailable": _unavailable,  # 503; the argument is Retry-After
    "status": _status,
    "redirect": _redirect,
    "type": _type,  # another Content-Type
    "body": _body,  # this text instead
    "long": _long,  # padded to so many bytes
    "truncated": _endless,  # JSON that ends too early
    "no-next": _no_next,
    "shuffled": _shuffled,  # needs two accounts on the page
    "twice": _twice,  # the last account of the page twice
    "stuck": _stuck,  # an empty page that goes on after the argument
    "slow": _slow,
    "drip": _drip,
    "cut": _cut,
    "hang-up": _hang_up,
}


def spoil(draft: Draft, fault: str) -> None:
    """Let one fault happen to an answer. Raises KeyError for a name that is not one."""
    name, _, argument = fault.partition(":")
    FAULTS[name](draft, argument)
