"""The file in which `make local` says what it started, and whether that still answers."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOCAL_FILE = Path(__file__).resolve().parents[1] / ".local" / "environment.json"


def read_local(path: Path) -> dict[str, Any] | None:
    """`endpoint`, `region` and `variables` (the functions' environment); None when there is no such file."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return {name: found[name] for name in ("endpoint", "region", "variables")}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_local(path: Path, said: dict[str, Any]) -> None:
    """Write the file in one step: whoever reads it meanwhile sees none or all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(said, indent=2) + "\n", "utf-8")
    draft.replace(path)


def answers(endpoint: str) -> bool:
    """Whether something listens there."""
    address = urlsplit(endpoint)
    try:
        socket.create_connection((address.hostname or "", address.port or 80), timeout=2).close()
    except OSError:
        return False
    return True
