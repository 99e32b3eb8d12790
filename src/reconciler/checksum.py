"""A checksum of a view that does not depend on ranges, order, crashes or segments.

sum mod 2^256 of SHA-256 over canonical JSON of `[account_id, entitlements]`, over all view rows. Sums of parts add up
(Bellare and Micciancio, *A New Paradigm for Collision-free Hashing*, 1997: AdHash), so every range adds its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted

MODULUS = 1 << 256


def canonical(value: object) -> str:
    """Canonical JSON: sorted names, no spaces, ASCII only, numbers exact and in their shortest plain notation.

    Bytes and sets, which JSON lacks, appear as hex text and sorted lists: only rejected rows can hold them.
    """
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        plain = format(value, "f")
        return (plain.rstrip("0").rstrip(".") if "." in plain else plain) if value else "0"
    if isinstance(value, (dict, Mapping)):  # in this order: an abstract class takes long to ask
        return "{" + ",".join([f"{canonical(name)}:{canonical(value[name])}" for name in sorted(value)]) + "}"
    if isinstance(value, set | frozenset):
        return "[" + ",".join(sorted(map(canonical, value))) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical, value)) + "]"
    if value is None:
        return "null"
    return json.dumps(bytes(value).hex())  # type: ignore[call-overload]  # DynamoDB's only other type is Binary


def same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two maps of texts, numbers and booleans are the same canonical JSON: in Python `True == 1`."""
    if one.items() != other.items():  # which has no order, whatever kind of map they are
        return False
    return all(isinstance(one[name], bool) == isinstance(value, bool) for name, value in other.items())


def digest(account_id: str, entitlements: object) -> int:
    """What one view row adds to the sum."""
    return digest_of(account_id, canonical(entitlements))


def digest_of(account_id: str, entitlements: str) -> int:
    """The same of a row whose entitlements are canonical JSON already."""
    return int.from_bytes(sha256(f"[{canonical(account_id)},{entitlements}]".encode()).digest())


def hex_text(total: int) -> str:
    """A sum as stored: 64 hex digits."""
    return f"{total % MODULUS:064x}"
