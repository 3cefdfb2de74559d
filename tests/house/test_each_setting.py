"""Each setting of a configuration file, changed under a house that runs and has used it.

A row starts a house with one text, warms it (lists, loads, calls, asks), observes what the setting
does as a user would see it, writes the other text and observes again. What needs a restart, and
what nobody can see, is named with its reason, so that no key is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import anyio
import pytest

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.floor.structs import field_names, is_struct
from skillhouse.house import BotSettings, ConfigNews, Settings, Skillhouse, configured
from skillhouse.house.config.config_values import AgentSettings, OAuthSettings
from skillhouse.house.config.repositories import SkillsSettings
from skillhouse.house.config_reload import RESTART, RESTART_CODE
from skillhouse.tools import ToolResult
from tests.house.coded import best_sandbox, tool, write_code
from tests.house.places import make_places, write_skill

ALL = "[[rules]]\neffect = 'allow'\naction = '*'\npattern = '*'\n"
EXEC = "[[rules]]\neffect = 'allow'\naction = 'exec'\npattern = '*'\nunbound = true\n"
WRITES = "[[rules]]\neffect = 'allow'\naction = 'write'\npattern = '*'\n"

NO_WAIT = "[approvals]\nwait_seconds = 0.1\n"

BODY = "Winds of $ARGUMENTS. !`echo zeph`yr\n"

Observe = Callable[[Skillhouse], Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One change; `keys` are those that it shows."""

    keys: tuple[str, ...]
    before: str = ""
    after: str
    sees: Observe
    was: Any
    then: Any
    sandbox: bool = False
    """Whether it needs one that runs commands."""
    waits: bool = False
    """Whether there is a channel, on which calls wait for an answer."""


class Silent:
    """A channel that reaches nobody, so that a call waits as long as it may."""

    async def ask(self, request: ApprovalRequest) -> None:
        del request
        await anyio.sleep_forever()


def call(house: Skillhouse, name: str, **arguments: Any) -> Any:
    return house.call_sync(name, arguments)


def ran(house: Skillhouse, *words: str, **others: Any) -> str:
    """Run a command; its output, or what kept it from running to its end."""
    return str(call(house, "exec", command=words[0], params=list(words[1:]), **others).content)


def wrote(path: str = "a.txt") -> Observe:
    return lambda house: call(house, "write", path=path, content="x").status


def listed(house: Skillhouse) -> str:
    return house.catalog().text


def tool_names(house: Skillhouse) -> set[str]:
    return {tool.name for tool in house.tools()}


def loads(name: str, agent: str = "default") -> Observe:
    return lambda house: house.call_sync("skill", {"name": name}, agent=agent).status


def asked(house: Skillhouse, **fields: Any) -> ToolResult:
    """Ask about a write that no rule is about, another one each time."""
    number = len(house.approvals.latest(1000))
    result: ToolResult = house.call_sync(
        "write", {"path": f"asked-{number}.txt", "content": "x"}, **fields
    )
    return result


def question(house: Skillhouse) -> ApprovalRequest:
    """Return the question of a call that waits."""
    made = asked(house)
    assert made.approval_id, made
    return house.approvals.get(made.approval_id).request


def lasts_ms(request: ApprovalRequest) -> int:
    return request.expires_ms - request.opened_ms


def answered_after(house: Skillhouse) -> float:
    """Return how long a call waits for an answer, in seconds, to a tenth."""
    began = time.monotonic()
    asked(house)
    return round(time.monotonic() - began, 1)


def third_question(house: Skillhouse) -> str:
    """Return what becomes of the third of three questions at once."""
    return [asked(house) for _ in range(3)][-1].status


def need_of_network(house: Skillhouse, url: str = "https://docs.example.org/a") -> str:
    return house.forecast("fetch", {"url": url}).effect


def granted_days(house: Skillhouse) -> int:
    """Answer a question for good, and return for how many days that holds."""
    known = len(house.approvals.grant_store.all())
    path = {"path": f"granted-{known}.txt", "content": "x"}
    one = house.approvals.get(str(house.call_sync("write", path).approval_id)).request
    house.approvals.answer(one.id, Answer.ALWAYS, nonce=one.nonce, by="local", channel="cli")
    assert house.call_sync("write", path).status == "ok"
    newest = house.approvals.grant_store.all()[-1]
    return round((newest.expires_ms - newest.granted_ms) / 86_400_000)


def left_after_a_denial(house: Skillhouse) -> int:
    """Ask twice in a session, deny the second, and return how many of both still wait."""
    first, second = question(house), question(house)
    house.approvals.answer(second.id, Answer.NO, nonce=second.nonce, by="local", channel="cli")
    return sum(one.id in (first.id, second.id) for one in house.approvals.pending())


def started(house: Skillhouse) -> str:
    """Start a skill as a person does, and return what the model gets."""
    made = house.services.portal().call(lambda: house.invoke("kestrel", "ARGUMENT-TWO"))
    return str(made.content)


def learned(house: Skillhouse) -> bool:
    """Load a skill after a search, and return whether that was kept."""
    before = len(house.services.learned.choices("local"))
    house.call_sync("search_skills", {"query": "zephyr"})
    house.call_sync("skill", {"name": "kestrel"})
    return len(house.services.learned.choices("local")) > before


def code_call(house: Skillhouse) -> ToolResult:
    name = next(name for name in tool_names(house) if "kite" in name)
    result: ToolResult = house.call_sync(name, {})
    return result


def has(part: str, what: Observe) -> Observe:
    return lambda house: part in what(house)


ROWS = [
    Row(
        keys=("profile",),
        after='profile = "opencode"',
        sees=lambda house: house.view().profile.name,
        was="default",
        then="opencode",
    ),
    Row(
        keys=("roots",),
        after='roots = ["../../../more"]',
        sees=has("tern", listed),
        was=False,
        then=True,
    ),
    Row(
        keys=("catalog_budget_tokens",),
        after="catalog_budget_tokens = 0",
        sees=has("kestrel", listed),
        was=True,
        then=False,
    ),
    Row(
        keys=("exec_environment",),
        before=EXEC,
        after=f'exec_environment = ["KITE"]\n{EXEC}',
        sees=has("red", lambda house: ran(house, "printenv", "KITE")),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("sandbox.level",),
        after="[sandbox]\nlevel = 'bubblewrap'",
        sees=lambda house: house.services.least_sandbox.name,
        was="LANDLOCK",
        then="RLIMITS",
    ),
    Row(
        keys=("sandbox.seconds",),
        before=EXEC,
        after=f"{EXEC}[sandbox]\nseconds = 1",
        sees=has("1 second", lambda house: ran(house, "sleep", "2")),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("sandbox.output_bytes",),
        before=EXEC,
        after=f"{EXEC}[sandbox]\noutput_bytes = 1048576",
        sees=has("1048576 bytes are kept", lambda house: ran(house, "seq", "300000")),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("sandbox.file_bytes",),
        before=EXEC,
        after=f"{EXEC}[sandbox]\nfile_bytes = 1048576",
        sees=has(
            "1048576 bytes, `file_bytes`",
            lambda house: ran(house, "dd", "if=/dev/zero", "of=a", "bs=1M", "count=3"),
        ),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("sandbox.path",),
        before=EXEC,
        after=f'{EXEC}[sandbox]\npath = ["../bin"]',
        sees=has("a greeting", lambda house: ran(house, "greet")),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("policy",),
        before='policy = "locked"',
        after='policy = "developer"',
        sees=lambda house: house.forecast("write", {"path": "a", "content": "x"}).status,
        was="denied",
        then="ok",
    ),
    Row(
        keys=("rules.effect", "rules.action", "rules.pattern", "rules.reason"),
        before=WRITES,
        after=WRITES.replace("allow", "deny") + "reason = 'closed for the night'\n",
        sees=has(
            "closed for the night",
            lambda house: call(house, "write", path="a", content="x").content,
        ),
        was=False,
        then=True,
    ),
    Row(
        keys=("rules.match", "rules.not_match"),
        before=WRITES,
        after=WRITES + "match = ['zephyr']\nnot_match = []\n",
        sees=wrote(),
        was="ok",
        then="ok",
    ),
    Row(
        keys=("tools",),
        after='tools = ["skills"]',
        sees=has("write", tool_names),
        was=True,
        then=False,
    ),
    Row(
        keys=("approvals.wait_seconds",),
        before="[approvals]\nwait_seconds = 0.1",
        after="[approvals]\nwait_seconds = 1.0",
        sees=lambda house: answered_after(house) >= 0.9,
        was=False,
        then=True,
        waits=True,
    ),
    Row(
        keys=("approvals.expires_seconds",),
        before=f"{NO_WAIT}expires_seconds = 3600",
        after=f"{NO_WAIT}expires_seconds = 60",
        sees=lambda house: lasts_ms(question(house)),
        was=3_600_000,
        then=60_000,
    ),
    Row(
        keys=("approvals.unattended",),
        before=f'{NO_WAIT}unattended = "pending"',
        after=f'{NO_WAIT}unattended = "deny"',
        sees=lambda house: asked(house).status,
        was="pending",
        then="denied",
    ),
    Row(
        keys=("approvals.open_max",),
        before=NO_WAIT,
        after=f"{NO_WAIT}open_max = 2",
        sees=third_question,
        was="pending",
        then="denied",
    ),
    Row(
        keys=("approvals.user_open_max",),
        before=NO_WAIT,
        after=f"{NO_WAIT}user_open_max = 2",
        sees=third_question,
        was="pending",
        then="denied",
    ),
    Row(
        keys=("approvals.user_rate",),
        before=NO_WAIT,
        after=f"{NO_WAIT}user_rate = 2",
        sees=third_question,
        was="pending",
        then="denied",
    ),
    Row(
        keys=("approvals.grant_days",),
        before=f"{NO_WAIT}grant_days = 30",
        after=f"{NO_WAIT}grant_days = 3",
        sees=granted_days,
        was=30,
        then=3,
    ),
    Row(
        keys=("approvals.reject_all",),
        before=f"{NO_WAIT}reject_all = false",
        after=f"{NO_WAIT}reject_all = true",
        sees=left_after_a_denial,
        was=1,
        then=0,
    ),
    Row(
        keys=("write_gate.enabled", "write_gate.allow_users"),
        before=WRITES,
        after=f'{WRITES}[write_gate]\nenabled = true\nallow_users = ["mika"]',
        sees=wrote(),
        was="ok",
        then="denied",
    ),
    Row(
        keys=("write_gate.confirmation",),
        before=f'{WRITES}{NO_WAIT}[write_gate]\nenabled = true\nallow_users = ["local"]',
        after=f'{WRITES}{NO_WAIT}[write_gate]\nenabled = true\nallow_users = ["local"]\n'
        "confirmation = false",
        sees=wrote(),
        was="pending",
        then="ok",
    ),
    Row(
        keys=("write_gate.allow_paths",),
        before=WRITES,
        after=f'{WRITES}[write_gate]\nallow_paths = ["notes"]',
        sees=wrote(),
        was="ok",
        then="denied",
    ),
    Row(
        keys=("extensions.invocation",),
        before="[extensions]\ninvocation = true",
        after="[extensions]\ninvocation = false",
        sees=has("petrel", listed),
        was=False,
        then=True,
    ),
    Row(
        keys=("extensions.substitution",),
        before="[extensions]\nsubstitution = false",
        after="[extensions]\nsubstitution = true",
        sees=has("of ARGUMENT-TWO", started),
        was=False,
        then=True,
    ),
    Row(
        keys=("extensions.when_to_use",),
        before="[extensions]\nwhen_to_use = false",
        after="[extensions]\nwhen_to_use = true",
        sees=has("when the zephyr blows", listed),
        was=False,
        then=True,
    ),
    Row(
        keys=("extensions.paths",),
        before="[extensions]\npaths = false",
        after="[extensions]\npaths = true",
        sees=has("dunlin", listed),
        was=True,
        then=False,
    ),
    Row(
        keys=("extensions.commands",),
        before=f"{EXEC}[extensions]\ncommands = false",
        after=f"{EXEC}[extensions]\ncommands = true",
        sees=has("!`echo", started),
        was=True,
        then=False,
        sandbox=True,
    ),
    Row(
        keys=("memory.enabled",),
        before="[memory]\nenabled = false",
        after="[memory]\nenabled = true",
        sees=has("memory_search", tool_names),
        was=False,
        then=True,
    ),
    Row(
        keys=("find_and_install.enabled",),
        before="[find_and_install]\nenabled = false",
        after="[find_and_install]\nenabled = true",
        sees=has("find_and_install_skill", tool_names),
        was=False,
        then=True,
    ),
    Row(
        keys=("find_and_install.public",),
        before="[find_and_install]\nenabled = true",
        after="[find_and_install]\nenabled = true\npublic = true",
        sees=lambda house: house.forecast("find_and_install_skill", {"wanted": "fly kites"}).status,
        was="error",
        then="ok",
    ),
    Row(
        keys=("protection.asked",),
        before=NO_WAIT,
        after=f'{NO_WAIT}[protection]\nasked = ["opencode.json"]',
        sees=wrote("opencode.json"),
        was="denied",
        then="pending",
    ),
    Row(
        keys=("registry.require_signature",),
        after="[registry]\nrequire_signature = true",
        sees=loads("kestrel"),
        was="ok",
        then="denied",
    ),
    Row(
        keys=("agents.NAME.rules",),
        before="[agents.reviewer]\n",
        after="[[agents.reviewer.rules]]\neffect='deny'\naction='skill'\npattern='kestrel'\n",
        sees=loads("kestrel", "reviewer"),
        was="ok",
        then="error",
    ),
    Row(
        keys=("agents.NAME.skill",),
        before="[agents.reviewer]\n",
        after='[agents.reviewer]\nskill = {"kes*" = "deny"}',
        sees=lambda house: "kestrel" in house.catalog(agent="reviewer").text,
        was=True,
        then=False,
    ),
    Row(
        keys=("agents.NAME.tools",),
        before="[agents.reviewer]\n",
        after='[agents.reviewer]\ntools = ["skills"]',
        sees=lambda house: "write" in {one.name for one in house.tools(agent="reviewer")},
        was=True,
        then=False,
    ),
    Row(
        keys=("agents.NAME.preload",),
        before="[agents.reviewer]\n",
        after='[agents.reviewer]\npreload = ["kestrel"]',
        sees=lambda house: "Winds" in house.conversation(agent="reviewer").preload_sync().text,
        was=False,
        then=True,
    ),
    Row(
        keys=("net.hosts",),
        after='[net]\nhosts = ["docs.example.org"]',
        sees=need_of_network,
        was="ask",
        then="allow",
    ),
    Row(
        keys=("net.searxng_url",),
        after='[net]\nsearxng_url = "https://search.example.com"',
        sees=lambda house: house.forecast("web_search", {"query": "kites"}).status,
        was="error",
        then="ok",
    ),
    Row(
        keys=("net.brave_key_env",),
        after='[net]\nbrave_key_env = "API_KEY_OF_KITES"',
        sees=lambda house: house.forecast("web_search", {"query": "kites"}).status,
        was="error",
        then="ok",
    ),
    Row(
        keys=("search.learn",),
        before="[search]\nlearn = false",
        after="[search]\nlearn = true",
        sees=learned,
        was=False,
        then=True,
    ),
    Row(
        keys=("skill_code.enabled",),
        before="[skill_code]\nenabled = false",
        after="[skill_code]\nenabled = true",
        sees=lambda house: any("kite-code" in name for name in tool_names(house)),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("tool_count",),
        before="[skill_code]\nenabled = true",
        after="tool_count = 0\n[skill_code]\nenabled = true",
        sees=lambda house: "call_skill_tool" in tool_names(house),
        was=False,
        then=True,
    ),
    Row(
        keys=("tool_list_chars",),
        before="[skill_code]\nenabled = true",
        after="tool_list_chars = 0\n[skill_code]\nenabled = true",
        sees=lambda house: "call_skill_tool" in tool_names(house),
        was=False,
        then=True,
    ),
    Row(
        keys=("skill_code.levels",),
        before="[skill_code]\nenabled = true",
        after='[skill_code]\nenabled = true\n[skill_code.levels]\nkite-code = "write"',
        sees=lambda house: code_call(house).status,
        was="ok",
        then="pending",
        sandbox=True,
    ),
    Row(
        keys=("skill_code.env",),
        before="[skill_code]\nenabled = true",
        after='[skill_code]\nenabled = true\n[skill_code.env]\nkite-code = ["KITE"]',
        sees=has("red", lambda house: code_call(house).content),
        was=False,
        then=True,
        sandbox=True,
    ),
    Row(
        keys=("skill_code.artifact_files",),
        before="[skill_code]\nenabled = true",
        after="[skill_code]\nenabled = true\nartifact_files = 0",
        sees=lambda house: len(code_call(house).artifacts),
        was=1,
        then=0,
        sandbox=True,
    ),
    Row(
        keys=("skill_code.artifact_bytes",),
        before="[skill_code]\nenabled = true",
        after="[skill_code]\nenabled = true\nartifact_bytes = 2",
        sees=lambda house: code_call(house).artifacts_left_out,
        was=(),
        then=("kite.txt: 2 bytes of a call are kept",),
        sandbox=True,
    ),
    Row(
        keys=("mcp_servers.label", "mcp_servers.command"),
        after='[[mcp_servers]]\nlabel = "a"\ncommand = ["/opt/none"]',
        sees=lambda house: [] if house.services.mcp_host is None else ["a"],
        was=[],
        then=["a"],
    ),
    Row(
        keys=("remotes.url", "remotes.kind"),
        after='[[remotes]]\nurl = "https://a.example.com"\nkind = "well-known"',
        sees=lambda house: [one.source.url for one in house.remotes.states()],
        was=[],
        then=["https://a.example.com"],
    ),
]


def environment() -> dict[str, str]:
    return {"KITE": "red", "API_KEY_OF_KITES": "s3cr3t-kite-key", "PATH": "/usr/bin:/bin"}


def warm(house: Skillhouse) -> None:
    """Use what is made once, so that nothing is made after the change."""
    _ = house.catalog().text, house.index, house.search("zephyr"), house.invocable()
    for name, arguments in (
        ("skill", {"name": "kestrel"}),
        ("write", {"path": "warm.txt", "content": "x"}),
        ("exec", {"command": "ls", "params": []}),
        ("read", {"path": "here.txt"}),
    ):
        if name in tool_names(house):
            house.call_sync(name, arguments)
    _ = house.management, house.remotes, house.project_trust, house.services.network
    house.load("kestrel")


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    home = tmp_path / "home" / ".agents/skills"
    more = {
        "kestrel": "when_to_use: when the zephyr blows",
        "dunlin": 'paths: ["*.kite"]',
        "petrel": "disable-model-invocation: true",
    }
    for name, field in more.items():
        file = write_skill(home / name, "Finds zephyrs.", BODY) / "SKILL.md"
        file.write_text(file.read_text().replace("---\nW", f"{field}\n---\nW"))
    write_skill(tmp_path / "more/tern")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keys[0])
def test_a_setting_counts_from_the_next_call_on(
    tmp_path: Path, skills: Path, row: Row, request: pytest.FixtureRequest
) -> None:
    if row.sandbox:
        best_sandbox(request.getfixturevalue("need"))
    places = make_places(tmp_path, environment())
    (places.start / "here.txt").write_text("here\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "greet").write_text("#!/bin/sh\necho a greeting\n")
    (tools / "greet").chmod(0o755)
    write_code(
        skills / "kite-code",
        "import os\n\ndef kite(args, context):\n"
        "    (context.output / 'kite.txt').write_text('kite')\n"
        "    return os.environ.get('KITE', 'none')\n\n"
        "tools = {'kite': kite}\n",
        tool("kite"),
        env=["KITE"],
    )
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(row.before)
    news: list[ConfigNews] = []
    with Skillhouse(configured(places), channel=Silent() if row.waits else None) as house:
        house.config_reload.subscribe(news.append)
        warm(house)
        assert row.sees(house) == row.was
        places.user_file.write_text(row.after)
        house.catalog()  # The next call, of whatever kind.
        assert row.sees(house) == row.then
        assert [one.is_fault for one in news] == [False], news


RESTART_KEYS = {*RESTART, *(f"skill_code.{name}" for name in RESTART_CODE), "cache"}
"""`cache` is whether there is a cache's directory."""
ELSEWHERE = {
    "rules": "the rows `rules.*`",
    "yaml_fast_path": "both ways read the same",
    "sandbox.processes": "given with the row `sandbox.seconds`, as one value",
    "sandbox.memory": "likewise",
    "sandbox.tmp_bytes": "likewise",
    "sandbox.mounts": "given with the row `sandbox.path`, by one finder of tools",
    "approvals.webhook_url": "a channel, made anew as approvals.page_url is; test_network.py",
    "approvals.webhook_secret_env": "likewise",
    "approvals.page_url": "test_network.py",
    "approvals.elicitation": "read by the MCP server at each question",
    "skill_code.unhashed": "read with skill_code.env, at each call",
    "skill_code.builds": "likewise",
    "skill_code.python_packages": "likewise",
    "skill_code.node_packages": "likewise",
    "skill_code.frames_for_models": "likewise",
    "skill_code.in_process": "test_in_process.py",
    "skill_code.artifact_days": "as skill_code.artifact_files; tests/tools/test_artifacts.py",
    "skill_code.artifact_total_bytes": "likewise",
    "net.private": "read with net.hosts, as one policy",
    "net.secrets": "likewise",
    "search.encoder": "its weights are no part of this suite; composition.py compares both keys",
    "search.weights": "likewise",
    "search.database": "tests/retrieval",
    **dict.fromkeys(
        (f"bot.{name}" for name in field_names(BotSettings)),
        "read once, by `skillhouse bot` when it starts; tests/extensions/channels",
    ),
    "state.url": "settled at the start, see RESTART; tests/extensions/postgres/test_state_whole.py",
    "state.listen_url": "likewise; tests/extensions/postgres/test_state_pooler.py",
    "hooks.hints": "tests/frontends/hooks/test_turn_texts.py, in the judge, which is what reads it",
    "registry.ended": "judged with registry.require_signature, by one check that is made again",
    "registry.timestamp": "read by `skillhouse sign` alone",
    **dict.fromkeys(
        (f"oauth.{name}" for name in field_names(OAuthSettings)),
        "read at each request by `skillhouse up`; tests/frontends/test_mcp_oauth.py",
    ),
    "signer.password": "tests/signer; enforcement.py ends the process of the one before",
    "sections": "of extensions, whose tools each reload makes again; tests/extension",
    "skills.repositories": "read at each install",
    **dict.fromkeys(
        (f"skills.{name}" for name in field_names(SkillsSettings) if name.startswith("source")),
        "read at each look, by a process whose configuration was read again; test_skill_bundle.py",
    ),
    "registry.sources": "likewise; tests/install/test_source_policy.py",
    "registry.min_release_age": "likewise",
    "registry.sigstore_roots": "likewise; tests/attacks/test_attestation_attacks.py",
    "registry.attestation_issuers": "likewise",
    "assignees": "tests/tiers",
    "mcp_servers": "the rows `mcp_servers.*`",
    "remotes": "the row `remotes.url`",
}


def keys_of(shape: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a table, with those of the tables in it."""
    for name, kind in get_type_hints(shape).items():
        if name == "agents":
            yield from keys_of(AgentSettings, "agents.NAME.")
            continue
        parts = [one for one in get_args(kind) if is_struct(one)]
        if parts and not prefix:
            yield from keys_of(parts[0], f"{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_key_has_a_row_or_a_reason() -> None:
    shown = {key for row in ROWS for key in row.keys}
    known = set(keys_of(Settings))
    assert known - shown - RESTART_KEYS == set(ELSEWHERE)
