"""Where reconcilectl looks and acts: a deployed stack, or the tables of `make local`.

Both are the same to whoever uses them: the functions' own settings, a client for the tables, and a way to send an
event to the real handler.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from reconciler.clock import Clock, SystemClock
from reconciler.invocation import Invocation
from reconciler.settings import Settings
from tools import local_file
from tools.ctl.errors import CtlError, Uncertain, refused
from tools.local_file import answers, read_local
from tools.worker import Worker, WorkerError

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_lambda import LambdaClient

VARIABLE = "RECONCILER_STACK"
FUNCTION = "ReconcileFunction"
PATIENCE_S = 930
"""Longer than a function may run (15 min), so that an answer is never given up before it can come."""

CLOCK: Clock = SystemClock()

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """`name` is for messages; `send` hands an event to the handler and returns its answer, or raises CtlError."""

    name: str
    settings: Settings
    client: DynamoDBClient
    send: Callable[[Json], Json]

    def close(self) -> None:
        self.client.close()

    def invocation(self) -> Invocation:
        """To read rows with; there is no end to its time."""
        return Invocation(
            settings=self.settings,
            client=self.client,
            clock=CLOCK,
            remaining_ms=lambda: PATIENCE_S * 1000,
            owner="reconcilectl",
        )


def deployed(stack: str, *, region: str | None = None, profile: str | None = None) -> Target:
    """The stack of that name. Raises CtlError when it is not one of this template, else what AWS says."""
    # boto3 knows AWS_DEFAULT_REGION only; the AWS CLI asks AWS_REGION first.
    session = boto3.Session(profile_name=profile, region_name=region or os.environ.get("AWS_REGION") or None)
    name = f"stack {stack} in {session.region_name}"
    brief = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})
    function = _function_of(stack, name, session, brief)
    variables = _variables(session.client("lambda", config=brief), function)
    # A call repeated by the SDK would be a second command, and a call given up may still be at work.
    patient = Config(connect_timeout=5, read_timeout=PATIENCE_S, retries={"total_max_attempts": 1}, tcp_keepalive=True)
    functions = session.client("lambda", config=patient)
    client = session.client("dynamodb", config=brief)
    return Target(name, Settings.from_env(variables), client, lambda event: _invoke(functions, function, name, event))


def _function_of(stack: str, name: str, session: boto3.Session, config: Config) -> str:
    cloudformation = session.client("cloudformation", config=config)
    try:
        answer = cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId=FUNCTION)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        if FUNCTION in error.response["Error"].get("Message", ""):
            raise CtlError(f"{name} has no {FUNCTION}: it was not made from this template") from None
        raise CtlError(f"there is no {name}: check --stack-name, --region and --profile") from None
    physical = answer["StackResourceDetail"].get("PhysicalResourceId")
    if not physical:
        raise CtlError(f"{name} has no {FUNCTION} yet: wait until it is deployed")
    return physical


def _variables(functions: LambdaClient, function: str) -> Mapping[str, str]:
    return functions.get_function_configuration(FunctionName=function).get("Environment", {}).get("Variables", {})


def _invoke(functions: LambdaClient, function: str, name: str, event: Json) -> Json:
    try:
        answer = functions.invoke(FunctionName=function, Payload=json.dumps(event).encode())
    except (HTTPClientError, ClientError) as error:
        if isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
            raise
        raise Uncertain(f"{name}: no answer ({error}), it may be at work all the same") from None
    payload = json.loads(answer["Payload"].read() or b"null")
    if "FunctionError" in answer:
        raise refused(payload if isinstance(payload, dict) else {"errorMessage": str(payload)})
    return dict(payload)


def local(path: Path | None = None) -> Target:
    """What `make local` started. Raises CtlError when it is not running."""
    path = path or local_file.LOCAL_FILE
    found = read_local(path)
    if found is None:
        raise CtlError(f"no local emulator ({path} is missing or not readable): start one with make local")
    endpoint, region, variables = found["endpoint"], found["region"], found["variables"]
    if not answers(endpoint):
        raise CtlError(f"the local emulator at {endpoint} does not answer: start it anew with make local")
    client = boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id="reconcilectl",
        aws_secret_access_key="local",
        config=Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}),
    )

    def send(event: Json) -> Json:
        with (
            tempfile.TemporaryDirectory(prefix="reconciler-") as directory,
            Worker("reconcilectl", variables, endpoint=endpoint, directory=Path(directory), region=region) as worker,
        ):
            worker.ready()
            try:
                reply = worker.call(event, timeout_s=PATIENCE_S)
            except WorkerError as error:
                raise Uncertain(str(error).partition("; its log")[0]) from None
        if reply.error is not None:
            raise refused({"errorType": reply.error, "errorMessage": reply.message})
        return dict(reply.result)

    return Target(f"local emulator at {endpoint}", Settings.from_env(variables), client, send)


def choose(stack: str | None, region: str | None, profile: str | None, is_local: bool) -> Target:
    """The target that the options name, `--local` before the variable RECONCILER_STACK."""
    if is_local and stack:
        raise CtlError("--stack-name and --local name two targets: give one of them")
    if is_local and (region or profile):
        raise CtlError("--region and --profile are about a stack: leave them out with --local")
    if is_local:
        return local()
    stack = stack or os.environ.get(VARIABLE)
    if not stack:
        raise CtlError(f"which stack? give --stack-name NAME (or set {VARIABLE}), or --local for make local")
    return deployed(stack, region=region, profile=profile)
