"""Houses whose skills bring code, for the tests of their tools."""

from __future__ import annotations

import json
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio

from skillhouse.approval import Channel
from skillhouse.audit import read_records
from skillhouse.house import SkillCodeSettings, Skillhouse, configured
from skillhouse.house.config import NetSettings, SecretSettings
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import SandboxLevel, SandboxStatus, detect
from skillhouse.tools import ToolResult
from tests.harness import Need
from tests.house.places import make_places

T = TypeVar("T")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROOTS = {
    "javascript": EXAMPLES / "workspace/skills",
    "python": EXAMPLES / "python/skills",
}
"""The published examples, once in each language."""


def best_sandbox(need: Need) -> SandboxStatus:
    """Return what runs code here, or skip the test."""
    status = anyio.run(detect)
    need(status.level is not SandboxLevel.NONE, f"no sandbox: {'; '.join(status.reasons)}")
    return status


def tool(name: str = "tool", level: str = "read", **more: Any) -> dict[str, Any]:
    """Return a declared tool that takes any arguments."""
    parameters = more.pop("parameters", {"type": "object"})
    security = {"level": level}
    return {"name": name, "description": f"Does {name}.", "parameters": parameters,
            "security": security, **more}  # fmt: skip


def write_code(
    directory: Path,
    source: str,
    *tools: Mapping[str, Any],
    language: str = "python",
    env: Sequence[str] = (),
    hosts: Sequence[str] = (),
    dependencies: Sequence[str] = (),
) -> Path:
    """Write a skill with code, named after its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    requires = {"env": list(env), **({"hosts": list(hosts)} if hosts else {})}
    given = {"requires": requires, "tools": list(tools or [tool()])}
    about: dict[str, Any] = {
        "name": directory.name,
        "version": "1.0.0",
        "description": "Does things.",
        **({"dependencies": list(dependencies)} if dependencies else {}),
    }
    if language == "python":
        text = f"[project]\n{_toml(about)}\n[tool.skillhouse]\n{_toml(given)}\n"
        (directory / "pyproject.toml").write_text(text, encoding="utf-8")
        (directory / "main.py").write_text(textwrap.dedent(source), encoding="utf-8")
    else:
        text = json.dumps({**about, "owliabot": given})
        (directory / "package.json").write_text(text, encoding="utf-8")
        (directory / "index.js").write_text(textwrap.dedent(source), encoding="utf-8")
    return directory


def _toml(table: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def coded_house(
    base: Path,
    root: Path | None = None,
    *rules: tuple[str, str, str],
    status: SandboxStatus | None = None,
    channel: Channel | None = None,
    environment: Mapping[str, str] | None = None,
    env: Mapping[str, tuple[str, ...]] | None = None,
    hosts: tuple[str, ...] = (),
    secrets: tuple[SecretSettings, ...] = (),
    private: tuple[str, ...] = ("127.0.0.1/32",),
    enabled: bool | None = True,
    python_packages: tuple[str, ...] = (),
    levels: Mapping[str, Any] | None = None,
    in_process: tuple[str, ...] = (),
    frames_for_models: bool = False,
    settings: SkillCodeSettings | None = None,
    **overrides: Any,
) -> Skillhouse:
    """Return a house with the skills below `root`.

    Args:
        base: Where its home and project are made.
        root: A further root.
        rules: Effect, action and pattern of the user's rules.
        status: What the sandbox is; only for tests that run code.
        channel: How a person is asked; without one, questions wait.
        environment: The process's variables.
        env: Which of them a skill gets.
        hosts: What may be fetched, besides what is asked about; loopback is open.
        secrets: What goes to some of them alone.
        private: Networks that are reached although they are not public.
        enabled: Whether code runs.
        python_packages: The operator's directories of packages.
        levels: The operator's least levels.
        in_process: Digests of what runs in this process.
        frames_for_models: Whether a model gets an exception's files and lines.
        settings: All of `[skill_code]`, in place of the six before.
        overrides: Further values of the configuration.
    """
    layer = Layer(
        name="user",
        rules=tuple(Rule(effect=Effect(e), action=action, pattern=p) for e, action, p in rules),
    )
    # Where design 002 has its skills they need no root of a person's, but their trust.
    is_printed = root is not None and root == base / "project/workspace/skills"
    house = Skillhouse(
        configured(make_places(base, environment or {})),
        channel=channel,
        layers=(layer,),
        roots=[] if root is None or is_printed else [root],
        skill_code=settings
        or SkillCodeSettings(
            enabled=enabled,
            env=env or {},
            python_packages=python_packages,
            levels=levels or {},
            in_process=in_process,
            frames_for_models=frames_for_models,
        ),
        net=NetSettings(hosts=hosts, private=private, secrets=secrets),
        **overrides,
    )
    if status is not None:
        house.services.sandbox.adopt(status)
    if is_printed:
        house.project_trust.trust()
    return house


@asynccontextmanager
async def letting_go(house: Skillhouse) -> AsyncIterator[Skillhouse]:
    """Give the house, and end what belongs to this loop."""
    try:
        yield house
    finally:
        with anyio.CancelScope(shield=True):
            await house.services.release_loop()
        house.close()


def played(house: Skillhouse, scene: Callable[[Skillhouse], Awaitable[T]]) -> T:
    """Return what the scene in the house returns."""

    async def play() -> T:
        async with letting_go(house):
            return await scene(house)

    return anyio.run(play)


def called(house: Skillhouse, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
    """Return what comes of one call, after which the house is closed."""
    return played(house, lambda house: house.call(name, arguments or {}))


def recorded(house: Skillhouse) -> list[Any]:
    """Return the log's entries, oldest first."""
    found = list(read_records(house.audit_log.path, limit=50))[::-1]
    # Where the skills are the project's, `coded_house` trusted them first.
    return [entry for entry in found if entry.record.tool != "system:trust"]


def code_names(house: Skillhouse) -> list[str]:
    """Return the full names of the tools that skills bring."""
    return [name for found in house.tools() if (name := getattr(found, "full_name", ""))]
