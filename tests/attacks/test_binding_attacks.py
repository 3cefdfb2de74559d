"""Attacks on what an approval is bound to: other bytes than those that a person was shown.

The naive version binds the words of a command. Each attack changes what these words lead to, after
the question was asked, or after the approval was consumed and before the program has ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.tools import ToolResult
from tests.house.places import make_places

pytestmark = pytest.mark.slow

GOOD = "print('good')\n"
EVIL = "open('OWNED', 'w').write('x')\nprint('evil')\n"

SWAPS: tuple[tuple[str, Mapping[str, str], Mapping[str, str]], ...] = (
    ("python3 run.py", {"run.py": GOOD}, {"run.py": EVIL}),
    ("cd sub && python3 run.py", {"sub/run.py": GOOD}, {"sub/run.py": EVIL}),
    ("make t", {"Makefile": "t:\n\techo good\n"}, {"Makefile": "t:\n\ttouch OWNED\n"}),
    (
        "make -C sub t",
        {"sub/Makefile": "t:\n\techo good\n"},
        {"sub/Makefile": "t:\n\ttouch ../OWNED\n"},
    ),
    ("python3 -m tool", {"tool.py": GOOD}, {"tool.py": EVIL}),
    ("python3 -m pkg.tool", {"pkg/tool.py": GOOD}, {"pkg/__init__.py": EVIL}),
    ("python3 run.py", {"run.py": "import lib\n", "lib.py": GOOD}, {"lib.py": EVIL}),
    ("python3 run.py", {"run.py": GOOD}, {"sitecustomize.py": EVIL}),
    ("sh ./g/*.sh", {"g/a.sh": "echo good\n"}, {"g/a.sh": "touch OWNED\n"}),
    ("sh ./g/*.sh", {"g/b.sh": "echo good\n"}, {"g/a.sh": "touch OWNED\n"}),
    ("env -C sub sh e.sh", {"sub/e.sh": "echo good\n"}, {"sub/e.sh": "touch ../OWNED\n"}),
    ("sh 'a b.sh'", {"a b.sh": "echo good\n"}, {"a b.sh": "touch OWNED\n"}),
    ("X=run.sh; sh $X", {"run.sh": "echo good\n"}, {"run.sh": "touch OWNED\n"}),
    (
        "for f in run.sh; do (cd sub; sh $f); done",
        {"sub/run.sh": "echo\n"},
        {"sub/run.sh": "touch ../OWNED\n"},
    ),
    (
        "sh " + " ".join(f"-{letter}" for letter in "e" * 40) + " run.sh",
        {"run.sh": "echo good\n"},
        {"run.sh": "touch OWNED\n"},
    ),
    ("timeout 5 sh run.sh", {"run.sh": "echo good\n"}, {"run.sh": "touch OWNED\n"}),
    ("sh notes.md", {"notes.md": "echo good\n"}, {"notes.md": "touch OWNED\n"}),
    ("sh < run.txt", {"run.txt": "echo good\n"}, {"run.txt": "touch OWNED\n"}),
    ("sh -c '. ./run.sh'", {"run.sh": "echo good\n"}, {"run.sh": "touch OWNED\n"}),
    ("python3 sub", {"sub/__main__.py": GOOD}, {"sub/__main__.py": EVIL}),
    (
        "python3 run.py",
        {"run.py": "import lib\n", "lib/__init__.py": GOOD},
        {"lib.so": "x", "lib/__init__.py": EVIL},
    ),
    ("find . -name a.sh -exec sh {} +", {"a.sh": "echo good\n"}, {"a.sh": "touch OWNED\n"}),
    ("cp good.sh copy.sh", {"good.sh": "echo good\n"}, {"good.sh": "touch OWNED\n"}),
)


def house_of(base: Path, *rules: Rule) -> Skillhouse:
    layers = (Layer(name="user", rules=rules),)
    return Skillhouse(configured(make_places(base)), layers=layers)


def approve(house: Skillhouse, approval_id: str | None) -> None:
    found = house.approvals.get(approval_id or "")
    house.approvals.answer(
        found.id, Answer.ONCE, by="local", channel="cli", nonce=found.request.nonce
    )


def put(base: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = base / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("line", "before", "after"), SWAPS, ids=[f"{number}" for number in range(len(SWAPS))]
)
def test_what_is_swapped_between_question_and_use_is_asked_about_again(
    tmp_path: Path,
    bwrap: None,
    line: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """G2: the words stay the same, the bytes that run do not."""
    with house_of(tmp_path) as house:
        put(tmp_path, before)
        asked = house.call_sync("exec", {"command": line})
        approve(house, asked.approval_id)
        put(tmp_path, after)
        for approval_id in (asked.approval_id, None):
            again = house.call_sync("exec", {"command": line}, approval_id=approval_id)
            assert again.status == "pending", again.content
            assert again.approval_id != asked.approval_id
            request = house.approvals.get(again.approval_id or "").request
            facts = dict(request.found)
            changed = facts["changed since the earlier question"]
            assert any(name in changed for name in after), changed
        assert not (tmp_path / "project/OWNED").exists()
        assert not (tmp_path / "project/copy.sh").exists()


def test_what_did_not_change_runs_once(tmp_path: Path, bwrap: None) -> None:
    with house_of(tmp_path) as house:
        put(tmp_path, {"run.py": "import lib\n", "lib.py": GOOD, "notes.md": "one"})
        call = ("exec", {"command": "python3 run.py"})
        asked = house.call_sync(*call)
        content = json.loads(house.approvals.get(asked.approval_id or "").request.content)
        assert (list(content["files"]), bool(content["signature"])) == (["run.py"], True)
        approve(house, asked.approval_id)
        put(tmp_path, {"notes.md": "documents are not loaded"})
        assert house.call_sync(*call).content.strip() == "good"


RUN = ("exec", {"command": "python3 run.py"})


def test_a_question_is_titled_by_all_its_commands(tmp_path: Path) -> None:
    """G5: the first command was the title, whatever followed it."""
    many = " && ".join(["make t", *(f"echo {'x' * 30} {at}" for at in range(9)), "rm -rf src"])
    with house_of(tmp_path) as house:
        titles = []
        for line in ("make t && rm -rf src && python3 x.py", many):
            asked = house.call_sync("exec", {"command": line})
            titles.append(house.approvals.get(asked.approval_id or "").request.title)
    assert titles[0] == "exec: make t ; rm -rf src ; python3 x.py"
    assert titles[1].startswith("exec: make t ; echo x")
    assert titles[1].endswith(" ; and 6 more commands")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("make t", ""),
        ("X=run.sh; sh $X", ""),
        ("npm install left-pad", ", but not `package.json`"),
        ("cp a b", None),
        ("git checkout other", None),
    ],
)
def test_a_question_says_what_an_unknown_program_cannot_write(
    tmp_path: Path, line: str, said: str | None
) -> None:
    """A person who approves `make` learns why it cannot make its Makefile anew."""
    with house_of(tmp_path) as house:
        put(tmp_path, {"a": "", "Makefile": "t:\n", "run.sh": ""})
        asked = house.call_sync("exec", {"command": line})
        facts = dict(house.approvals.get(asked.approval_id or "").request.found)
    kept = "files that agents and tools obey, such as Makefile, package.json and AGENTS.md"
    assert facts.get("read-only in the run") == (None if said is None else kept + said)


@pytest.mark.parametrize("seconds", [6, pytest.param(20, marks=pytest.mark.heavy)])
def test_two_agents_in_one_workspace_both_finish(tmp_path: Path, bwrap: None, seconds: int) -> None:
    """One runs approved tests for longer than an edit waits; the other's edits come through."""
    writes = Rule(effect=Effect.ALLOW, action="write", pattern="*")
    with house_of(tmp_path, writes) as tester, house_of(tmp_path, writes) as editor:
        put(tmp_path, {"run.py": f"import time; time.sleep({seconds}); print('passed')\n"})
        asked = tester.call_sync(*RUN)
        approve(tester, asked.approval_id)
        waits: list[float] = []
        results: list[ToolResult] = []

        async def edit() -> None:
            for number in range(3):
                edited = None
                while edited is None or edited.status == "error":
                    began = anyio.current_time()
                    edited = await editor.call("write", {"path": f"{number}.txt", "content": "x"})
                    waits.append(anyio.current_time() - began)
                results.append(edited)

        async def test() -> None:
            results.append(await tester.call(*RUN))

        async def both() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(test)
                await anyio.sleep(0.5)
                tasks.start_soon(edit)

        anyio.run(both)
    assert [result.status for result in results] == ["ok"] * 4, results
    assert max(waits) < 10
