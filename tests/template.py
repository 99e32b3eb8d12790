"""The template as tests look at it: its parts, what the SAM transform makes of it, and what values resolve to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from samtranslator.translator.transform import transform  # type: ignore[import-untyped]  # it ships no types

from tools.tables import load_template

Template = dict[str, Any]
Resources = dict[str, dict[str, Any]]

TEMPLATE: Template = load_template()
PARAMETERS: dict[str, dict[str, Any]] = TEMPLATE["Parameters"]
RESOURCES: Resources = TEMPLATE["Resources"]
VARIABLES: dict[str, Any] = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]
STACK_NAME: dict[str, str] = {"Ref": "AWS::StackName"}


def of_type(kind: str, resources: Resources = RESOURCES) -> Resources:
    """Logical id → properties of the resources of a type."""
    return {name: body.get("Properties", {}) for name, body in resources.items() if body["Type"] == kind}


FUNCTIONS = of_type("AWS::Serverless::Function")
SCHEDULES: Resources = {
    name: event["Properties"] for function in FUNCTIONS.values() for name, event in function["Events"].items()
}


def expand(template: Template) -> Resources:
    """The resources CloudFormation gets: a template after the SAM transform, which leaves the template alone."""

    class NoManagedPolicies:
        def load(self) -> dict[str, str]:
            return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        local_code = json.loads(json.dumps(template))
        local_code["Globals"]["Function"]["CodeUri"] = "s3://bucket/key"
        resources: Resources = transform(local_code, {}, NoManagedPolicies())["Resources"]
    return resources


@cache
def expanded() -> Resources:
    """Our own template's resources, expanded."""
    return expand(TEMPLATE)


def expanded_of_type(kind: str) -> Resources:
    return of_type(kind, expanded())


def resolve(value: Any, template: Template = TEMPLATE, /, **parameters: str) -> Any:
    """What CloudFormation makes of a value, as far as parameters and conditions decide it."""
    known = {name: str(body["Default"]) for name, body in template["Parameters"].items()} | parameters

    def inner(value: Any) -> Any:
        match value:
            case {"Ref": name} if name in known:
                return known[name]
            case {"Fn::Sub": str(text)}:
                return re.sub(r"\$\{([\w:]+)\}", lambda found: known.get(found[1], found[0]), text)
            case {"Fn::Sub": [str(text), dict(named)]}:
                for name, part in named.items():
                    text = text.replace(f"${{{name}}}", str(inner(part)))
                return inner({"Fn::Sub": text})
            case {"Fn::Select": [int(index), parts]}:
                return inner(parts)[index]
            case {"Condition": str(name)} if len(value) == 1:
                return inner(template["Conditions"][name])
            case {"Fn::If": [condition, yes, no]}:
                return inner(yes if inner(template["Conditions"][condition]) else no)
            case {"Fn::Equals": [left, right]}:
                return inner(left) == inner(right)
            case {"Fn::Not": [negated]}:
                return not inner(negated)
            case {"Fn::Split": [separator, text]}:
                return inner(text).split(separator)
            case {"Fn::And": [*parts]}:
                return all(map(inner, parts))
            case {"Fn::Or": [*parts]}:
                return any(map(inner, parts))
            case dict():
                return {name: found for name, part in value.items() if (found := inner(part)) != NO_VALUE}
            case list():
                return [found for part in value if (found := inner(part)) != NO_VALUE]
        return value

    return inner(value)


NO_VALUE = {"Ref": "AWS::NoValue"}


def references(value: Any) -> Iterator[str]:
    """Every name that a value refers to by Ref, GetAtt or Sub."""
    match value:
        case {"Ref": str(name)}:
            yield name
        case {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case {"Fn::Sub": str(text)}:
            yield from re.findall(r"\$\{(\w+)", text)
        case dict():
            for inner in value.values():
                yield from references(inner)
        case list():
            for inner in value:
                yield from references(inner)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
