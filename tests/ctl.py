"""reconcilectl against a world on the emulator, as if `make local` had made it; its nights are due by the real clock.

The last night of such a world was due an hour ago, whenever the test runs, since the workers that carry out commands
live in real time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler import clock
from reconciler.intervals import shifted
from tests.conftest import live_client
from tests.world import World
from tools import local_file, reconcilectl
from tools.ctl import target

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(slots=True)
class Operator:
    """A person at a terminal of 80 columns. `night` is the interval due last."""

    world: World
    night: str
    file: Path
    url: str
    capsys: pytest.CaptureFixture[str]

    def deploys(self, **changes: Any) -> None:
        """Change settings, for the world and for whoever reads the file of `make local`."""
        self.world.set(**changes)
        self.writes_file()

    def writes_file(self) -> None:
        """Write what `make local` writes."""
        said = {"endpoint": self.url, "region": "eu-west-1", "variables": self.world.environ}
        local_file.write_local(self.file, said)

    def before(self, days: int) -> str:
        """The night so many days before the last one."""
        return shifted(self.night, -days)

    def types(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command."""
        self.capsys.readouterr()
        code = reconcilectl.main(["--local", *arguments])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def sees(self, *arguments: str) -> str:
        """What a command shows that must succeed; no line of it is longer than 80 columns."""
        code, out, err = self.types(*arguments)
        assert (code, err) == (0, "")
        too_long = [line for line in out.splitlines() if len(line) > 80]
        assert too_long == []
        assert "…" not in out, "something was cut off"
        return out

    def knows(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The JSON object that a command prints, and nothing else."""
        ended, out, err = self.types(*arguments, "--json")
        assert (ended, err) == (code, "")
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    def fails(self, *arguments: str) -> str:
        """The one line that a command says on stderr when it cannot be done; with --json stdout has it too."""
        code, out, err = self.types(*arguments)
        assert (code, err.count("\n")) == (2, 1), (code, out, err)
        assert err.startswith("reconcilectl: ")
        line = err.removeprefix("reconcilectl: ").strip()
        assert out == ("" if "--json" not in arguments else json.dumps({"error": line}) + "\n")
        return line


def operator(
    url: str,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    **overrides: Any,
) -> Operator:
    """An empty world and whoever looks at it; its table was made two hours ago."""
    now_ms = clock.SystemClock().now_ms()
    due = clock.text(now_ms - HOUR_MS)
    schedule: dict[str, Any] = {"SCHEDULE_HOUR": int(due[11:13]), "SCHEDULE_MINUTE": int(due[14:16])}
    world = World(live_client(url), **schedule | overrides)
    world.clock.wall_ms = now_ms
    world.created_at = clock.text(now_ms - 2 * HOUR_MS)
    person = Operator(world, due[:10], directory / "environment.json", url, capsys)
    person.writes_file()
    monkeypatch.setattr(local_file, "LOCAL_FILE", person.file)
    monkeypatch.setattr(target, "CLOCK", world.clock)
    monkeypatch.setenv("COLUMNS", "80")
    return person
