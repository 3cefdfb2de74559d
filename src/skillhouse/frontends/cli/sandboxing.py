"""`skillhouse sandbox`."""

from __future__ import annotations

import argparse

import anyio

from skillhouse.cells import self_test
from skillhouse.frontends.cli.options import add_json
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.json_values import sandbox_value
from skillhouse.frontends.presentation.text import shown
from skillhouse.sandbox import SandboxLevel, SandboxStatus

EXAMPLES = """examples:
  skillhouse sandbox status
  skillhouse sandbox status --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    status = verbs.add_parser("status", help="which level commands run at, tested now")
    add_json(status)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Test the sandbox and print its level; 3 when commands cannot run here."""
    status = anyio.run(self_test)
    if options.json:
        terminal.json(sandbox_value(status))
    else:
        _print(status, terminal)
    return 3 if status.level is SandboxLevel.NONE else 0


def _print(status: SandboxStatus, terminal: Terminal) -> None:
    terminal.line(f"level: {status.level}")
    for reason in status.reasons:
        terminal.line(f"  {reason}")
    if status.hint:
        terminal.line(f"  {status.hint}")
    if status.probes:
        terminal.line()
    for probe in status.probes:
        word = "holds" if probe.passed else terminal.style("fails", "red")
        terminal.line(
            f"  {probe.name:<36}{word}{'  ' + shown(probe.detail) if probe.detail else ''}"
        )
