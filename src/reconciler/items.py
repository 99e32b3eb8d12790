"""Rows as Python values: DynamoDB's typed JSON in, plain values out, and back.

Whole numbers come back as int, others as Decimal, so nothing is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from boto3.dynamodb.types import DYNAMODB_CONTEXT, TypeDeserializer, TypeSerializer

from reconciler.errors import RowInvalid, SchemaTooNew

SCHEMA = 1
"""The newest row layout this code reads and writes."""

MAX_DIGITS = 38
"""Of a DynamoDB number. Longer whole numbers stay Decimals: as int they would have digits that cannot be stored."""

MIN_EXPONENT, MAX_EXPONENT = -130, 125
"""Of a DynamoDB number, written with one digit before the point."""

MAX_NAME_BYTES = 65_535
MAX_ITEM_BYTES = 400 * 1024
"""Of a DynamoDB attribute's name, and of a row."""

Row = dict[str, Any]

_SHORT = Context(prec=400, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""Takes zeros off the end of a number, and rounds none that DynamoDB may hold."""

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def to_item(row: Mapping[str, object]) -> dict[str, Any]:
    """A row in DynamoDB's typed JSON.

    Raises TypeError for floats, names that are not text and other types DynamoDB lacks, ArithmeticError for numbers
    that it would round.
    """
    for name in row:
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r:.60} is not text")
    return {name: _attribute(value) for name, value in row.items()}


def _attribute(value: Any) -> Any:
    """What boto3 makes of it, which takes long to tell the kinds that nearly every value is of."""
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is bool:
        return {"BOOL": value}
    if kind is int or kind is Decimal:
        number = DYNAMODB_CONTEXT.create_decimal(value)
        if number.is_finite():
            return {"N": str(number)}
    if isinstance(value, (dict, Mapping)):
        return {"M": to_item(value)}
    if isinstance(value, list | tuple):
        return {"L": [_attribute(entry) for entry in value]}
    return _serialize(value)


def storable(value: str | int | Decimal) -> bool:
    """Whether a number or text can be written exactly as it is; no UTF-8 holds a lone surrogate."""
    if isinstance(value, str):
        return value.isascii() or not re.search("[\ud800-\udfff]", value)
    try:
        number = DYNAMODB_CONTEXT.create_decimal(value)
    except ArithmeticError:
        return False  # it would be rounded
    return number.is_finite() and (not number or MIN_EXPONENT <= number.adjusted() <= MAX_EXPONENT)


def size(value: object) -> int:
    """Bytes that a storable value takes, as DynamoDB counts them for its limit of an item, or a few more."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return 3 + len(str(value)) // 2
    if isinstance(value, Decimal):
        return 3 + len(value.as_tuple().digits) // 2
    if isinstance(value, Mapping):
        return 3 + sum([1 + size(name) + size(entry) for name, entry in value.items()])
    return 1


def from_item(item: Mapping[str, Any]) -> Row:
    """A row of plain values."""
    return {name: _value(value) for name, value in item.items()}


def exact(text: str) -> int | Decimal:
    """A number as it is written, in its shortest form: an int, or a Decimal where that has a fraction or is longer.

    Not by boto3, which refuses what DynamoDB answers for 1E+39: it writes every digit out. Raises InvalidOperation.
    """
    if len(text) < MAX_DIGITS and text.removeprefix("-").isdecimal():
        return int(text)
    number = Decimal(text)
    if len(text) <= _SHORT.prec:
        number = number.normalize(_SHORT)
    if number.is_finite() and number == number.to_integral_value() and number.adjusted() < MAX_DIGITS:
        return int(number)
    return number


def _value(attribute: Any) -> Any:
    ((kind, value),) = attribute.items()
    match kind:
        case "S" | "BOOL":
            return value
        case "N":
            return exact(value)
        case "M":
            return {name: _value(entry) for name, entry in value.items()}
        case "L":
            return [_value(entry) for entry in value]
        case "NS":
            return {exact(entry) for entry in value}
    return _deserialize(attribute)


def control_row(item: Mapping[str, Any]) -> Row:
    """A ControlTable row. Raises SchemaTooNew when newer code wrote it."""
    row = from_item(item)
    schema = row.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise SchemaTooNew(
            f"{row.get('sk')} has schema {schema!r}; this code knows {SCHEMA}: deploy the code that wrote it"
        )
    return row


def attribute(
    row: Row, name: str, kind: type, *, parse: Callable[[Any], object] | None = None, optional: bool = False
) -> Any:
    """An attribute of a control row. Raises RowInvalid naming the row and what is wrong with the attribute.

    `parse` is what the value must survive. An optional attribute may be absent: None.
    """
    if optional and name not in row:
        return None
    value: Any = row.get(name)
    valid = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    if not valid:
        raise RowInvalid(f"{row.get('sk')}: {name} is {value!r}, not {_NAMES[kind]}")
    if parse is not None:
        try:
            parse(value)
        except ValueError as error:
            raise RowInvalid(f"{row.get('sk')}: {name} is {value!r}: {error}") from None
    return value


_NAMES = {str: "a text", int: "a whole number", bool: "true or false", dict: "a map"}
