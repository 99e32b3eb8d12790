"""From this repository to a project of one's own: `sam init`, one name to change, a workflow that deploys it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.emulator import emulator_python

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "deploy.yml"
LEFT_OUT = {
    *(".git", ".venv", ".aws-sam", ".local", ".env", ".coverage", "samconfig.local.toml"),
    *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
}
"""What .gitignore keeps out of a repository."""

DEPLOYED = ("template.yaml", "src", "tools", "events", "Makefile", ".ci", ".github", "reconcilectl")
"""What runs: none of it may know the name of a stack."""


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the machine's own settings; fails with what it said."""
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(cwd),
        "LC_ALL": "C.UTF-8",
        "SAM_CLI_TELEMETRY": "0",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def sam(*arguments: str, cwd: Path) -> None:
    """A SAM command that finds it looked for a newer version of itself a moment ago."""
    (cwd / ".aws-sam").mkdir(exist_ok=True)
    (cwd / ".aws-sam" / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}), "utf-8")
    run(str(emulator_python().parent / "sam"), *arguments, cwd=cwd)


def files(directory: Path) -> dict[str, tuple[bytes, bool]]:
    """Path → content and whether it can be executed, of everything that belongs to the project."""
    found: dict[str, tuple[bytes, bool]] = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for path in (Path(folder, name) for name in set(names) - LEFT_OUT):
            if not path.is_symlink():
                found[str(path.relative_to(directory))] = (path.read_bytes(), os.access(path, os.X_OK))
    return found


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`sam init --location` of a git repository with this project in it."""
    directory = tmp_path_factory.mktemp("init")
    shutil.copytree(ROOT, directory / "repository", ignore=shutil.ignore_patterns(*LEFT_OUT))
    person = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (("init", "-q"), ("add", "-A"), (*person, "commit", "-q", "-m", "all")):
        run("git", *command, cwd=directory / "repository")
    location = f"git+file://{directory / 'repository'}"
    sam("init", "--location", location, "--name", "mine", "--no-input", cwd=directory)
    return directory / "mine"


def test_sam_init_makes_a_whole_copy(initialised: Path) -> None:
    assert not (ROOT / "cookiecutter.json").exists(), "it would make placeholders of the braces in our files"
    made, ours = files(initialised), files(ROOT)
    assert sorted(set(ours) ^ set(made)) == []
    assert [name for name in ours if ours[name] != made[name]] == []
    assert made["reconcilectl"][1], "it can be executed"


def test_only_the_stack_name_is_to_be_changed(initialised: Path) -> None:
    config = initialised / "samconfig.toml"
    text = config.read_text("utf-8")
    stacks = re.findall(r'^stack_name = "(.+)"$', text, re.MULTILINE)
    assert len(stacks) == 2
    for name in DEPLOYED:
        path = initialised / name
        for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
            said = file.read_text("utf-8")
            assert [stack for stack in stacks if stack in said] == [], file
    try:
        config.write_text(
            re.sub(r'^stack_name = ".*(-dev)?"$', r'stack_name = "mine\1"', text, flags=re.MULTILINE), "utf-8"
        )
        config.write_text(text.replace(stacks[0], "mine-dev").replace(stacks[1], "mine"), "utf-8")
        sam("validate", "--lint", cwd=initialised)
        quick = ["-q", "-p", "no:cacheprovider", "tests/test_template.py", "tests/test_template_rules.py"]
        run(sys.executable, "-m", "pytest", *quick, cwd=initialised)
    finally:
        config.write_text(text, "utf-8")


# ------------------------------------------------------------------------------------------------------- the workflow


@cache
def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    return loaded


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow()["jobs"][job]["steps"]
    return found


def position(job: str, part: str) -> int:
    """Where the only step of a job that runs, or uses, this stands."""
    (found,) = (n for n, step in enumerate(steps(job)) if part in step.get("run", "") + step.get("uses", ""))
    return found


def test_every_action_is_pinned_by_a_full_commit_and_says_its_version() -> None:
    lines = [line.strip() for line in WORKFLOW.read_text("utf-8").splitlines() if "uses:" in line]
    assert len(lines) == 5
    for line in lines:
        assert re.fullmatch(r"- uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    assert len(set(lines)) == 3, "one version of each action"


def test_no_secret_is_needed_and_no_more_is_permitted_than_each_job_uses() -> None:
    text = WORKFLOW.read_text("utf-8")
    assert not re.search(r"secrets\.|aws-access-key-id|AWS_SECRET|AKIA|arn:", text)
    assert workflow()["permissions"] == {"contents": "read"}
    assert "permissions" not in workflow()["jobs"]["test"]
    assert workflow()["jobs"]["deploy"]["permissions"] == {"contents": "read", "id-token": "write"}
    for job in workflow()["jobs"]:
        assert workflow()["jobs"][job]["timeout-minutes"]
        for step in steps(job):
            assert "${{" not in step.get("run", ""), "what is interpolated into a script is run by it"
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_what_is_deployed_was_tested_and_what_gives_no_answer_is_taken_back() -> None:
    deploy = workflow()["jobs"]["deploy"]
    assert deploy["needs"] == "test"
    assert deploy["if"] == "github.event_name == 'push' && vars.AWS_DEPLOY_ROLE_ARN != ''"
    assert workflow()[True]["push"] == {"branches": ["main"]}, "YAML reads `on` as true"
    one_by_one = {"group": "deploy-${{ github.ref }}", "cancel-in-progress": False}
    assert workflow()["concurrency"] == one_by_one, "tests included, or an older commit overtakes a newer one"
    assert position("test", ".ci/run") > position("test", "setup-python")
    order = [
        position("deploy", "make install build"),
        position("deploy", "configure-aws-credentials"),
        position("deploy", "get-template"),
        next(n for n, step in enumerate(steps("deploy")) if step.get("id") == "deployment"),
        next(n for n, step in enumerate(steps("deploy")) if step.get("name") == "Smoke"),
        next(n for n, step in enumerate(steps("deploy")) if step.get("name") == "Roll back"),
    ]
    assert order == sorted(order)
    back = steps("deploy")[-1]
    assert back["if"] == "failure() && steps.deployment.outcome == 'success'"
    assert "--template-file running.yaml" in back["run"]
    assert "running.yaml" in steps("deploy")[order[2]]["run"]


def test_the_workflow_calls_what_exists(tmp_path: Path) -> None:
    text = WORKFLOW.read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {t for found in re.findall(r"run: make (.+)", text) for t in found.split()} <= targets
    for script in re.findall(r"\.ci/\w+", text):
        assert os.access(ROOT / script, os.X_OK), script
    assert "prod" in tomllib.loads((ROOT / "samconfig.toml").read_text("utf-8"))
    told = run(str(emulator_python().parent / "sam"), "deploy", "--help", cwd=tmp_path).stdout
    for command in re.findall(r"sam deploy (.+)", text):
        assert [option for option in re.findall(r"--[a-z-]+", command) if option not in told] == []


# --------------------------------------------------------------------------------------------------------- the smoke

AWS = """#!{python}
import json, os, pathlib, sys
given = sys.argv[1:]
with open({log!r}, "a") as log:
    print(json.dumps([given, os.environ.get("AWS_MAX_ATTEMPTS")]), file=log)
if given[0] == "cloudformation":
    print("the-watchdog" if "Watchdog" in given[given.index("--query") + 1] else "the-job")
else:
    event = json.loads(pathlib.Path(given[given.index("--payload") + 1].removeprefix("fileb://")).read_text())
    error, answer = {answers!r}[event["detail"]["trigger"]]
    pathlib.Path(given[-1]).write_text(answer)
    print(error)
"""

GOOD = {"watchdog": ("None", '{"SecondsPastDeadline": 0.0}'), "tick": ("None", '{"outcome": "idle"}')}


@pytest.mark.parametrize(
    ("answers", "passes"),
    [
        (GOOD, True),
        (GOOD | {"watchdog": ("Unhandled", '{"errorMessage": "SecondsPastDeadline: x"}')}, False),
        (GOOD | {"tick": ("Unhandled", '{"errorMessage": "AccessDenied"}')}, False),
        (GOOD | {"tick": ("None", "null")}, False),
    ],
)
def test_the_smoke_asks_both_functions_once_and_fails_when_one_does_not_answer(
    tmp_path: Path, answers: dict[str, tuple[str, str]], passes: bool
) -> None:
    log = tmp_path / "calls"
    (tmp_path / "aws").write_text(AWS.format(python=sys.executable, log=str(log), answers=answers), "utf-8")
    (tmp_path / "aws").chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(ROOT / ".ci" / "smoke"), "a-stack"], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode == 0) is passes, done.stderr
    calls = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert {attempts for _, attempts in calls} == {"1"}
    if passes:
        invoked = [given[given.index("--function-name") + 1] for given, _ in calls if given[0] == "lambda"]
        assert invoked == ["the-watchdog", "the-job"]
        assert all("a-stack" in given for given, _ in calls if given[0] == "cloudformation")
    else:
        assert "failed" in done.stderr
