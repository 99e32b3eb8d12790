"""The provider's bearer token: kept in Secrets Manager, cached here, never in a message."""

from __future__ import annotations

import re
from functools import lru_cache

import boto3
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

from reconciler import aws
from reconciler.errors import SourceInvalid, TransientFailure
from reconciler.settings import Settings

KEPT_S = 900
"""How long a token is used before it is fetched again, unless the provider refuses it before."""

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1. Anything else would be refused as a header, in a message that shows it."""


def bearer_token(settings: Settings) -> str | None:
    """The token; None when the deployment has none.

    Raises TransientFailure when Secrets Manager does not answer, SourceInvalid when it refuses or holds no token.
    """
    name = settings.source_token_secret
    if not name:
        return None
    problem: Exception | None = None
    try:
        value = _secrets(settings).get(name, max_age=KEPT_S)
    except GetParameterError as error:
        problem = error.__context__ if isinstance(error.__context__, Exception) else error
    if problem is not None:
        said = f"the secret {name} was not read: {aws.name_of(problem)}"
        raise SourceInvalid(said) if aws.verdict(problem) is aws.Verdict.DEFECT else TransientFailure(said)
    token = value.strip() if isinstance(value, str) else ""
    if not TOKEN.fullmatch(token):
        raise SourceInvalid(f"the text of the secret {name} is no bearer token: letters, digits, -._~+/, then =")
    return token


def forget() -> None:
    """Let the token be fetched anew: the provider refused the one that was cached."""
    _secrets.cache_clear()


@lru_cache(maxsize=1)
def _secrets(settings: Settings) -> SecretsProvider:
    return SecretsProvider(boto3_client=boto3.client("secretsmanager", config=aws.config(settings)))
