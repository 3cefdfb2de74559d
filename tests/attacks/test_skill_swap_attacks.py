"""Attacks on an approved tool of a skill: a module that its code loads is changed (G1, G2).

The question holds the digest of the skill's tree, and what runs is a private copy with that digest.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, ApprovalSettings
from skillhouse.house import Skillhouse
from skillhouse.sandbox import SandboxStatus
from skillhouse.tools import ToolResult
from tests.harness import Need
from tests.house.coded import coded_house, letting_go, tool, write_code

pytestmark = pytest.mark.slow

MAIN = {
    "python": """
        import early
        from pack import inner
        def run(params, context):
            import late
            from pack import last
            return [early.SAID, inner.SAID, late.SAID, last.SAID]
        tools = {"run": run}
    """,
    "javascript": """
        const early = require('./early');
        exports.tools = { run: async () => {
          const late = require('./late');
          const { SAID } = await import('./pack/last.mjs');
          return [early, require('./pack/inner'), late, SAID];
        } };
    """,
}
MODULES = {
    "python": ("early.py", "late.py", "pack/inner.py", "pack/last.py"),
    "javascript": ("early.js", "late.js", "pack/inner.js", "pack/last.mjs"),
}
HOME = "code/loads"
"""Where the skill is in the workspace: nothing of it is protected by its path."""


def said(name: str, text: str) -> str:
    if name.endswith(".py"):
        return f"SAID = '{text}'\n"
    return (
        f"export const SAID = '{text}';\n"
        if name.endswith(".mjs")
        else f"module.exports = '{text}';\n"
    )


def _exec(line: str) -> Callable[[str, str], tuple[str, Mapping[str, Any]]]:
    return lambda path, _: ("exec", {"command": line.format(path)})


WAYS: Mapping[str, Callable[[str, str], tuple[str, Mapping[str, Any]]] | None] = {
    "write": lambda path, text: ("write", {"path": path, "content": text}),
    "edit": lambda path, _: ("edit", {"path": path, "old": "good", "new": "evil"}),
    "cp": _exec("cp evil/{0} {0}"),
    "mv": _exec("mv evil/{0} {0}"),
    "tee": _exec("cat evil/{0} | tee {0}"),
    "sed": _exec("sed -i s/good/evil/ {0}"),
    "git": _exec("git checkout -q evil -- {0}"),
    "script": _exec("python3 swap.py {0}"),
    # Another program of the user, such as an editor: nothing keeps it away.
    "editor": None,
}


class Loading:
    """A workspace with a skill in it whose code loads four modules of its own."""

    def __init__(self, base: Path, language: str, status: SandboxStatus) -> None:
        self.root, self.language = base / "project", language
        shutil.rmtree(self.root / ".git", ignore_errors=True)
        self.skill = self.root / HOME
        rules = (("allow", "write", "*"), ("allow", "exec", "*"))
        self.house = coded_house(
            base, self.root / "code", *rules, status=status,
            approvals=ApprovalSettings(user_rate=10_000),
        )  # fmt: skip
        write_code(self.skill, MAIN[language], tool("run", "write"), language=language)
        (self.root / "swap.py").write_text(
            "import sys\ntext = open(sys.argv[1]).read()\n"
            "open(sys.argv[1], 'w').write(text.replace('good', 'evil'))\n"
        )
        self.evil = 0
        """How often a module was really changed."""

    def restore(self, number: int) -> None:
        """Write the modules; each time others, so that no cell has loaded them before."""
        for name in MODULES[self.language]:
            for place, text in ((HOME, "good"), (f"evil/{HOME}", "evil")):
                path = self.root / place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(said(name, f"{text} {number}"))

    def commit(self) -> None:
        self.restore(0)
        git = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for name in MODULES[self.language]:
            (self.skill / name).write_text(said(name, "evil"))
        for words in (["init", "-q", "-b", "evil"], ["add", "-A"], ["commit", "-qm", "evil"]):
            subprocess.run([*git, *words], check=True)

    def answer(self, asked: ToolResult, answer: Answer) -> None:
        found = self.house.approvals.get(asked.approval_id or "")
        nonce = found.request.nonce
        self.house.approvals.answer(found.id, answer, by="local", channel="cli", nonce=nonce)

    async def swap(self, way: str, name: str) -> None:
        call = WAYS[way]
        path, text = f"{HOME}/{name}", said(name, "evil")
        if call is None:
            await anyio.to_thread.run_sync((self.root / path).write_text, text)
        else:
            await self.house.call(*call(path, text))

    async def once(self, number: int, way: str, *, between: bool) -> None:
        """Approve the tool, swap a module before or while it runs; fail if other bytes run."""
        self.restore(number)
        name = MODULES[self.language][number % 4]
        asked = await self.house.call("loads:run", {})
        assert asked.status == "pending", asked.content
        self.answer(asked, Answer.ONCE)
        results: list[ToolResult] = []

        async def run() -> None:
            results.append(await self.house.call("loads:run", {}))

        if between:
            await self.swap(way, name)
            await run()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                tasks.start_soon(self.swap, way, name)
        (ran,) = results
        good = {"success": True, "data": [f"good {number}"] * 4}
        is_swapped = "evil" in (self.skill / name).read_text()
        self.evil += is_swapped
        if ran.status == "ok":
            assert ran.data == good
            assert not (between and is_swapped)
            return
        # Asked about again, refused at redeem, or refused by the copy.
        changed = ("has changed since", "is not as it was", "cannot copy the skill")
        assert ran.status == "pending" or any(text in ran.content for text in changed), ran
        if ran.status == "pending":
            self.answer(ran, Answer.NO)


@pytest.fixture(params=["python", "javascript"])
def language(request: pytest.FixtureRequest, need: Need) -> str:
    need(request.param == "python" or shutil.which("node"), "no node here")
    return str(request.param)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (0, 6),
        pytest.param(6, 20, marks=pytest.mark.heavy),
        pytest.param(20, 80, marks=[pytest.mark.heavy, pytest.mark.nightly]),
    ],
)
def test_a_module_that_is_swapped_is_never_loaded(
    tmp_path: Path,
    need: Need,
    status: SandboxStatus,
    language: str,
    way: str,
    first: int,
    last: int,
) -> None:
    need(way != "git" or shutil.which("git"), "no git")
    loading = Loading(tmp_path, language, status)
    if way == "git":
        loading.commit()

    async def main() -> None:
        async with letting_go(loading.house):
            for number in range(first, last):
                await loading.once(number, way, between=number % 2 == 0)

    anyio.run(main)
    # A skill is protected from all ways of a house; another program of the user gets through.
    assert (loading.evil > 0) == (way == "editor")


def test_code_loads_nothing_from_what_its_digest_leaves_out(
    tmp_path: Path, status: SandboxStatus
) -> None:
    """The bytes of `.skill` and `skill.sig` can change without another digest."""
    source = """
        import pathlib
        def run(params, context):
            here = pathlib.Path(__file__).parent
            return [(here / name).exists() for name in (".skill/lib.py", "skill.sig", "more.py")]
        tools = {"run": run}
    """
    skill = write_code(tmp_path / "skills/loads", source, tool("run"))
    (skill / ".skill").mkdir()
    for name in (".skill/lib.py", "skill.sig", "more.py"):
        (skill / name).write_text("print('evil')\n")
    house: Skillhouse = coded_house(tmp_path, tmp_path / "skills", status=status)

    async def main() -> ToolResult:
        async with letting_go(house):
            return await house.call("loads:run", {})

    assert (anyio.run(main).data or {})["data"] == [False, False, True]
