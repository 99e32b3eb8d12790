"""One account on the emulator, as seen by its owner or by one of its roles."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient
    from types_boto3_cloudwatch import CloudWatchClient
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_lambda import LambdaClient
    from types_boto3_logs import CloudWatchLogsClient
    from types_boto3_scheduler import EventBridgeSchedulerClient
    from types_boto3_sns import SNSClient
    from types_boto3_sqs import SQSClient

REGION = "eu-central-1"
OWNER = ("testing", "testing")
ENFORCED = {"AUTH": "true", "AWS_ACCESS_KEY_ID": OWNER[0], "AWS_SECRET_ACCESS_KEY": OWNER[1]}
"""For the emulator: check every request against the caller's policies; only the owner may do everything."""


class Account:
    """Clients, each made when it is first needed, with the owner's credentials unless a role's are given."""

    def __init__(self, url: str, key: str = OWNER[0], secret: str = OWNER[1], token: str | None = None) -> None:
        self.url = url
        self._session = boto3.Session(key, secret, token, region_name=REGION)

    @cached_property
    def cloudformation(self) -> CloudFormationClient:
        return self._session.client("cloudformation", endpoint_url=self.url)

    @cached_property
    def cloudwatch(self) -> CloudWatchClient:
        return self._session.client("cloudwatch", endpoint_url=self.url)

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        return self._session.client("dynamodb", endpoint_url=self.url)

    @cached_property
    def functions(self) -> LambdaClient:
        """Waits longer than a function may run and never asks twice: a repeated call would be a second run."""
        patient = Config(retries={"total_max_attempts": 1}, read_timeout=930)
        return self._session.client("lambda", endpoint_url=self.url, config=patient)

    @cached_property
    def iam(self) -> Any:
        return self._session.client("iam", endpoint_url=self.url)

    @cached_property
    def logs(self) -> CloudWatchLogsClient:
        return self._session.client("logs", endpoint_url=self.url)

    @cached_property
    def scheduler(self) -> EventBridgeSchedulerClient:
        return self._session.client("scheduler", endpoint_url=self.url)

    @cached_property
    def secrets(self) -> Any:
        return self._session.client("secretsmanager", endpoint_url=self.url)

    @cached_property
    def sns(self) -> SNSClient:
        return self._session.client("sns", endpoint_url=self.url)

    @cached_property
    def sqs(self) -> SQSClient:
        return self._session.client("sqs", endpoint_url=self.url)

    def as_role(self, name: str) -> Account:
        """The account as this role sees it; its trust policy is opened for as long as the credentials are made."""
        role = self.iam.get_role(RoleName=name)["Role"]
        trust = role["AssumeRolePolicyDocument"]
        sts = self._session.client("sts", endpoint_url=self.url)
        owner = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": _owner(role["Arn"])}}
        self._trust(name, trust | {"Statement": [*trust["Statement"], owner]})
        try:
            had = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="rehearsal")["Credentials"]
        finally:
            self._trust(name, trust)
        return Account(self.url, had["AccessKeyId"], had["SecretAccessKey"], had["SessionToken"])

    def _trust(self, name: str, document: dict[str, Any]) -> None:
        self.iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(document))


def _owner(arn: str) -> str:
    """The owner of the account of an ARN, as a policy names it."""
    return f"arn:aws:iam::{arn.split(':')[4]}:root"
