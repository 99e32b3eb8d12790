"""What reconcilectl says when it cannot do what was asked: one line that names it and what to do, exit code 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)

from reconciler.errors import ReconcilerError, SettingsError, TransientFailure

USAGE = 2
"""The exit code of everything that could not be done."""

NOT_YOU = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Codes with which AWS refuses whoever asks."""


class CtlError(Exception):
    """It could not be done; the message is one line that names what is wrong and what to do."""


class Uncertain(CtlError):
    """A command may have been done or not: it is safe to repeat it with the same id, and its sender says so."""


def one_line(error: Exception, where: str, *, is_local: bool = False) -> str:
    """What to print for an error met at `where`, a target's name."""
    cause = error.__cause__
    if isinstance(error, TransientFailure) and isinstance(cause, ClientError | BotoCoreError):
        error = cause
    if is_local and isinstance(error, ConnectionError | HTTPClientError):
        return f"{where} does not answer: start it anew with make local"
    return " ".join(_words(error, where).split())


def _words(error: Exception, where: str) -> str:
    match error:
        case CtlError():
            return str(error)
        case SettingsError():
            return f"{where}: {error}; it was deployed from another version: deploy this one, or use that one's tools"
        case ReconcilerError():
            return f"{where}: {type(error).__name__}: {error}"
        case NoCredentialsError() | PartialCredentialsError() | SSOError():
            return f"no usable AWS credentials ({error}): sign in, or name a profile with --profile"
        case ProfileNotFound():
            return f"{error}: check --profile"
        case NoRegionError():
            return "no AWS region: pass --region, or set AWS_REGION"
        case ClientError() if _code(error) in NOT_YOU:
            return f"{where}: AWS refused the credentials ({_said(error)}): check --profile, --region and its rights"
        case ClientError() if _code(error) == "ResourceNotFoundException":
            return f"{where}: not there ({_said(error)}): has it been deleted meanwhile?"
        case ClientError():
            return f"{where}: AWS refused ({_said(error)})"
        case ConnectionError() | HTTPClientError():
            return f"{where} could not be reached ({error}): check --region and the network"
        case BotoCoreError():
            return f"{where}: {type(error).__name__}: {error}"
    return f"{where}: {error}"


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _said(error: ClientError) -> str:
    return f"{_code(error)}: {error.response['Error'].get('Message', '')}"


def refused(answer: Mapping[str, Any]) -> CtlError:
    """What a function's error (`errorType`, `errorMessage`) says in one line."""
    kind, message = answer.get("errorType", "Error"), answer.get("errorMessage", "")
    if kind in ("VerbRefused", "InvalidTrigger"):
        return CtlError(f"refused: {spoken(str(message))}")
    return Uncertain(f"the function raised {kind}: {message}; its log tells more")


ASKED = {
    "id": "--id",
    "requested_by": "--by",
    "interval": "INTERVAL",
    "segment": "SEGMENT",
    **{name: f"--{name.replace('_', '-')}" for name in ("reason", "from", "force", "revocation_bound", "through")},
}
"""Field of a command's event → what it is called on the command line."""


def spoken(message: str) -> str:
    """A refusal of the engine with the command line's names for the fields of the event."""
    wrong = re.fullmatch(r"invalid trigger: (?:detail\.)?([\w-]+): (.*)", message, re.DOTALL)
    if wrong and wrong[1] in ASKED:
        return f"{ASKED[wrong[1]]}: {wrong[2]}"
    return re.sub(r"`(\w+)`", lambda found: ASKED.get(found[1], found[0]), message)
