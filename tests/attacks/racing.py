"""A workspace in which an approved script runs while something else changes what it runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from skillhouse.approval import Answer, ApprovalSettings
from skillhouse.house import Skillhouse
from skillhouse.sandbox import SandboxStatus
from skillhouse.tools import ToolResult
from tests.house.coded import coded_house, tool, write_code

RUN = ("exec", {"command": "sh run.sh"})
MOMENTS = 10
"""In the time of an approved call: an attack is to end at the next one."""
FILES = {
    # It loads the other file again and again, so that a change meanwhile would show.
    "run.sh": "for n in 1 2 3 4 5 6 7 8 9; do . ./lib.sh; done\n",
    "lib.sh": "echo good\n",
    "evil/run.sh": "echo evil; : > OWNED\n",
    "evil/lib.sh": "echo evil; : > OWNED\n",
}
GOOD = "good\n" * 9
TARGETS = ("run.sh", "lib.sh")
EDITS = {"run.sh": ("./lib.sh", "./evil/lib.sh"), "lib.sh": ("good", "evil")}
"""What an edit replaces, and by what."""
SWAP = """
def swap(params, context):
    said = []
    for place in (params["workspace"], "/workspace", "."):
        try:
            with open(f"{place}/{params['target']}", "w") as file:
                file.write("echo evil; : > OWNED")
        except OSError as error:
            said.append(type(error).__name__)
    return said
tools = {"swap": swap}
"""

Call = tuple[str, Mapping[str, Any]]


def _exec(line: str) -> Callable[[Path, str], Call]:
    return lambda _, target: ("exec", {"command": line.format(target)})


def _write(_: Path, target: str) -> Call:
    return "write", {"path": target, "content": FILES[f"evil/{target}"]}


def _edit(_: Path, target: str) -> Call:
    old, new = EDITS[target]
    return "edit", {"path": target, "old": old, "new": new}


def _sed(_: Path, target: str) -> Call:
    old, new = EDITS[target]
    return "exec", {"command": "sed", "params": ["-i", f"s|{old}|{new}|", target]}


def _swap(workspace: Path, target: str) -> Call:
    return "swapper:swap", {"workspace": str(workspace), "target": target}


WAYS: Mapping[str, Callable[[Path, str], Call]] = {
    "write": _write,
    "edit": _edit,
    "cp": _exec("cp evil/{0} {0}"),
    "mv": _exec("mv evil/{0} {0}"),
    "tee": _exec("cat evil/{0} | tee {0}"),
    "sed": _sed,
    "git": _exec("git checkout -q evil -- {0}"),
    "skill": _swap,
    "client": _write,
    "process": _write,
}
"""How a file is changed; the last two are a write by another client, and by another process."""
RULES = (
    ("allow", "write", "*"),
    ("allow", "skill_tool", "*"),
    *(("allow", "exec", f"{name} *") for name in ("cp", "mv", "tee", "cat", "git checkout")),
    *(
        ("allow", "exec", " ".join(("sed", *_sed(Path(), target)[1]["params"])))
        for target in TARGETS
    ),
)


def racing_house(base: Path, status: SandboxStatus | None = None) -> Skillhouse:
    """Return a house in which every way is allowed by a rule, and running the script is not."""
    bounds = ApprovalSettings(user_rate=10_000)
    return coded_house(base, base / "skills", *RULES, status=status, approvals=bounds)


class Race:
    """One house, and the same race in it again and again."""

    def __init__(self, base: Path, way: str, status: SandboxStatus) -> None:
        self.base, self.way = base, way
        self.root = base / "project"
        write_code(base / "skills/swapper", SWAP, tool("swap"))
        self.house = racing_house(base, status)
        self.restore()
        if way == "git":
            self._commit()
        self.seconds = self.attack_seconds = 0.0
        """What the approved call and the attack take by themselves."""
        self.shift = 0.0
        """How much later the attack starts; it follows what came of the last race, so that both
        meet where the call is redeemed, however busy the machine is."""
        self.ran = self.swapped = 0
        """How often the approved call ran, and how often the attack got through."""

    def restore(self) -> None:
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)

    def _commit(self) -> None:
        """Make a branch `evil` with the evil files under the names of the good ones."""
        (self.root / ".git").rmdir()
        for target in TARGETS:
            (self.root / target).write_text(FILES[f"evil/{target}"])
        for words in (
            ("init", "-q", "-b", "evil"),
            ("add", "-A"),
            ("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "evil"),
            ("checkout", "-q", "-b", "main"),
        ):
            subprocess.run(["git", "-C", str(self.root), *words], check=True)

    async def alone(self, other: Other | None) -> None:
        """Run the approved script, and then the attack, and note how long each takes."""
        await self._approved()
        began = time.monotonic()
        result = await self.house.call(*RUN)
        self.seconds = time.monotonic() - began
        assert (result.status, result.content) == ("ok", GOOD), result
        # The first one may start what the others find: a cell.
        for _ in range(2):
            began = time.monotonic()
            await self._attack(TARGETS[0], other)
            self.attack_seconds = time.monotonic() - began
            self.restore()
        self.shift = self.seconds - self.attack_seconds

    async def _approved(self) -> None:
        self.restore()
        asked = await self.house.call(*RUN)
        assert asked.status == "pending", asked.content
        self._answer(asked, Answer.ONCE)

    async def once(self, number: int, other: Other | None) -> None:
        """Approve the script, and let it and the attack race; fail if other bytes ran."""
        target = TARGETS[number % len(TARGETS)]
        await self._approved()
        later = self.shift + self.seconds * ((number % MOMENTS) / MOMENTS - 0.5)
        results: dict[str, ToolResult] = {}

        # Sleeps not for something to happen: both are to meet at different moments.
        async def run() -> None:
            await anyio.sleep(max(0.0, -later))
            results["run"] = await self.house.call(*RUN)

        async def attack() -> None:
            await anyio.sleep(max(0.0, later))
            await self._attack(target, other)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(attack)
        assert not (self.root / "OWNED").exists()
        ran = results["run"]
        is_refused = ran.status in ("pending", "denied")
        assert is_refused or (ran.status, ran.content) == ("ok", GOOD), ran
        if ran.status == "pending":
            # About the changed files: they are not approved, and open questions are bounded.
            self._answer(ran, Answer.NO)
        self.ran += ran.status == "ok"
        earliest = -self.seconds - self.attack_seconds
        step = self.seconds / 4 if is_refused else -self.seconds / 4
        self.shift = max(earliest, self.shift + step)
        self.swapped += (self.root / target).read_text() != FILES[target]

    def _answer(self, asked: ToolResult, answer: Answer) -> None:
        found = self.house.approvals.get(asked.approval_id or "")
        nonce = found.request.nonce
        self.house.approvals.answer(found.id, answer, by="local", channel="cli", nonce=nonce)

    async def _attack(self, target: str, other: Other | None) -> None:
        if other is not None:
            await other.write(target)
            return
        client = "other" if self.way == "client" else "library"
        name, arguments = WAYS[self.way](self.root, target)
        result = await self.house.call(name, arguments, client=client)
        if result.status == "pending" and "may rewrite files" in result.content:
            # On a slow machine the look at what git would write ran out of time, and a person is
            # asked.
            self._answer(result, Answer.NO)
            return
        # A rule allows it: it is done before or after, or the workspace was busy for too long.
        assert result.status == "ok" or "busy" in result.content, result.content


class Other:
    """Another process with a house of the same workspace."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def write(self, target: str) -> None:
        """Write the evil file there, and wait until that is done."""
        said = await anyio.to_thread.run_sync(self._said, target)
        assert said == "ok" or "busy" in said, said

    def _said(self, target: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{target}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def other_process(base: Path) -> Iterator[Other]:
    """Give another process that writes when it is told to."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.attacks.racing", str(base)]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Other(process)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """Write what is named on the standard input, as another process."""
    with racing_house(Path(sys.argv[1])) as house:
        for line in sys.stdin:
            result = house.call_sync(*_write(Path(), line.strip()))
            said = "ok" if result.status == "ok" else result.content.replace("\n", " ")
            print(said, flush=True)


if __name__ == "__main__":
    main()
