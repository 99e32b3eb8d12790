"""What a deployed role may do, taken apart into single permissions; each can be taken away for a while."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.rehearsal.stack import Json, Stack


class Permission(NamedTuple):
    """One action on one resource of the stack, by its logical id."""

    action: str
    resource: str


def permissions(stack: Stack, role: str) -> list[Permission]:
    """Every permission of a role. Raises ValueError for one on anything that is not a resource of the stack."""
    return [permission for _, permission in _taken_apart(stack, _policy(stack, role)[1])]


@contextmanager
def without(stack: Stack, role: str, permission: Permission) -> Iterator[None]:
    """The role lacks one permission for as long as the block lasts."""
    name, policy = _policy(stack, role)
    kept = [statement for statement, found in _taken_apart(stack, policy) if found != permission]
    _put(stack, role, name, policy | {"Statement": kept})
    try:
        yield
    finally:
        _put(stack, role, name, policy)


def _taken_apart(stack: Stack, policy: Json) -> list[tuple[Json, Permission]]:
    """Each permission, and the policy statement that gives it and nothing else."""
    return [
        ({"Effect": "Allow", "Action": action, "Resource": arn}, Permission(action, _logical(stack, arn)))
        for statement in policy["Statement"]
        for action in _listed(statement["Action"])
        for arn in _listed(statement["Resource"])
    ]


def _policy(stack: Stack, role: str) -> tuple[str, Json]:
    """Name and document of the role's one policy, which only allows; it may have no other, of whatever kind."""
    iam, name = stack.account.iam, stack.resources[role]
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
    (policy,) = iam.list_role_policies(RoleName=name)["PolicyNames"]
    document: Json = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
    plain = {"Sid", "Effect", "Action", "Resource"}
    assert all(set(one) == plain and one["Effect"] == "Allow" for one in document["Statement"])
    return policy, document


def _put(stack: Stack, role: str, name: str, document: Json) -> None:
    policy = json.dumps(document)
    stack.account.iam.put_role_policy(RoleName=stack.resources[role], PolicyName=name, PolicyDocument=policy)


def _logical(stack: Stack, arn: str) -> str:
    """The logical id of the resource that an ARN names; `*` for what is permitted on everything."""
    if arn == "*":
        return arn
    names = set(arn.replace("/", ":").split(":")[5:])
    found = [logical for logical, physical in stack.resources.items() if physical.rsplit("/", 1)[-1] in names]
    if len(found) != 1:
        raise ValueError(f"{arn} is not one resource of the stack {stack.name}: {found}")
    return found[0]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
