"""The tables and the environment exactly as template.yaml declares them.

Whatever runs outside CloudFormation (demo, local invoke, tests) takes table keys, TTL attributes and the functions'
environment variables from here, so that nothing is described twice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

TEMPLATE = Path(__file__).resolve().parents[1] / "template.yaml"


class TemplateError(ValueError):
    """The template lacks something, or uses something that cannot be resolved here; the message names it."""


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags; dates stay text, as CloudFormation reads them."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _short_tag(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    """`!Ref x` → {"Ref": x}, `!GetAtt a.b` → {"Fn::GetAtt": [a, b]}, every other `!Name v` → {"Fn::Name": v}."""
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    if suffix in ("Ref", "Condition"):
        return {suffix: value}
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_tag)


def load_template(path: str | Path = TEMPLATE) -> dict[str, Any]:
    """Return the template as plain dicts, short tags in their long form.

    Raises TemplateError when the file is missing or is not a YAML mapping.
    """
    try:
        template = yaml.load(Path(path).read_text("utf-8"), Loader=_Loader)
    except (OSError, yaml.YAMLError) as error:
        raise TemplateError(f"{path}: {error}") from error
    if not isinstance(template, dict):
        raise TemplateError(f"{path}: not a mapping")
    return template


def table_resources(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return logical id → properties of every table of the template, in its order."""
    resources = template.get("Resources", {}).items()
    tables = {name: body["Properties"] for name, body in resources if body["Type"] == "AWS::DynamoDB::Table"}
    if not tables:
        raise TemplateError("the template has no AWS::DynamoDB::Table")
    return tables


def create_tables(client: DynamoDBClient, *, suffix: str, template: dict[str, Any] | None = None) -> dict[str, str]:
    """Create every table of the template and wait until it is active; return logical id → physical name.

    The physical name is `<logical id>-<suffix>`, so that many sets live side by side in one emulator.
    """
    tables = table_resources(template or load_template())
    names = {logical_id: f"{logical_id}-{suffix}" for logical_id in tables}
    for logical_id, properties in tables.items():
        client.create_table(
            TableName=names[logical_id],
            AttributeDefinitions=properties["AttributeDefinitions"],
            KeySchema=properties["KeySchema"],
            BillingMode=properties["BillingMode"],
        )
    for logical_id, properties in tables.items():
        client.get_waiter("table_exists").wait(
            TableName=names[logical_id], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
        ttl = properties.get("TimeToLiveSpecification")
        if ttl:
            client.update_time_to_live(TableName=names[logical_id], TimeToLiveSpecification=ttl)
    return names


def environment(
    tables: dict[str, str],
    *,
    job: str,
    parameters: dict[str, Any] | None = None,
    overrides: dict[str, Any] | None = None,
    template: dict[str, Any] | None = None,
) -> dict[str, str]:
    """Return the functions' environment variables, as a deployment would set them.

    `tables` is the answer of `create_tables`, `job` the stack name; `parameters` replaces the defaults of template
    parameters, `overrides` sets variables by their own name, last. Raises TemplateError for an unknown parameter and
    for a value that needs a deployed stack.
    """
    template = template or load_template()
    declared = template.get("Parameters", {})
    unknown = sorted(set(parameters or {}) - set(declared))
    if unknown:
        raise TemplateError(f"the template has no parameter {', '.join(unknown)}")
    known = {name: body["Default"] for name, body in declared.items() if "Default" in body}
    known |= {**(parameters or {}), **tables, "AWS::StackName": job}
    try:
        variables = template["Globals"]["Function"]["Environment"]["Variables"]
    except KeyError as error:
        raise TemplateError("the template has no Globals.Function.Environment.Variables") from error
    conditions = template.get("Conditions", {})
    resolved = {name: _resolve(name, value, known, conditions) for name, value in variables.items()}
    return resolved | {name: str(value) for name, value in (overrides or {}).items()}


def _resolve(variable: str, value: Any, known: dict[str, Any], conditions: dict[str, Any]) -> str:
    """Return a scalar, a Ref, a Sub or an If as text; anything else needs CloudFormation and is refused by name."""

    def holds(condition: Any) -> bool:
        match condition:
            case {"Condition": str(name)} if name in conditions:
                return holds(conditions[name])
            case {"Fn::Equals": [left, right]}:
                return _resolve(variable, left, known, conditions) == _resolve(variable, right, known, conditions)
            case {"Fn::Not": [negated]}:
                return not holds(negated)
            case {"Fn::And": [*parts]}:
                return all(map(holds, parts))
        raise TemplateError(f"environment variable {variable}: cannot tell whether {condition!r} holds")

    match value:
        case {"Fn::If": [str(condition), yes, no]}:
            return _resolve(variable, yes if holds({"Condition": condition}) else no, known, conditions)
        case {"Ref": str(name)} if name in known:
            return str(known[name])
        case {"Fn::Sub": str(text)} if all(name in known for name in _PLACEHOLDER.findall(text)):
            return _PLACEHOLDER.sub(lambda found: str(known[found[1]]), text)
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    raise TemplateError(f"environment variable {variable}: cannot resolve {value!r} outside a deployed stack")


_PLACEHOLDER = re.compile(r"\$\{([^!}]+)\}")
