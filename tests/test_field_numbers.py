"""Numbers: exact from the source to the view, in the answer and in the log."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import IntEnum
from functools import cache
from typing import Any

import botocore.session
import pytest
from boto3.dynamodb.types import Binary, TypeSerializer
from botocore.validate import validate_parameters
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.errors import RowInvalid
from reconciler.items import MAX_EXPONENT, MIN_EXPONENT, exact, storable, to_item
from reconciler.source import SourceRecord
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.faults import Wire
from tests.kit import Rows, delivered, grants, killed, logged, wait
from tests.world import NIGHT, World, event

EXACT: dict[str, Any] = {
    "generation": 7,
    "rate": Decimal("0.5"),
    "count": 2**53 + 1,
    "negative": -3,
    "tiny": Decimal("1E-100"),
    "long": Decimal("0.12345678901234567890123456789012345678"),
    "huge": Decimal("1E+125"),
    "digits": 10**38 - 1,
    "zero": 0,
    "flag": True,
}


@pytest.mark.field("B75")
def test_a_number_arrives_as_it_was_sent(world: World) -> None:
    world.account("a", **EXACT)
    world.account("b", **EXACT)
    world.view_row("b", **EXACT)
    world.run("nightly")
    assert world.view() == {"a": EXACT, "b": EXACT}
    assert world.versions() == {"a": 1, "b": 1}, "b was equal and is not written"
    assert world.interval()["checksum"] == world.view_checksum()


def spelled_out(value: Any) -> Any:
    """As DynamoDB answers numbers: with every digit written out, which the fakes do not."""
    if isinstance(value, dict):
        return {
            name: format(Decimal(entry), "f") if name == "N" and isinstance(entry, str) else spelled_out(entry)
            for name, entry in value.items()
        }
    return [spelled_out(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.field("B75")
def test_numbers_that_dynamodb_spells_out_are_the_same_numbers(world: World) -> None:
    def answered(parsed: dict[str, Any], **_: Any) -> None:
        parsed.update(spelled_out({name: parsed[name] for name in ("Items", "Item") if name in parsed}))

    world.client.meta.events.register("after-call.dynamodb", answered)
    world.account("a", **EXACT)
    world.account("b", **EXACT)
    world.view_row("b", version=None, **EXACT, more=Decimal("1E+39"))
    for _ in range(2):
        assert world.run("nightly")[-1].outcome == "completed"
        assert world.view() == {"a": EXACT, "b": EXACT}
        assert world.versions() == {"a": 1, "b": 1}
        world.clock.advance(86_400)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1" + "0" * 39, Decimal("1E+39")),
        ("-1" + "0" * 125, Decimal("-1E+125")),
        ("0." + "0" * 129 + "1", Decimal("1E-130")),
        ("1.50", Decimal("1.5")),
        ("-0.0", 0),
        ("1e2", 100),
        ("9" * 38, 10**38 - 1),
        ("9" * 37, 10**37 - 1),
        ("1" * 39, Decimal("1" * 39)),
    ],
)
def test_a_number_is_read_exactly_in_its_shortest_form(text: str, number: int | Decimal) -> None:
    found = exact(text)
    assert (type(found), str(found)) == (type(number), str(number))


class Level(IntEnum):
    ONE = 1


class Text(str):
    pass


ODD: list[Any] = [Level.ONE, Text("é"), 10**38, -(10**38), 10**38 - 1, 10**40, 0.5, float("nan"), Binary(b"x")]
ODD += [b"", bytearray(b"x"), set(), {1, Decimal("2.5")}, {"a", "b"}, frozenset({1}), {b"x"}, {1, "a"}, (), (1, "a")]
ODD += map(Decimal, ["1.0", "-0", "0E+200", "0E-140", "0E-200", "NaN", "-NaN", "sNaN", "Infinity", "-Infinity"])
ODD += map(Decimal, ["1E+39", "1E+125", "1E+126", "1E+127", "1E-130", "1E-131", "1E-165", "1E-166"])
ODD += map(Decimal, [f"1.{'1' * 37}", f"1.{'1' * 38}"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**40), 10**40), st.decimals(), st.text(st.characters(codec=None))
)
values = st.recursive(
    scalars | st.sampled_from(ODD),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=4,
)


def made(make: Any, value: Any) -> Any:
    try:
        return make(value)
    except (TypeError, ArithmeticError) as error:
        return type(error)


@given(values)
def test_a_value_is_written_as_boto3_writes_it(value: Any) -> None:
    """Or refused as boto3 refuses it, which is slower."""
    expected = made(TypeSerializer().serialize, value)
    assert repr(made(lambda one: to_item({"a": one})["a"], value)) == repr(expected)


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_an_odd_value_is_written_as_boto3_writes_it(value: Any) -> None:
    expected = made(TypeSerializer().serialize, value)
    assert repr(made(lambda one: to_item({"a": one})["a"], value)) == repr(expected)


@given(st.integers(-(10**40), 10**40) | st.decimals() | st.sampled_from(ODD).filter(lambda one: type(one) is Decimal))
@example(Decimal("0E-140"))
def test_what_boto3_writes_can_be_stored_unless_dynamodb_has_no_such_exponent(number: int | Decimal) -> None:
    written = made(TypeSerializer().serialize, number)
    fits = isinstance(written, dict) and Decimal(number).is_finite()
    assert storable(number) == (fits and (not number or MIN_EXPONENT <= Decimal(number).adjusted() <= MAX_EXPONENT))


names = st.text(max_size=3) | st.sampled_from([7, None, 0.5, True, b"x"])


@given(
    st.recursive(
        values, lambda some: st.lists(some, max_size=2) | st.dictionaries(names, some, max_size=3), max_leaves=3
    )
)
def test_what_is_sent_is_of_dynamodbs_types(value: Any) -> None:
    """The job's client does not hold requests against botocore's model: what fails there must not be made."""
    item = made(to_item, {"a": value})
    if isinstance(item, dict):
        validate_parameters({"TableName": "t", "Item": item}, put_item())


@cache
def put_item() -> Any:
    """What botocore says of the request."""
    return botocore.session.Session().get_service_model("dynamodb").operation_model("PutItem").input_shape


@pytest.mark.parametrize("value", [{7: 1}, [{None: 1}], {"a": ({"b": {True: 1}},)}], ids=repr)
def test_a_name_that_is_not_text_is_never_sent(value: Any) -> None:
    """JSON would turn it into text."""
    with pytest.raises(TypeError, match="is not text"):
        to_item({"a": value})


@pytest.mark.field("B75")
def test_a_number_and_a_flag_are_not_the_same_entitlement(world: World) -> None:
    """In Python `True == 1`."""
    world.account("a", seats=1)
    world.view_row("a", seats=True)
    world.run("nightly")
    assert world.view()["a"]["seats"] is not True


@pytest.mark.field("B75")
def test_answers_are_json_also_when_they_come_from_the_idempotency_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.account("a", **EXACT)
    with world.deployed(monkeypatch), logged() as lines:
        first = delivered(world, event("nightly"))
        again = delivered(world, event("nightly"))
    assert json.loads(json.dumps(first)) == first
    assert json.loads(json.dumps(again))["first"] == first
    assert lines


@pytest.mark.field("B75")
@pytest.mark.parametrize(
    "value",
    [0.5, Decimal("NaN"), Decimal("-Infinity"), 10**40 + 1, Decimal("1." + "1" * 40), None, b"x", [1]],
    ids=repr,
)
def test_a_value_that_dynamodb_cannot_hold_is_rejected_and_the_rest_goes_on(world: World, value: Any) -> None:
    records = [SourceRecord(name, "active", {"seats": value if name == "b" else 1}) for name in "abc"]
    (result,) = world.run("nightly", job=lambda invocation: Job(Rows(records), EntitlementsTable(invocation)))
    assert result.outcome == "completed"
    assert world.view() == {"a": {"seats": 1}, "c": {"seats": 1}}
    (rejected,) = (row for row in world.audit() if row["event"] == "REJECTED")
    assert rejected["account_id"] == "b"
    assert "'seats'" in rejected["reason"]


def test_an_entitlement_whose_name_is_no_text_is_rejected(world: World) -> None:
    entitlements: Any = {7: "gold"}
    source = Rows([SourceRecord("a", "active", entitlements), SourceRecord("b", "active", {"plan": "gold"})])
    (result,) = world.run("nightly", job=lambda invocation: Job(source, EntitlementsTable(invocation)))
    assert result.outcome == "completed"
    assert world.view() == {"b": {"plan": "gold"}}


@pytest.mark.field("B75")
def test_an_error_about_numbers_is_told_as_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    grants(world, "a")
    killed(world, Wire(world.client), "commit")
    world.put_control(f"INTERVAL#{NIGHT}", revoked=..., late=Decimal("0.5"), big=2**53 + 1)
    wait(world)
    with world.deployed(monkeypatch), pytest.raises(RowInvalid, match=r"INTERVAL#2026-11-29.*revoked"):
        delivered(world, event())
