"""Tests of tools/command_protection.py: which commands are known to change no file."""

from __future__ import annotations

import pytest

from skillhouse.permission import judge_command
from skillhouse.tools.command_protection import may_change, only_looks


@pytest.mark.parametrize(
    "line",
    [
        *("npm init -y", "npm shrinkwrap", "npm pkg get name", "yarn init", "pnpm init", "npm run"),
        *(
            "go mod init x",
            "go mod tidy",
            "git init",
            "git status",
            "black .",
            "isort .",
            "touch a",
        ),
        *("ruff format", "terraform fmt", "supabase init", "mkdocs new x", "docker cp a:/b ."),
        *(
            "ls > a",
            "cat a | tee b",
            "env npm init -y",
            "ls && npm init -y",
            "unheard-of --version",
        ),
    ],
)
def test_a_command_that_may_write_by_itself_counts_as_a_change(line: str) -> None:
    plan = judge_command(line).structure
    assert plan is not None
    assert may_change(plan)
    assert not only_looks(plan)


@pytest.mark.parametrize(
    "line", ["ls -la", "cat a | grep b", "env wc -l a", "echo x", "cd a && ls"]
)
def test_what_only_looks_changes_nothing(line: str) -> None:
    plan = judge_command(line).structure
    assert (may_change(plan), only_looks(plan)) == (False, True)


@pytest.mark.parametrize("line", ["ps aux", "docker ps", "kubectl get pods", "gh pr list", "id"])
def test_what_only_reports_changes_nothing_and_still_gets_a_usual_workspace(line: str) -> None:
    plan = judge_command(line).structure
    assert (may_change(plan), only_looks(plan)) == (False, False)


def test_what_was_not_taken_apart_may_change_anything() -> None:
    assert may_change(None)
