"""Which IAM actions exist: the SDK's operations, and the few names by which the two differ.

A misspelt action deploys without a word, grants nothing, and shows as AccessDenied at night. Operations are those of
botocore's service models; the differences are from AWS's Service Authorization Reference, for the services used.
"""

from __future__ import annotations

from functools import cache

from botocore.loaders import Loader

ACTIONS_ONLY = {
    "dynamodb": {"ConditionCheckItem", "PartiQLDelete", "PartiQLInsert", "PartiQLSelect", "PartiQLUpdate"},
    "kms": {"ReEncryptFrom", "ReEncryptTo"},
    "lambda": {"InvokeFunction", "InvokeFunctionUrl"},
}
"""Authorize something that is no operation of this name."""

OPERATIONS_ONLY = {
    "dynamodb": {
        "BatchExecuteStatement",
        "ExecuteStatement",
        "ExecuteTransaction",
        "TransactGetItems",
        "TransactWriteItems",
    },
    "kms": {"ReEncrypt"},
    "lambda": {"Invoke", "InvokeWithResponseStream"},
    "sns": {"PublishBatch"},
    "sqs": {"ChangeMessageVisibilityBatch", "DeleteMessageBatch", "SendMessageBatch"},
}
"""Authorized by an action of another name: a transaction by what its items do."""

SERVICES = ("dynamodb", "ec2", "kms", "lambda", "logs", "secretsmanager", "sns", "sqs", "sts", "xray")
"""Services whose prefix is the name of their model; another one is added here when the template grants it."""

CONDITION_KEYS = {"aws:SourceAccount", "kms:ViaService", "lambda:SourceFunctionArn"}
"""Condition keys that the template uses. One that is misspelt is absent from every request."""


def exists(action: str) -> bool:
    """Whether IAM knows an action, written as in `dynamodb:GetItem`; wildcards are no action."""
    service, _, name = action.partition(":")
    return service in SERVICES and name in _actions(service)


@cache
def _actions(service: str) -> frozenset[str]:
    operations = Loader().load_service_model(service, "service-2")["operations"]
    return frozenset(operations) - OPERATIONS_ONLY.get(service, set()) | ACTIONS_ONLY.get(service, set())
