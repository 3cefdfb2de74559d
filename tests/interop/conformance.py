"""Runs the MCP conformance suite against our server and our host, and judges its checks itself.

The suite calls a scenario passed in which every check was skipped, or none was made. Here a
scenario counts only when it made a check, every check is a SUCCESS, and what is excused is named
below with its reason. `python -m tests.interop.conformance SUITE_DIRECTORY`; README.md says how to
get the suite. The exit code is 1 when anything is not as expected.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
PATIENCE_SECONDS = 120

_CRASH = "needs a tool that ends in an error of the protocol; ours end in results that are errors"
_OWN_FORM = "answers a form of the suite's own tool; ours asks for an approval by another form"
_SAMPLES = "needs a tool of our sample server"
_SAMPLING = "needs a tool that asks the client's model, which no tool of ours may (decision 0522)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario and what of it is not about us."""

    name: str
    side: str = "server"
    version: str = MODERN
    excused: Mapping[str, str] = field(default_factory=dict)
    """Checks that may be anything but a SUCCESS, with the reason; each must occur."""
    of_samples: frozenset[str] = frozenset()
    """Checks that call a tool of our sample server, and count nowhere else."""
    needs_samples: bool = False
    """Whether every check of it is such a one."""

    def elsewhere(self) -> Scenario:
        """Return it as it is judged against a server that runs already."""
        return replace(self, excused={**self.excused, **dict.fromkeys(self.of_samples, _SAMPLES)})


SCENARIOS = (
    Scenario(name="sep-2640-skills-enumeration"),
    Scenario(name="sep-2640-skills-manifest"),
    Scenario(name="sep-2640-skills-directory"),
    Scenario(
        name="server-stateless",
        excused={
            "sep-2575-server-rejects-undeclared-capability": _SAMPLING,
            "sep-2575-missing-capability-http-400": _SAMPLING,
        },
        of_samples=frozenset(
            {
                "sep-2575-http-server-no-independent-requests-on-stream",
                "sep-2575-server-no-log-without-loglevel",
                "sep-2575-server-sends-tools-list-changed-on-subscription",
                "sep-2575-server-sends-prompts-list-changed-on-subscription",
            }
        ),
    ),
    Scenario(name="tools-list"),
    Scenario(name="resources-list"),
    Scenario(name="prompts-list"),
    Scenario(name="sep-2164-resource-not-found"),
    Scenario(name="server-sse-multiple-streams"),
    Scenario(name="dns-rebinding-protection"),
    Scenario(name="caching"),
    Scenario(name="http-header-validation"),
    Scenario(name="input-required-result-unsupported-methods"),
    Scenario(name="tasks-capability-negotiation", needs_samples=True),
    Scenario(name="tasks-dispatch-and-envelope", needs_samples=True),
    Scenario(
        name="tasks-lifecycle",
        needs_samples=True,
        excused={"sep-2663-tasks-get-status-failed": _CRASH},
    ),
    Scenario(
        name="tasks-mrtr-input",
        needs_samples=True,
        excused={
            "tasks-mrtr-tasks-update-resumes": _OWN_FORM,
            "tasks-mrtr-partial-fulfillment": _OWN_FORM,
        },
    ),
    Scenario(name="tasks-request-headers", needs_samples=True),
    Scenario(name="tasks-request-state-removal", needs_samples=True),
    Scenario(name="tasks-wire-fields", needs_samples=True),
    Scenario(name="completion-complete", needs_samples=True),
    Scenario(name="tools-call-simple-text", needs_samples=True),
    Scenario(name="tools-call-error", needs_samples=True),
    Scenario(name="tools-call-with-progress", version=HANDSHAKE, needs_samples=True),
    Scenario(name="prompts-get-simple", needs_samples=True),
    Scenario(name="prompts-get-with-args", needs_samples=True),
    Scenario(name="server-initialize", version=HANDSHAKE),
    Scenario(name="server-session-lifecycle", version=HANDSHAKE),
    Scenario(name="ping", version=HANDSHAKE),
    Scenario(name="tools-list", version=HANDSHAKE),
    Scenario(name="resources-list", version=HANDSHAKE),
    Scenario(name="prompts-list", version=HANDSHAKE),
    Scenario(name="dns-rebinding-protection", version=HANDSHAKE),
    Scenario(name="sep-2640-client-no-prefetch", side="client"),
    Scenario(name="sep-2640-client-verify-digest", side="client"),
    Scenario(name="sep-2640-client-verify-size", side="client"),
    Scenario(name="sep-2640-client-verify-frontmatter", side="client"),
)
"""Every scenario that applies to a server of tools and skills, and to a host of skills. The others
call tools, prompts and templates of the suite's fixture server by name; for tasks serve_mcp.py has
some of these. Three of the ten scenarios of tasks do not apply: no tool of ours needs the
extension, no call asks before it is a task, and the suite does not look at notifications yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a scenario came to."""

    scenario: Scenario
    passed: int
    excused: int
    faults: tuple[str, ...]
    """Why it does not count; empty when it does."""


def judge(scenario: Scenario, checks: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return what the checks of a scenario come to.

    >>> judge(SCENARIOS[0], []).faults
    ('no check was made',)
    """
    faults = []
    passed = excused = 0
    for check in checks:
        status = check.get("status")
        if status == "SUCCESS":
            passed += 1
        elif check.get("id") in scenario.excused:
            excused += 1
        elif status != "INFO":
            why = check.get("errorMessage") or check.get("description")
            faults.append(f"{check.get('id')} {status}: {why}")
    if not checks:
        faults.append("no check was made")
    elif not passed:
        faults.append("no check is a SUCCESS")
    missing = scenario.excused.keys() - {check.get("id") for check in checks}
    faults.extend(f"{check} is excused, and did not occur" for check in missing)
    return Outcome(scenario=scenario, passed=passed, excused=excused, faults=tuple(sorted(faults)))


class Suite:
    """The suite as npm installed it."""

    def __init__(self, directory: Path) -> None:
        modules = directory / "node_modules"
        self._command = (
            str(modules / ".bin" / "node"),
            str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
        )

    def run(self, scenario: Scenario, *, url: str) -> Outcome:
        """Run one scenario and judge it."""
        if scenario.side == "server":
            target = ("--url", url)
        else:
            # The suite appends the address, and runs this without changing the directory.
            target = ("--command", shlex.join([sys.executable, "-m", "tests.interop.use_mcp"]))
        with tempfile.TemporaryDirectory() as output:
            arguments = ("--scenario", scenario.name, "--spec-version", scenario.version)
            done = subprocess.run(
                [*self._command, scenario.side, *target, *arguments, "--force", "-o", output],
                cwd=PROJECT,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            found = sorted(Path(output).glob("*/checks.json"))
            if len(found) != 1:
                said = (done.stderr or done.stdout).strip()[-400:]
                fault = f"expected one result, got {len(found)}: {said}"
                return Outcome(scenario=scenario, passed=0, excused=0, faults=(fault,))
            return judge(scenario, json.loads(found[0].read_text(encoding="utf-8")))


def environment() -> dict[str, str]:
    """Return the environment of what is started: this project, and nothing of npm's settings."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "src")])}


@contextmanager
def served() -> Iterator[str]:
    """Start our server and give its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interop.serve_mcp"],
        cwd=PROJECT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, help="where npm installed it")
    parser.add_argument("--url", help="of a server that runs already; only its scenarios are run")
    parser.add_argument("--json", action="store_true", help="one JSON line a scenario")
    options = parser.parse_args()
    suite = Suite(options.suite)
    failed = 0
    with served() if options.url is None else nullcontext(options.url) as url:
        for scenario in SCENARIOS:
            is_elsewhere = options.url is not None
            if is_elsewhere and (scenario.side != "server" or scenario.needs_samples):
                continue
            outcome = suite.run(scenario.elsewhere() if is_elsewhere else scenario, url=url)
            failed |= bool(outcome.faults)
            show(outcome, as_json=options.json)
    return failed


def show(outcome: Outcome, *, as_json: bool) -> None:
    """Print one outcome."""
    scenario = outcome.scenario
    if as_json:
        print(
            json.dumps(
                {
                    "scenario": scenario.name,
                    "version": scenario.version,
                    "passed": outcome.passed,
                    "excused": outcome.excused,
                    "faults": outcome.faults,
                }
            ),
            flush=True,
        )
        return
    word = "FAILED" if outcome.faults else "ok"
    about = f"{scenario.name} ({scenario.version})"
    print(f"{word:6} {about:58} {outcome.passed} passed, {outcome.excused} excused", flush=True)
    for fault in outcome.faults:
        print(f"       {fault}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
