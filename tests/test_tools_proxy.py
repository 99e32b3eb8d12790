"""The recording proxy counts what DynamoDB really did, and disturbs exactly the messages a test names."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from tools.faults import Hold, answer_with, delay, drop_answer, drop_request, repeat, trickle
from tools.proxy import Proxy, proxy
from tools.wire import Answer, Call

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Item = dict[str, Any]


@pytest.fixture
def proxied(emulator_url: str) -> Iterator[Proxy]:
    with proxy(emulator_url) as running:
        yield running


@pytest.fixture
def table(emulator_url: str) -> str:
    """A fresh table keyed (segment, account_id), made without the proxy."""
    name = f"view-{uuid.uuid4().hex[:8]}"
    client(emulator_url, "setup").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "segment", "AttributeType": "S"},
            {"AttributeName": "account_id", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "segment", "KeyType": "HASH"},
            {"AttributeName": "account_id", "KeyType": "RANGE"},
        ],
    )
    return name


def client(url: str, caller: str, *, attempts: int = 1, read_timeout: float = 10) -> DynamoDBClient:
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=caller,
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": attempts}, read_timeout=read_timeout),
    )


def key(account: str) -> Item:
    return {"segment": {"S": "000"}, "account_id": {"S": account}}


def put(table: str, account: str, version: int, *, absent: bool = False) -> Any:
    request: Item = {"TableName": table, "Item": {**key(account), "version": {"N": str(version)}}}
    if absent:
        request |= {"ConditionExpression": "attribute_not_exists(#a)", "ExpressionAttributeNames": {"#a": "account_id"}}
    return {"Put": request}


def update(table: str, account: str, version: int) -> Any:
    return {
        "Update": {
            "TableName": table,
            "Key": key(account),
            "UpdateExpression": "SET #n0 = :v0, #n1 = :v1",
            "ConditionExpression": "#n1 < :v1",
            "ExpressionAttributeNames": {"#n0": "run_id", "#n1": "version"},
            "ExpressionAttributeValues": {":v0": {"S": "r"}, ":v1": {"N": str(version)}},
        }
    }


def operation(name: str) -> Callable[[Call], bool]:
    return lambda call: call.operation == name


def version(dynamodb: DynamoDBClient, table: str, account: str) -> int | None:
    item = dynamodb.get_item(TableName=table, Key=key(account), ConsistentRead=True).get("Item")
    return int(item["version"]["N"]) if item else None


def test_reads_and_writes_are_counted_per_table_and_caller(proxied: Proxy, table: str) -> None:
    ada, bob = client(proxied.url, "ada"), client(proxied.url, "bob")
    ada.transact_write_items(TransactItems=[put(table, "a", 1), put(table, "b", 1)])
    bob.batch_write_item(RequestItems={table: [{"PutRequest": {"Item": key(x)}} for x in "cde"]})
    bob.delete_item(TableName=table, Key=key("e"))
    ada.query(
        TableName=table,
        KeyConditionExpression="#s = :s",
        ExpressionAttributeNames={"#s": "segment"},
        ExpressionAttributeValues={":s": {"S": "000"}},
    )
    ada.get_item(TableName=table, Key=key("a"))

    assert proxied.ledger.counts() == {
        "ada": {table: {"reads": 2, "writes": 2, "versions": 2}},
        "bob": {table: {"reads": 0, "writes": 4, "versions": 0}},
    }
    assert (proxied.ledger.reads(table), proxied.ledger.writes(table, "bob")) == (2, 4)
    assert [entry.caller for entry in proxied.ledger.entries()] == ["ada", "bob", "bob", "ada", "ada"]


def test_a_cancelled_transaction_counts_no_write_and_keeps_its_reasons(proxied: Proxy, table: str) -> None:
    dynamodb = client(proxied.url, "ada")
    dynamodb.transact_write_items(TransactItems=[put(table, "a", 1)])
    with pytest.raises(ClientError) as caught:
        dynamodb.transact_write_items(TransactItems=[put(table, "b", 1), put(table, "a", 2, absent=True)])

    assert caught.value.response["CancellationReasons"][1]["Code"] == "ConditionalCheckFailed"
    refused = proxied.ledger.entries()[-1]
    assert (refused.outcome, refused.reasons) == (
        "TransactionCanceledException",
        ("None", "ConditionalCheckFailed"),
    )
    assert (refused.effects, proxied.ledger.writes(table)) == ((), 1)


def test_a_read_that_failed_is_none(proxied: Proxy, table: str) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        client(proxied.url, "ada").get_item(TableName=table, Key={"account_id": {"S": "a"}})
    assert proxied.ledger.reads(table) == 0


def test_condition_checks_are_no_writes(proxied: Proxy, table: str) -> None:
    check: Any = {
        "ConditionCheck": {
            "TableName": table,
            "Key": key("x"),
            "ConditionExpression": "attribute_not_exists(#a)",
            "ExpressionAttributeNames": {"#a": "account_id"},
        }
    }
    client(proxied.url, "ada").transact_write_items(TransactItems=[put(table, "a", 1), check])
    assert proxied.ledger.changes(table) == {("000", "a"): 1}


def test_versions_and_changes_are_kept_per_row(proxied: Proxy, table: str) -> None:
    dynamodb = client(proxied.url, "ada")
    dynamodb.transact_write_items(TransactItems=[put(table, "a", 1), put(table, "é", 1)])
    dynamodb.transact_write_items(TransactItems=[update(table, "a", 2)])
    client(proxied.url, "bob").transact_write_items(TransactItems=[update(table, "a", 3)])

    assert proxied.ledger.versions(table) == {("000", "a"): [1, 2, 3], ("000", "é"): [1]}
    assert proxied.ledger.changes(table) == {("000", "a"): 3, ("000", "é"): 1}
    assert proxied.ledger.changes(table, "ada") == {("000", "a"): 2, ("000", "é"): 1}


def test_the_repeat_of_an_applied_request_token_counts_once(proxied: Proxy, table: str) -> None:
    dynamodb = client(proxied.url, "ada")
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=[put(table, "a", 1)], ClientRequestToken="t" * 32)

    assert [entry.replayed for entry in proxied.ledger.entries()] == [False, True]
    assert proxied.ledger.writes(table) == 1


def test_a_request_that_its_caller_died_over_never_arrives(proxied: Proxy, table: str) -> None:
    address = urlsplit(proxied.url)
    with socket.create_connection((address.hostname, address.port), 10) as caller:
        head = "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\nContent-Length: 100\r\n\r\n"
        caller.sendall(f'{head}{{"TableName": "{table}"'.encode())
        caller.shutdown(socket.SHUT_WR)
        assert caller.recv(1) == b""
    assert proxied.ledger.entries() == []


def test_a_lost_request_changes_nothing(proxied: Proxy, table: str, emulator_url: str) -> None:
    proxied.on(operation("TransactWriteItems"), drop_request)
    with pytest.raises(ConnectionClosedError):
        client(proxied.url, "ada").transact_write_items(TransactItems=[put(table, "a", 1)])

    assert version(client(emulator_url, "test"), table, "a") is None
    assert [entry.outcome for entry in proxied.ledger.entries()] == ["dropped"]


def test_a_lost_answer_leaves_the_write_applied_and_the_sdk_repeats_it(
    proxied: Proxy, table: str, emulator_url: str
) -> None:
    proxied.on(operation("TransactWriteItems"), drop_answer)
    client(proxied.url, "ada", attempts=3).transact_write_items(TransactItems=[put(table, "a", 1, absent=True)])

    first, second = proxied.ledger.entries()
    assert (first.outcome, second.outcome, second.replayed) == ("ok", "ok", True)
    assert version(client(emulator_url, "test"), table, "a") == 1


def test_a_repeated_request_is_applied_twice_and_the_second_answer_goes_back(proxied: Proxy, table: str) -> None:
    proxied.on(operation("PutItem"), repeat)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        client(proxied.url, "ada").put_item(**put(table, "a", 1, absent=True)["Put"])

    assert [entry.outcome for entry in proxied.ledger.entries()] == ["ok", "ConditionalCheckFailedException"]


def test_a_request_can_be_repeated_much_later(proxied: Proxy, table: str) -> None:
    rule = proxied.on(operation("PutItem"), lambda _, forward: forward())
    dynamodb = client(proxied.url, "ada")
    dynamodb.put_item(**put(table, "a", 1)["Put"])
    dynamodb.put_item(**put(table, "a", 2)["Put"])
    answer = proxied.forward(rule.matched[0])

    assert answer is not None
    assert (answer.status, version(dynamodb, table, "a")) == (200, 1)


def test_a_request_held_before_it_is_applied_arrives_late(proxied: Proxy, table: str, emulator_url: str) -> None:
    hold = Hold("before")
    proxied.on(operation("PutItem"), hold)
    with pytest.raises(ReadTimeoutError):
        client(proxied.url, "ada", read_timeout=0.3).put_item(**put(table, "a", 1)["Put"])
    direct = client(emulator_url, "test")
    assert version(direct, table, "a") is None

    hold.release()
    proxied.ledger.wait_for(lambda: proxied.ledger.writes(table) == 1, 5, "the held request is applied")
    assert version(direct, table, "a") == 1


def test_an_answer_held_back_belongs_to_an_applied_request(proxied: Proxy, table: str, emulator_url: str) -> None:
    hold = Hold("after")
    proxied.on(operation("PutItem"), hold)
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(client(proxied.url, "ada").put_item, **put(table, "a", 1)["Put"])
        assert hold.wait(5).caller == "ada"
        assert version(client(emulator_url, "test"), table, "a") == 1
        assert not pending.done()
        hold.release()
        assert pending.result(5)["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_what_is_still_held_at_the_end_is_dropped(table: str, emulator_url: str) -> None:
    hold = Hold("before")
    with ThreadPoolExecutor(1) as pool:
        with proxy(emulator_url) as running:
            running.on(operation("PutItem"), hold)
            pending = pool.submit(client(running.url, "ada").put_item, **put(table, "a", 1)["Put"])
            hold.wait(5)
        with pytest.raises(ConnectionClosedError):
            pending.result(5)
    assert version(client(emulator_url, "test"), table, "a") is None


@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_delayed_message_takes_that_much_longer(proxied: Proxy, table: str, stage: Any) -> None:
    dynamodb = client(proxied.url, "ada")
    dynamodb.put_item(**put(table, "a", 1)["Put"])
    proxied.on(operation("PutItem"), delay(0.3, stage))
    began = time.monotonic()
    dynamodb.put_item(**put(table, "a", 2)["Put"])
    assert time.monotonic() - began >= 0.3


def test_no_read_timeout_ends_an_answer_that_trickles(proxied: Proxy, table: str) -> None:
    put_one = put(table, "a", 1)["Put"]
    client(proxied.url, "ada").put_item(**put_one)
    rule = proxied.on(operation("GetItem"), trickle(0.03))
    dynamodb = client(proxied.url, "ada", read_timeout=1)
    began = time.monotonic()
    answer = dynamodb.get_item(TableName=table, Key=key("a"))
    assert time.monotonic() - began > 1
    assert (answer["Item"], len(rule.matched)) == (put_one["Item"], 1)


@pytest.mark.parametrize("applied", [False, True])
def test_an_error_can_be_answered_with_or_without_applying(proxied: Proxy, table: str, applied: bool) -> None:
    conflict = Answer.of_error("TransactionCanceledException", CancellationReasons=[{"Code": "TransactionConflict"}])
    proxied.on(operation("TransactWriteItems"), answer_with(conflict, applied=applied))
    dynamodb = client(proxied.url, "ada")
    with pytest.raises(ClientError) as caught:
        dynamodb.transact_write_items(TransactItems=[put(table, "a", 1)])

    assert caught.value.response["CancellationReasons"] == [{"Code": "TransactionConflict"}]
    assert version(dynamodb, table, "a") == (1 if applied else None)


def test_a_rule_takes_only_what_matches_and_only_so_often(proxied: Proxy, table: str) -> None:
    throttled = answer_with(Answer.of_error("ThrottlingException"))
    rule = proxied.on(lambda call: call.caller == "ada" and call.tables == (table,), throttled, times=2)
    ada, bob = client(proxied.url, "ada"), client(proxied.url, "bob")
    bob.get_item(TableName=table, Key=key("a"))
    for _ in range(2):
        with pytest.raises(ClientError, match="ThrottlingException"):
            ada.get_item(TableName=table, Key=key("a"))
    ada.get_item(TableName=table, Key=key("a"))

    assert [call.caller for call in rule.matched] == ["ada", "ada"]
    assert (proxied.ledger.reads(table, "ada"), proxied.ledger.reads(table, "bob")) == (1, 1)


def test_a_rule_can_wait_for_what_the_ledger_shows(proxied: Proxy, table: str) -> None:
    """A caller's next request after its second write is held: nothing of it slips through."""
    hold = Hold("before")
    proxied.on(lambda call: proxied.ledger.writes(table, call.caller) >= 2, hold, times=None)

    def write_on() -> None:
        dynamodb = client(proxied.url, "ada")
        for number in range(1, 5):
            dynamodb.put_item(**put(table, "a", number)["Put"])

    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(write_on)
        hold.wait(5)
        assert proxied.ledger.versions(table) == {("000", "a"): [1, 2]}
        hold.release()
        pending.result(5)
    assert proxied.ledger.versions(table) == {("000", "a"): [1, 2, 3, 4]}


def test_parallel_callers_are_all_counted(proxied: Proxy, table: str) -> None:
    def write(caller: int) -> None:
        dynamodb = client(proxied.url, f"caller-{caller}")
        for number in range(25):
            dynamodb.put_item(**put(table, f"{caller}", number)["Put"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert proxied.ledger.writes(table) == 200
    assert all(proxied.ledger.writes(table, f"caller-{caller}") == 25 for caller in range(8))
    assert proxied.ledger.versions(table)["000", "3"] == list(range(25))


def test_an_upstream_that_is_gone_breaks_the_connection() -> None:
    with proxy("http://127.0.0.1:9") as running:
        with pytest.raises(ConnectionClosedError):
            client(running.url, "ada").list_tables()
        assert [entry.outcome for entry in running.ledger.entries()] == ["unreachable"]


@pytest.mark.parametrize("kind", [LookupError, TimeoutError, BrokenPipeError])
def test_a_defect_in_a_rule_is_not_swallowed(emulator_url: str, kind: type[Exception]) -> None:
    def broken(call: Call) -> bool:
        raise kind("a defect")

    running = Proxy(emulator_url)
    running.on(broken, drop_request)
    with pytest.raises(ConnectionClosedError):
        client(running.url, "ada").list_tables()
    with pytest.raises(kind, match="a defect"):
        running.close()


def test_no_thread_outlives_the_proxy(emulator_url: str) -> None:
    before = set(threading.enumerate())
    with proxy(emulator_url) as running:
        client(running.url, "ada").list_tables()
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) - before == set()


def test_it_runs_as_a_process_of_its_own(emulator_url: str, table: str) -> None:
    command = [sys.executable, "-m", "tools.proxy", "--upstream", emulator_url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            client(url, "ada").put_item(**put(table, "a", 7)["Put"])
            with urlopen(f"{url}/_proxy/counts") as shown:
                assert json.load(shown) == {"ada": {table: {"reads": 0, "writes": 1, "versions": 1}}}
            with urlopen(f"{url}/_proxy/log") as shown:
                (entry,) = json.load(shown)
            assert (entry["operation"], entry["outcome"]) == ("PutItem", "ok")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
