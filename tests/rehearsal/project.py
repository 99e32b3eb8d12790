"""The project as somebody has it who cloned it: a copy to build, deploy, change and delete from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import yaml

from tests.rehearsal.account import OWNER, REGION
from tools.emulator import ROOT, emulator_python
from tools.interpreter import python_of_the_runtime
from tools.tables import load_template

WHEELS = ROOT / ".venv" / "wheels"
DECIDES = "src/reconciler/diff.py"
EMULATOR_LACKS = {"AWS::CloudWatch::CompositeAlarm", "AWS::Logs::QueryDefinition"}


def stack_name(environment: str) -> str:
    """The name of the stack that samconfig gives an environment."""
    config = tomllib.loads((ROOT / "samconfig.toml").read_text("utf-8"))
    return str(config[environment]["global"]["parameters"]["stack_name"])


class Project:
    """template.yaml, samconfig.toml and src/ in a directory of their own: nothing is written to the repository."""

    def __init__(self, home: Path, url: str) -> None:
        assert WHEELS.is_dir(), f"{WHEELS} is missing: run `make install` first"
        self.directory = home / "project"
        self.environ = self._environ(home, url)
        self.directory.mkdir()
        for name in ("samconfig.toml", "template.yaml"):
            shutil.copy(ROOT / name, self.directory)
        shutil.copytree(ROOT / "src", self.directory / "src", ignore=shutil.ignore_patterns("__pycache__"))
        # SAM looks for a newer version of itself once a week; it just did.
        (home / ".aws-sam").mkdir()
        (home / ".aws-sam" / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}), "utf-8")

    def _environ(self, home: Path, url: str) -> dict[str, str]:
        python = python_of_the_runtime() or Path(sys.executable)
        return {
            "PATH": os.pathsep.join(
                [str(python.parent), str(emulator_python().parent), os.environ.get("PATH", os.defpath)]
            ),
            "HOME": str(home),
            "TMPDIR": str(home),
            "LC_ALL": "C.UTF-8",
            "AWS_ENDPOINT_URL": url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": OWNER[0],
            "AWS_SECRET_ACCESS_KEY": OWNER[1],
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAM_CLI_TELEMETRY": "0",
            # The bundle comes from wheels that `make install` laid down: no network.
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(WHEELS),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def build(self) -> None:
        """`sam build`, without what the emulator lacks."""
        self.sam("build")
        built = self.directory / ".aws-sam" / "build" / "template.yaml"
        template = load_template(built)
        resources = template["Resources"]
        template["Resources"] = {name: body for name, body in resources.items() if body["Type"] not in EMULATOR_LACKS}
        built.write_text(yaml.safe_dump(template, sort_keys=False), "utf-8")

    def release(self, defect: str = "") -> None:
        """Build the repository's code, with a defect added to the module that decides."""
        text = (ROOT / DECIDES).read_text("utf-8")
        (self.directory / DECIDES).write_text(text + defect, "utf-8")
        self.build()

    def deploy(self, environment: str, **parameters: str) -> None:
        """`sam deploy` of an environment of samconfig, and a yes to what it asks."""
        overrides = (f"{name}={value}" for name, value in parameters.items())
        self.sam("deploy", "--config-env", environment, "--parameter-overrides", *overrides)

    def sam(self, *arguments: str) -> str:
        """Run a SAM command in the copy; what it prints."""
        return self._run([str(emulator_python().parent / "sam"), *arguments], self.directory)

    def type(self, line: str) -> str:
        """Run a line of the README, as it stands there, in the repository; what it prints."""
        return self._run(["sh", "-c", line], ROOT)

    def _run(self, command: list[str], directory: Path) -> str:
        done = subprocess.run(
            command,
            cwd=directory,
            env=self.environ,
            input="y\n" * 9,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout
