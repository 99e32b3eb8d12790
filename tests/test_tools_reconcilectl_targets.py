"""reconcilectl finds a stack or the local tables by name; whatever is wrong is one line, exit code 2, no traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sysconfig
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
)
from botocore.response import StreamingBody
from botocore.stub import Stubber

from reconciler.errors import RowInvalid, TransientFailure
from tests.ctl import Operator, operator
from tests.kit import grants, logged, numbered
from tools import local_file, reconcilectl
from tools.ctl import target
from tools.ctl.errors import CtlError, Uncertain, one_line
from tools.emulator import free_port

ROOT = Path(__file__).resolve().parents[1]
HANDLER = """
import os, sys
sys.path[:0] = {paths!r}
os.environ["AWS_ENDPOINT_URL"] = {url!r}
os.environ["AWS_LAMBDA_FUNCTION_NAME"] = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "reconcile")
from reconciler import app
handler = app.reconcile
"""


@pytest.fixture
def person(
    emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    monkeypatch.delenv(target.VARIABLE, raising=False)
    return operator(emulator_url, tmp_path, monkeypatch, capsys)


@pytest.fixture
def stack(person: Operator, emulator_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A deployed stack whose ReconcileFunction is the real handler on the person's tables."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    code = HANDLER.format(paths=[str(ROOT / "src"), sysconfig.get_path("purelib")], url=emulator_url)
    function = {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Runtime": "python3.11",
            "Handler": "index.handler",
            "Role": "arn:aws:iam::000000000000:role/any",
            "Timeout": 60,
            "Code": {"ZipFile": code},
            "Environment": {"Variables": person.world.environ},
        },
    }
    name = f"nights-{uuid.uuid4().hex[:8]}"
    cloudformation = boto3.client("cloudformation")
    template = json.dumps({"Resources": {target.FUNCTION: function}})
    cloudformation.create_stack(StackName=name, TemplateBody=template)
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    yield name
    cloudformation.delete_stack(StackName=name)
    cloudformation.close()


def deployed(person: Operator, *arguments: str) -> tuple[int, str, str]:
    """A command without --local."""
    person.capsys.readouterr()
    code = reconcilectl.main(arguments)
    said = person.capsys.readouterr()
    return code, said.out, said.err


def refuses(person: Operator, *arguments: str) -> str:
    """The one line that a command without --local fails with."""
    code, out, err = deployed(person, *arguments)
    assert (code, err.count("\n")) == (2, 1), (code, out, err)
    line = err.removeprefix("reconcilectl: ").strip()
    assert out == ("" if "--json" not in arguments else json.dumps({"error": line}) + "\n")
    return err


def test_a_deployed_stack_is_found_by_name_and_commanded(
    person: Operator, stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants(person.world, *numbered(5))
    person.world.run("nightly")
    code, out, err = deployed(person, "status", "--stack-name", stack, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["target"] == f"stack {stack} in eu-west-1"
    assert json.loads(out)["intervals"][0]["state"] == "COMPLETED"
    monkeypatch.setenv(target.VARIABLE, stack)
    code, out, err = deployed(
        person, "--region", "eu-west-1", "pause", "--reason", "why", "--by", "ada", "--yes", "--json"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["result"]["pause_no"] == 1
    code, out, err = deployed(person, "status")
    assert "PAUSED" in out
    assert "by ada: why" in out
    # The emulator tells every error's message, but not its class, as AWS does.
    line = refuses(person, "skip", person.night, "--reason", "why", "--yes")
    assert f"Skip: {person.night} is COMPLETED" in line


def test_options_stand_before_the_command_or_after_it(person: Operator) -> None:
    person.world.run("nightly")
    before = deployed(person, "--local", "--json", "plan")
    after = deployed(person, "plan", "--json", "--local")
    assert before[0] == after[0] == 0
    assert json.loads(before[1])["job"] == json.loads(after[1])["job"] == "entitlements"


def test_a_local_target_is_named_in_spite_of_the_variable(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(target.VARIABLE, "prod")
    person.sees("status")
    assert "leave them out with --local" in person.fails("status", "--region", "eu-west-1")
    assert "leave them out with --local" in person.fails("plan", "--profile", "prod")
    assert "give one of them" in person.fails("status", "--stack-name", "prod")


def test_without_any_target_the_line_says_how_to_name_one(person: Operator) -> None:
    assert "--stack-name NAME (or set RECONCILER_STACK), or --local" in refuses(person, "status")


def test_an_unknown_stack_is_named(person: Operator, emulator_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    line = refuses(person, "status", "--stack-name", "nowhere", "--region", "eu-central-1")
    assert (
        line == "reconcilectl: there is no stack nowhere in eu-central-1: check --stack-name, --region and --profile\n"
    )
    assert "there is no stack nowhere" in refuses(
        person, "pause", "--reason", "x", "--yes", "--stack-name", "nowhere", "--json"
    )


def test_a_stack_of_another_template_is_named(
    person: Operator, emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    name = f"other-{uuid.uuid4().hex[:8]}"
    cloudformation = boto3.client("cloudformation")
    cloudformation.create_stack(
        StackName=name, TemplateBody=json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})
    )
    assert "was not made from this template" in refuses(person, "status", "--stack-name", name)
    cloudformation.delete_stack(StackName=name)
    cloudformation.close()


def test_an_unreachable_endpoint_is_named(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    line = refuses(person, "status", "--stack-name", "prod")
    assert "stack prod could not be reached" in line
    assert "--region" in line


def test_a_profile_that_does_not_exist_is_named(person: Operator) -> None:
    assert "--profile" in refuses(person, "status", "--stack-name", "prod", "--profile", "nobody")


def test_the_region_is_found_as_the_aws_cli_finds_it(
    person: Operator, emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-1")
    assert "stack nowhere in eu-north-1" in refuses(person, "status", "--stack-name", "nowhere")
    monkeypatch.delenv("AWS_REGION")
    assert "stack nowhere in eu-south-1" in refuses(person, "status", "--stack-name", "nowhere")


def test_a_missing_region_is_named(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION")
    assert "--region" in refuses(person, "status", "--stack-name", "prod")


def said(code: str, message: str = "said by a test") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (said("ExpiredToken"), "AWS refused the credentials (ExpiredToken: said by a test): check --profile"),
        (said("AccessDeniedException"), "AWS refused the credentials"),
        (said("ResourceNotFoundException"), "has it been deleted"),
        (said("Odd"), "AWS refused (Odd: said by a test)"),
        (NoCredentialsError(), "no usable AWS credentials"),
        (ProfileNotFound(profile="nobody"), "check --profile"),
        (EndpointConnectionError(endpoint_url="http://x"), "could not be reached"),
        (ReadTimeoutError(endpoint_url="http://x"), "could not be reached"),
        (RowInvalid("INTERVAL#x: state is 'odd'"), "RowInvalid: INTERVAL#x: state is 'odd'"),
        (CtlError("two\n  lines"), "two lines"),
    ],
)
def test_every_known_error_is_one_line(error: Exception, words: str) -> None:
    line = one_line(error, "stack prod")
    assert words in line
    assert "\n" not in line


def test_what_aws_said_to_a_read_is_found_behind_the_engines_own_error() -> None:
    failure = TransientFailure("get_item failed")
    failure.__cause__ = EndpointConnectionError(endpoint_url="http://x")
    assert "could not be reached" in one_line(failure, "stack prod")
    assert one_line(failure, "local emulator at x", is_local=True).endswith("start it anew with make local")


def test_a_stack_of_an_older_version_lacks_a_setting_and_says_so(person: Operator) -> None:
    del person.world.environ["CATCH_UP_POLICY"]
    person.writes_file()
    line = person.fails("status")
    assert "CATCH_UP_POLICY is not set" in line
    assert "deployed from another version" in line


@pytest.mark.parametrize(
    ("kind", "raised", "words"),
    [
        ("VerbRefused", CtlError, "refused: Skip: it is COMPLETED"),
        ("InvalidTrigger", CtlError, "refused: Skip: it is COMPLETED"),
        ("TransientFailure", Uncertain, "the function raised TransientFailure: Skip: it is COMPLETED"),
    ],
)
def test_what_the_function_raises_is_told_as_aws_tells_it(kind: str, raised: type[Exception], words: str) -> None:
    functions = boto3.client("lambda")
    payload = json.dumps({"errorType": kind, "errorMessage": "Skip: it is COMPLETED", "stackTrace": ["many", "lines"]})
    body = StreamingBody(io.BytesIO(payload.encode()), len(payload))
    with Stubber(functions) as stub:
        stub.add_response("invoke", {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": body})
        with pytest.raises(CtlError) as caught:
            target._invoke(functions, "f", "stack prod", {})
    functions.close()
    assert type(caught.value) is raised
    assert str(caught.value).startswith(words)


def test_an_answer_that_does_not_come_is_not_taken_for_a_failure() -> None:
    functions = boto3.client("lambda")
    with Stubber(functions) as stub:
        stub.add_client_error("invoke", "TooManyRequestsException", http_status_code=429)
        with pytest.raises(ClientError):
            target._invoke(functions, "f", "stack prod", {})
        stub.add_client_error("invoke", "ServiceException", http_status_code=500)
        with pytest.raises(Uncertain, match="ServiceException"):
            target._invoke(functions, "f", "stack prod", {})

    def time_out(**_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="http://x")

    functions.meta.events.register("before-send.lambda.Invoke", time_out)
    with pytest.raises(Uncertain, match="may be at work all the same"):
        target._invoke(functions, "f", "stack prod", {})
    functions.close()


def test_without_the_file_of_make_local_it_says_what_to_start(person: Operator) -> None:
    person.file.unlink()
    line = person.fails("status")
    assert str(person.file) in line
    assert "make local" in line
    person.file.write_text("{", "utf-8")
    assert "make local" in person.fails("status", "--json")


def test_an_emulator_that_is_gone_is_named(person: Operator) -> None:
    port = free_port()
    said = {"endpoint": f"http://127.0.0.1:{port}", "region": "eu-west-1", "variables": person.world.environ}
    local_file.write_local(person.file, said)
    for command in (["status"], ["plan"], ["audit", person.night], ["pause", "--reason", "x", "--yes"]):
        assert f"127.0.0.1:{port} does not answer" in person.fails(*command)


def test_a_table_that_is_gone_is_one_line_without_the_engines_log(person: Operator) -> None:
    person.world.run("nightly")
    person.world.client.delete_table(TableName=person.world.tables["ControlTable"])
    with logged() as lines:
        assert "has it been deleted" in person.fails("status", "--json")
    assert lines == []


def test_an_interval_that_is_not_on_record_is_named(person: Operator) -> None:
    assert "2020-01-01 is not on record" in person.fails("audit", "2020-01-01")
    assert "2020-01-01 is not on record" in person.fails("timeline", "2020-01-01")
    person.world.run("nightly")
    assert "2020-01-01 is not on record" in person.fails("audit", "2020-01-01", "--json")
    assert "2020-01-01 is not on record" in person.fails("rerun", "2020-01-01", "--reason", "why")


@pytest.mark.parametrize("interval", ["yesterday", "2026-11-31", "20261129", "2026-W48-7", ""])
def test_an_interval_that_is_no_date_is_named(person: Operator, interval: str) -> None:
    for command in ("audit", "timeline"):
        assert f"{interval!r} is no interval" in person.fails(command, interval)
    assert "must be a date as in 2026-11-29" in person.fails("skip", interval, "--reason", "why", "--yes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        ([], "Missing command"),
        (["status", "--frob"], "--frob"),
        (["skip", "2026-11-29"], "--reason"),
        (["rerun", "2026-11-29", "--reason", "x", "--revocation-bound", "many"], "'--revocation-bound'"),
        (["audit"], "INTERVAL"),
        (["pause"], "(reconcilectl pause --help lists what there is)"),
        (["pause", "--json"], "--reason"),
    ],
)
def test_a_wrong_command_line_is_one_line(person: Operator, arguments: list[str], words: str) -> None:
    assert words in person.fails(*arguments)


def test_a_picture_that_cannot_be_drawn_is_named(person: Operator, tmp_path: Path) -> None:
    person.world.run("nightly")
    assert "night.gif" in person.fails("timeline", person.night, "--out", str(tmp_path / "night.gif"))
    assert "nowhere" in person.fails("timeline", person.night, "--out", str(tmp_path / "nowhere" / "night.svg"))


def test_the_wrapper_runs_from_any_directory(person: Operator, tmp_path: Path) -> None:
    linked = tmp_path / "ctl"
    linked.symlink_to(ROOT / "reconcilectl")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run([linked, "--help"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert all(name in shown.stdout for name in ("status", "audit", "plan", "timeline", "preview", "release-lease"))
    wrong = subprocess.run([linked, "frob"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
