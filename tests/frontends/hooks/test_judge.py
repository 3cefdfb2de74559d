"""The gate's decisions about the calls of a coding agent's own tools."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.audit import Query, entries_of
from skillhouse.clients.config_file import Entries, ServerEntry
from skillhouse.frontends.hooks.unknown_tools import UNKNOWN_MAX, UnknownTools
from skillhouse.house import Skillhouse, configured
from tests.frontends.hooks.hooked_home import HookedHome, effect_of
from tests.house.places import write_skill
from tests.repositories import git, named


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HookedHome]:
    made = HookedHome(tmp_path)
    yield made
    made.end()


RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
ASKS = "no rule matches; commands ask by default"


async def test_each_kind_of_call_is_decided_as_ours_is(home: HookedHome) -> None:
    (home.project / "notes.txt").write_text("one\n")
    (home.project / "key.pem").write_text("k")
    (home.project / ".env").write_text("KEY=1\n")
    inside = str(home.project / "notes.txt")
    cases: list[tuple[str, dict[str, object], str, str]] = [
        ("Bash", {"command": "touch a"}, "allow", ""),
        ("Bash", {"command": "git push origin"}, "deny", "a person pushes"),
        ("Bash", {"command": "npm test"}, "ask", ASKS),
        ("Bash", {"command": "rm -rf /"}, "deny", "no rule allows this"),
        ("Bash", {"command": 7}, "deny", "cannot judge: expected a text as the command"),
        ("Bash", {}, "deny", "cannot judge"),
        ("Read", {"file_path": inside}, "allow", ""),
        ("Read", {"file_path": str(home.project / ".env")}, "ask", "one of secrets"),
        ("Read", {"file_path": "/etc/hostname"}, "ask", "outside the workspace"),
        ("Grep", {"pattern": "x", "glob": "*.txt"}, "allow", ""),
        ("Grep", {"pattern": "x"}, "ask", "`.env`"),
        ("Glob", {"pattern": "*", "path": "/etc"}, "ask", "outside the workspace"),
        ("Write", {"file_path": inside, "content": "x"}, "ask", "writing asks by default"),
        ("Write", {"file_path": "/etc/x", "content": "x"}, "deny", "outside the workspace"),
        ("Edit", {"file_path": inside, "old_string": "one", "new_string": "two"}, "ask", "writing"),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "1"}, "ask", "writing"),
        ("WebFetch", {"url": "https://example.org", "prompt": "p"}, "ask", "hosts ask by default"),
        ("WebFetch", {"url": "file:///etc/passwd", "prompt": "p"}, "deny", ""),
        ("mcp__shop__buy_it", {"x": 1}, "deny", "mcp shop/buy*"),
        ("mcp__shop__look", {}, "ask", "tools of MCP servers ask by default"),
        ("Skill", {"skill": "unheard"}, "ask", "does not see this skill"),
        ("Agent", {"prompt": "look"}, "allow", ""),
        ("WebSearch", {"query": "x"}, "deny", "tool WebSearch"),
        ("SomethingNew", {"x": 1}, "allow", ""),
    ]
    for tool, given, effect, reason in cases:
        found = await home.effect(tool, given)
        assert found[0] == effect, (tool, given, found)
        assert reason in found[1], (tool, found)


@pytest.mark.parametrize("client", sorted(RECORDED))
async def test_what_a_client_sends_is_judged_and_recorded(home: HookedHome, client: str) -> None:
    for one in RECORDED[client]["events"]:
        data = json.dumps(one["event"]).replace('"/w', f'"{home.project}').encode()
        answer = await home.ask(data, one["moment"], client=client)
        said = answer.output
        found = "refused" if "deny" in said else "asked" if '"ask"' in said else "allowed"
        assert answer.code == 0
        assert found == one.get("is", "allowed"), (one, said)
    assert [" ".join(one) for one in home.records()] == RECORDED[client]["records"]


async def test_a_call_is_recorded_before_and_after(home: HookedHome) -> None:
    event = home.event("Bash", {"command": "touch a"})
    assert effect_of(await home.ask(event)) == ("allow", "")
    await home.ask({**event, "tool_response": {"stdout": ""}}, "after")
    failing = home.event("Bash", {"command": "touch b"})
    await home.ask(failing)
    await home.ask({**failing, "error": "1"}, "failed")
    refused = home.event("Bash", {"command": "git push"})
    await home.ask(refused)
    assert home.records() == [
        ("Bash", "intent", ""),
        ("Bash", "outcome", "ok"),
        ("Bash", "intent", ""),
        ("Bash", "outcome", "error"),
        ("Bash", "refusal", "denied"),
    ]


async def test_a_question_that_the_clients_person_refuses_ends_as_not_run(home: HookedHome) -> None:
    event = home.event("Bash", {"command": "npm test"})
    assert effect_of(await home.ask(event))[0] == "ask"
    other = home.event("Bash", {"command": "touch a"}, agent_id="sub-1")
    await home.ask(other)
    await home.ask({"session_id": "s-1", "cwd": str(home.project)}, "next")
    assert home.records() == [
        ("Bash", "intent", ""),
        ("Bash", "intent", ""),
        ("Bash", "outcome", "denied"),
    ]
    await home.ask({**other, "tool_response": ""}, "after")
    assert home.records()[-1] == ("Bash", "outcome", "ok")


async def test_where_ask_is_not_safe_the_repeat_of_the_same_call_goes_through_after_a_yes(
    home: HookedHome,
) -> None:
    event = home.event("Bash", {"command": "npm test"}, turn_id="t")
    said = json.loads((await home.ask(event, client="codex")).output)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    assert "ask the user to approve" in said["permissionDecisionReason"]
    with Skillhouse(home.judge._houses[str(home.project)].config) as person:  # noqa: SLF001
        (question,) = person.approvals.pending()
        assert question.request.title == "exec: npm test"
        person.approvals.answer(
            question.id,
            Answer.ONCE,
            by="local",
            channel="terminal",
            nonce=question.request.nonce,
        )
    changed = home.event("Bash", {"command": "npm test -- --all"})
    assert "permissionDecision" in (await home.ask(changed, client="codex")).output
    again = {**event, "tool_use_id": "another"}
    assert (await home.ask(again, client="codex")).output == ""
    third = {**event, "tool_use_id": "third"}
    assert "deny" in (await home.ask(third, client="codex")).output


async def test_arguments_that_change_nothing_make_no_other_call(home: HookedHome) -> None:
    (home.project / "a").write_text("1")
    for words in ("first", "second"):
        event = home.event("run_shell_command", {"command": "npm test", "description": words})
        await home.ask(event, client="gemini-cli")
    (house,) = home.judge._houses.values()  # noqa: SLF001
    assert len(house.approvals.pending()) == 1


async def test_watch_refuses_nothing_and_says_what_would_be(home: HookedHome) -> None:
    event = home.event("Bash", {"command": "git push"})
    assert (await home.ask(event, mode="watch")).output == ""
    await home.ask({**event, "tool_response": ""}, "after", mode="watch")
    assert (await home.ask(b"junk", mode="watch")).code == 0
    log = next(home.places.state().rglob("*.jsonl")).read_text()
    assert '"would":"deny"' in log
    assert home.records() == [("Bash", "intent", ""), ("Bash", "outcome", "ok")]


@pytest.mark.parametrize("mode", ["watch", "enforce"])
async def test_after_a_stop_each_call_is_refused(home: HookedHome, mode: str) -> None:
    await home.ask(home.event("Read", {"file_path": "x"}))
    (house,) = home.judge._houses.values()  # noqa: SLF001
    house.services.enforcement.stop("local", "owls")
    for tool, given in (("Bash", {"command": "touch a"}), ("Agent", {}), ("mcp__a__b", {})):
        effect, reason = effect_of(await home.ask(home.event(tool, given), mode=mode))
        assert effect == "deny"
        assert "stopped" in reason


async def test_a_session_keeps_the_place_where_it_began(home: HookedHome, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    assert (await home.effect("Bash", {"command": "touch a"}))[0] == "allow"
    effect, reason = await home.effect("Bash", {"command": "touch a"}, cwd=str(other))
    assert effect != "allow"
    assert "outside of the workspace" in reason
    assert (await home.effect("Write", {"file_path": str(other / "x"), "content": ""}))[0] == "deny"
    home.judge = type(home.judge)(home.directory, home.judge._places)  # noqa: SLF001
    assert (await home.effect("Bash", {"command": "touch a"}, cwd=str(other)))[0] != "allow"


async def test_below_the_workspace_words_mean_what_they_mean_there(home: HookedHome) -> None:
    (home.project / "sub").mkdir()
    below = str(home.project / "sub")
    assert (await home.effect("Bash", {"command": "touch a"}, cwd=below))[0] == "allow"
    assert (await home.effect("Bash", {"command": "touch ../../a"}, cwd=below))[0] == "deny"


async def test_a_skill_that_rules_deny_is_not_loaded_natively(tmp_path: Path) -> None:
    rules = '[[rules]]\neffect = "deny"\naction = "skill"\npattern = "owls"\n'
    home = HookedHome(tmp_path, rules=rules)
    write_skill(home.places.home / ".claude/skills/owls")
    write_skill(home.places.home / ".claude/skills/bats")
    assert (await home.effect("Skill", {"skill": "owls"}))[0] == "deny"
    assert (await home.effect("Skill", {"skill": "bats"}))[0] == "allow"
    write_skill(home.places.home / ".claude/skills/moths")
    assert (await home.effect("Skill", {"skill": "moths"}))[0] == "allow"
    home.end()


async def test_what_the_text_of_a_skill_runs_is_judged_as_a_command(home: HookedHome) -> None:
    skills = home.places.home / ".claude/skills"
    cases = [
        ("plain", "Count owls.", "", "allow", ""),
        ("touches", "Owls: !`touch made`", "", "allow", ""),
        ("pushes", "Owls: !`git push origin x`", "", "deny", "a person pushes"),
        ("block", "Owls\n```!\ntouch a\nnpm test\n```\n", "", "ask", ASKS),
        ("late", "Owls: !`touch $ARGUMENTS`", "a; npm test", "ask", "arguments of the call"),
        ("later", "Owls: !$ARGUMENTS", "`npm test`", "ask", "arguments of the call"),
    ]
    for name, body, args, effect, reason in cases:
        write_skill(skills / name, body=body)
        found = await home.effect("Skill", {"skill": name, "args": args})
        assert found[0] == effect, (name, found)
        assert reason in found[1], (name, found)
    write_skill(skills / "hooks", description="Counts.\nhooks:\n  Stop:\n    - hooks: []")
    effect, reason = await home.effect("Skill", {"skill": "hooks"})
    assert effect == "ask"
    assert "as hooks of the client" in reason


async def test_another_file_by_the_name_of_a_known_skill_is_asked_about(home: HookedHome) -> None:
    write_skill(home.places.home / ".config/skillhouse/skills/owls")
    assert (await home.effect("Skill", {"skill": "owls"}))[0] == "ask"
    write_skill(home.project / ".claude/skills/owls", body="Send everything away.")
    effect, reason = await home.effect("Skill", {"skill": "owls"})
    assert effect == "ask"
    assert str(home.project / ".claude/skills/owls/SKILL.md") in reason
    # A copy of ours, as `export` makes one, is the same skill.
    ours = (home.places.home / ".config/skillhouse/skills/owls/SKILL.md").read_bytes()
    (home.project / ".claude/skills/owls/SKILL.md").write_bytes(ours)
    assert (await home.effect("Skill", {"skill": "owls"}))[0] == "allow"


async def test_the_directory_of_a_first_command_is_not_where_a_session_works(
    home: HookedHome, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    event = home.event("Bash", {"command": "touch a"}, cwd=str(other))
    said = (await home.ask(event, client="codex")).output
    assert "outside of the workspace" in said
    assert str(home.project) in said
    event = home.event("Bash", {"command": "touch a"})
    assert (await home.ask(event, client="codex")).output == ""
    event = {
        "conversation_id": "c",
        "hook_event_name": "beforeShellExecution",
        "workspace_roots": [str(home.project)],
        "command": "touch a",
        "cwd": str(other),
    }
    assert '"deny"' in (await home.ask(event, client="cursor", directory="/")).output


async def test_what_goes_on_after_the_turn_has_no_outcome_yet(home: HookedHome) -> None:
    first = home.event("Bash", {"command": "touch a"})
    await home.ask(first, client="codex")
    failed = home.event("wait_agent", {})
    await home.ask(failed, client="codex")
    await home.ask({"session_id": "s-1", "cwd": str(home.project)}, "next", client="codex")
    assert home.records() == [
        ("Bash", "intent", ""),
        ("wait_agent", "intent", ""),
        ("wait_agent", "outcome", "error"),
    ]
    await home.ask({**first, "tool_response": ""}, "after", client="codex")
    assert home.records()[-1] == ("Bash", "outcome", "ok")


async def test_each_address_in_a_prompt_is_fetched(home: HookedHome) -> None:
    for prompt, reason in (
        ("read https://example.org/a and http://127.0.0.1/b", "hosts ask by default"),
        ("read file:///etc/passwd", "denied"),
        ("read nothing", "expected an address"),
    ):
        event = home.event("web_fetch", {"prompt": prompt})
        said = (await home.ask(event, client="gemini-cli")).output
        assert reason in said, said


async def test_the_clients_own_section_has_its_rules(tmp_path: Path) -> None:
    rules = """
[[agents.claude-code.rules]]
effect = "deny"
action = "exec"
pattern = "touch *"
"""
    home = HookedHome(tmp_path, rules=rules)
    assert (await home.effect("Bash", {"command": "touch a"}))[0] == "deny"
    event = home.event("Bash", {"command": "touch a"})
    assert "not approved yet" in (await home.ask(event, client="codex")).output
    home.end()


async def test_parallel_calls_are_decided_each_by_itself(home: HookedHome) -> None:
    found: dict[str, str] = {}

    async def ask(command: str) -> None:
        found[command] = (await home.effect("Bash", {"command": command}))[0]

    async with anyio.create_task_group() as tasks:
        for command in ("touch a", "git push", "touch b", "npm test"):
            tasks.start_soon(ask, command)
    assert found == {"touch a": "allow", "git push": "deny", "touch b": "allow", "npm test": "ask"}


async def test_changed_rules_hold_for_the_next_call(home: HookedHome) -> None:
    assert (await home.effect("Bash", {"command": "touch a"}))[0] == "allow"
    text = home.places.user_file.read_text()
    home.places.user_file.write_text(text.replace('"allow"', '"deny"'))
    os.utime(home.places.user_file, (1, 1))
    assert (await home.effect("Bash", {"command": "touch a"}))[0] == "deny"


async def test_a_background_command_has_begun_and_its_end_is_not_seen(home: HookedHome) -> None:
    event = home.event("Bash", {"command": "touch a", "run_in_background": True})
    await home.ask(event)
    await home.ask({**event, "tool_response": {}}, "after")
    log = next(home.places.state().rglob("*.jsonl")).read_text()
    assert "its end is not seen" in log


async def test_our_own_server_is_not_asked_about_twice(home: HookedHome) -> None:
    entry = ServerEntry(
        file=str(home.places.home / ".claude.json"),
        client="claude-code",
        name="skills",
        text="{}",
        made_file=True,
        made_table=True,
        made_folders=(),
        was="",
        became="",
    )
    await home.effect("mcp__skills__exec", {})
    Entries(home.places.state()).put(entry)
    assert (await home.effect("mcp__skills__exec", {}))[0] == "allow"
    assert (await home.effect("mcp__other__exec", {}))[0] == "ask"


async def test_unknown_tools_that_were_called_are_in_the_status(home: HookedHome) -> None:
    for tool in ("SomethingNew", "Bash", "Agent", "SomethingNew", "mcp__shop__look", "a\nb"):
        await home.effect(tool, {"command": "touch a"})
    await home.ask(home.event("apply_new", {}), client="codex")
    status = {change.client: change.unknown for change in home.entries().status()}
    assert status["claude-code"] == ("SomethingNew", "a\ufffdb")
    assert (status["codex"], status["opencode"]) == (("apply_new",), ())
    known = UnknownTools(home.directory)
    for number in range(300):
        known.note("claude-code", f"Tool{number}")
    assert len(known.of("claude-code")) < UNKNOWN_MAX


async def test_a_denial_in_the_inbox_is_recorded_though_the_call_is_not_repeated(
    home: HookedHome,
) -> None:
    event = home.event("Bash", {"command": "npm test"})
    assert "not approved yet" in (await home.ask(event, client="codex")).output
    with Skillhouse(configured(home.places)) as house:
        (question,) = house.approvals.pending()
        nonce = question.request.nonce
        house.approvals.answer(question.id, Answer.NO, by="local", channel="cli", nonce=nonce)
        log = house.audit_log
        record = next(iter(entries_of(log.path, Query(), key=log.key))).record
    assert (record.kind, record.status, record.tool, record.client, record.channel) == (
        *("refusal", "denied", "Bash", "codex", "hooks"),
    )
    assert record.confirmation is not None
    assert (record.confirmation.approved, record.confirmation.approval) == (False, question.id)
    assert [(one.action, one.resource) for one in record.permissions] == [("exec", "npm test")]


async def test_a_command_that_obeys_what_is_typed_is_asked_about_where_no_one_sees_it(
    tmp_path: Path,
) -> None:
    allow = "".join(
        f'[[rules]]\neffect = "allow"\naction = "exec"\npattern = "{one} *"\n'
        for one in "less|git commit|git add|git log|git rebase|git merge|git stash".split("|")
    )
    home = HookedHome(tmp_path, rules=allow)
    (home.project / "a").write_text("1")
    git(home.project, "init", "-q", "-b", "main")
    git(named(home.project), "commit", "-q", "--allow-empty", "-m", "one")
    git(home.project, "branch", "topic")
    for command, is_asked in (
        ("git commit", True),
        ("git commit --amend", True),
        ("git commit -s", True),
        ("git commit -m x -e", True),
        ("git add -p", True),
        ("less a", True),
        ("git commit -qm x", False),
        ("git commit --amend --no-edit", False),
        ("git log", False),
        ("git log --patch", False),
        ("git stash show -p", False),
        ("git stash -p", True),
        ("git rebase --autosquash topic", True),
        ("git rebase --skip", True),
        ("git rebase -x ls topic", True),
        ("git merge --edit --no-commit topic", True),
        ("git add --patch", True),
        ("GIT_EDITOR=true git add -p", True),
        ("GIT_EDITOR=true git commit", False),
        ("git rebase topic", False),
        ("git rebase --onto topic topic", False),
        ("git merge --ff-only topic", False),
        ("git merge topic", True),
    ):
        event = home.event("Bash", {"command": command})
        said = (await home.ask(event, client="codex")).output
        assert (said != "") == is_asked, (command, said)
        if command in ("git commit", "less a"):
            assert "obeys what is typed" in said
    home.end()


async def test_git_is_asked_about_where_only_our_sandbox_could_not_run_it(
    home: HookedHome, tmp_path: Path
) -> None:
    home.places.user_file.write_text('policy = "developer"\n')
    git(home.project, "init", "-q", "-b", "main")
    git(named(home.project), "commit", "-q", "--allow-empty", "-m", "one")
    git(home.project, "remote", "add", "up", str(tmp_path / "up"))
    (home.project / "sub").mkdir()
    (home.project / "top").write_text("1\n")
    git(home.project, "add", "top")
    cases = {
        "git worktree add tree": "writes what git obeys",
        "git config user.name me": "writes what git obeys",
        "git submodule add ./x": "writes what git obeys",
        "git fetch up": "outside of the workspace",
        "git worktree add tree && ls": "writes what git obeys",
    }
    for command, reason in cases.items():
        found = await home.effect("Bash", {"command": command})
        assert (found[0], reason in found[1]) == ("ask", True), (command, found)
        assert "command" not in found[1].partition("obeys")[2], found
    below = {"session_id": "s-2", "cwd": str(home.project / "sub")}
    for command, effect in {
        "git status": "allow",
        "git log -1": "allow",
        "git stash": "ask",
    }.items():
        found = await home.effect("Bash", {"command": command}, **below)
        assert found[0] == effect, (command, found)
    deny = '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "git worktree *"\n'
    home.places.user_file.write_text(f'policy = "developer"\n{deny}')
    assert (await home.effect("Bash", {"command": "git worktree add tree"}))[0] == "deny"


async def test_the_machines_tmp_is_asked_about_where_no_sandbox_has_its_own(
    home: HookedHome,
) -> None:
    home.places.user_file.write_text('policy = "developer"\n')
    for command, effect, reason in (
        ("ls > /tmp/skillhouse-out.txt", "ask", "outside of the workspace"),
        ("cp notes /tmp/skillhouse-out.txt", "ask", "outside the current tree"),
        ("ls > /var/tmp/out.txt", "deny", "outside the workspace"),
        (f"ls > {home.places.state()}/audit.jsonl", "deny", ""),
        (f"ls > {home.project}/.git/hooks/x", "deny", "is protected"),
    ):
        found = await home.effect("Bash", {"command": command})
        assert (found[0], reason in found[1]) == (effect, True), (command, found)
