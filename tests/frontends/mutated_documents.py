"""A place in which every kind of file is there that the program reads, to be mutated one by one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.house.places import write_skill
from tests.mutations import Mutations
from tests.registry.publisher_skill import LOCKED, PASSWORD, REGISTRY
from tests.seed_skills import PYPROJECT, SKILLS, write_seed

CONFIG = """\
profile = "default"
roots = ["~/more-skills"]
catalog_budget_tokens = 2000
yaml_fast_path = true
cache = true
exec_environment = ["LANG"]
sandbox = "any"
tools = ["skills", "read", "exec", "write"]
assignees = ["me"]

[[rules]]
effect = "deny"
action = "exec"
pattern = "rm *"
reason = "use the bin"
match = ["rm -r build"]
not_match = ["rmdir x"]

[[rules]]
effect = "allow"
action = "exec"
pattern = "git log *"

[approvals]
elicitation = false
page_url = "https://me.example.com"

[write_gate]
enabled = true
allow_users = ["local"]
allow_paths = ["notes"]

[extensions]
invocation = true
substitution = true
paths = true
commands = false

[skill_code]
enabled = true
unhashed = false
env = { coded = ["ALCHEMY_API_KEY"] }
levels = { coded = "write", "coded:get_balance" = "sign" }
python_packages = []

[memory]
enabled = true

[search]
learn = true

[protection]
asked = ["notes/*"]

[net]
hosts = ["docs.python.org", "GET,CONNECT pkg.example.org", "POST http://127.0.0.1:8080"]
private = ["10.0.0.0/8"]
secrets = [{ name = "API", env = "MY_API_KEY", hosts = ["api.example.com"] }]
searxng_url = "https://search.invalid"

[signer]
password = "terminal"

[registry]
require_signature = false

[[skills.repositories]]
name = "official"
url = "https://skills.invalid"
trusted = true
require_signature = false

[[remotes]]
url = "https://remote.invalid"

[[mcp_servers]]
label = "docs"
url = "https://docs.invalid/mcp"

[agents.reviewer]
preload = ["notes"]
tools = ["skills", "read"]
skill = { "*" = "ask", notes = "allow" }

[[agents.reviewer.rules]]
effect = "deny"
action = "write"
pattern = "*"
"""
PROJECT_CONFIG = """\
catalog_budget_tokens = 1500

[[rules]]
effect = "ask"
action = "write"
pattern = "*.lock"
"""
POLICY = """\
version: "1"
thresholds: {tier3MaxUsd: 5, tier2MaxUsd: 50, tier2DailyUsd: 200, sessionKeyTtlHours: 24}
emergencyStop: {enabled: true, commands: [/stop], channels: [cli], action: pause-all}
defaults: {timeout: 60}
tools:
  exec:
    tier: 2
    requireConfirmation: true
    cooldown: {maxPerHour: 20, minIntervalMs: 5}
  transfer__send: {tier: 2, maxAmount: {usd: 20}, escalateAbove: {usd: 10}}
  read: {tier: none, allowedUsers: [me]}
wildcards:
  - {pattern: "*__approve_*", tier: 1}
  - pattern: coded__*
    tier: 3
    allowedUsers: assignee-only
fallback: {tier: 1, confirmationChannel: companion-app}
"""
OTHER_LOCK = """\
{"version": 1, "skills": {
  "notes": {"source": "acme/skills", "sourceType": "github", "ref": "v1", "skillPath": "skills/notes/SKILL.md", "computedHash": "%064d"},
  "site": {"source": "https://x.invalid", "sourceType": "well-known", "sourceUrl": "https://x.invalid/.well-known/agent-skills/site"},
  "local": {"source": "./src/pdf", "sourceType": "local"},
  "hub": {"source": "x", "sourceUrl": "https://github.com/a/b.git", "sourceType": "github", "version": "1.0.0"}
}}
"""  # noqa: E501
CLAUDE = """\
{
  "numStartups": 3,
  "mcpServers": {"other": {"type": "stdio", "command": "npx", "args": ["-y", "x"]}},
  "projects": {"/here": {"mcpServers": {"skills": {"command": "skillhouse", "args": ["mcp"]}}}},
  "skillOverrides": {"pdf": "off"}
}
"""
SETTINGS = """\
{
  "permissions": {"deny": ["Skill(pdf)", "Skill(notes *)"], "allow": ["Bash(git log:*)"]},
  "skillOverrides": {"pdf": "off", "notes": "name-only"},
  "skills": {"disabled": ["pdf"], "enabled": true},
  "enabledPlugins": {"a@b": true},
  "permission": {"skill": {"*": "ask"}},
  "mcpServers": {},
  "mcp": {}
}
"""
CODEX = """\
model = "gpt-5"

[[skills.config]]
path = "/somewhere/pdf/SKILL.md"
enabled = false

[mcp_servers.other]
command = "npx"
args = ["-y", "x"]

[projects."/somewhere"]
trust_level = "trusted"
"""

OWN = {
    "home/.config/skillhouse/config.toml": CONFIG,
    "home/.config/skillhouse/policy.yml": POLICY,
    "project/skillhouse.toml": PROJECT_CONFIG,
}
LOCKS = {"project/skills-lock.json": OTHER_LOCK % 0}
CLIENTS = {
    "home/.claude.json": CLAUDE,
    "home/.claude/settings.json": SETTINGS,
    "project/.claude/settings.local.json": SETTINGS,
    "home/.codex/config.toml": CODEX,
    "project/.codex/config.toml": CODEX,
    "home/.gemini/settings.json": SETTINGS,
    "home/.config/opencode/opencode.json": SETTINGS,
    "home/.copilot/settings.json": SETTINGS,
    "home/.config/zed/settings.json": SETTINGS,
    "project/.claude-plugin/marketplace.json": '{"name": "x", "plugins": [{"source": "./p"}]}',
}
MADE_LOCKS = ("home/.config/skillhouse/skills.lock", "project/skills.lock")
"""Locks of the template that commands wrote."""
GROUPS = ("config", "lock", "client", "state")


def make_template(place: Path, command: Callable[..., object]) -> None:
    """Fill a place by the commands that a person would give."""
    home, project = place / "home", place / "project"
    for relative, text in {**OWN, **LOCKS, **CLIENTS}.items():
        file = place / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    write_skill(home / ".agents/skills/local", body="Read [it](references/x.md).\n")
    write_skill(project / ".agents/skills/shared")
    write_skill(home / ".claude/skills/claudes")
    coded = write_seed(home / ".agents/skills/coded", SKILLS[7])
    (coded / "pyproject.toml").write_bytes(PYPROJECT.replace(b"{name}", b"coded"))
    for name in ("pdf", "notes"):
        write_seed(project / "src" / name, SKILLS[5])
        command("install", f"./src/{name}", "--yes", "--allow-unsigned")
    command("install", "./src/pdf", "--project", "--yes", "--allow-unsigned")
    (project / "src/pdf/references/guide.md").write_text("Another.\n")
    command("update", "--yes", "--allow-unsigned")
    command("pin", "notes", "--reason", "as it is")
    (project / "src/notes/references/guide.md").write_text("Another.\n")
    for given in (
        *(("trust", "--yes"), ("export", "local", "--to", "claude-code,opencode-cli")),
        *(("disable", "claudes"), ("new", "gone", "--description", "Is deleted.")),
        *(("delete", "gone", "--yes"), ("tokens", "new", "ci", "--scope", "read")),
        *(("call", "exec", "command=ls"), ("search", "read"), ("load", "local"), ("doctor",)),
        *(
            ("mcp", "install", client)
            for client in ("claude-code", "codex", "gemini-cli", "opencode")
        ),
        *(("mcp", "install", client, "--project") for client in ("claude-code", "opencode")),
        *(
            ("stop", "--reason", "tried"),
            ("keys", "list"),
            ("registry", "token", "new", "--scope", "publish:pdf"),
        ),
        *(("approvals", "pair", "phone"), ("rehearse", "work")),
    ):
        command(*given)
    shown = os.environ.get("PUBLISHER_TEST")
    os.environ["PUBLISHER_TEST"] = PASSWORD
    try:
        command("keys", "new", "root", "--for", "root", "--registry", REGISTRY, *LOCKED)
        command("keys", "new", "acme", "--for", "skills", *LOCKED)
        command("keys", "request", "acme", *LOCKED)
        command("keys", "issue", "acme.csr", "--by", "root", *LOCKED)
        command("keys", "trust", "root.crt")
    finally:
        if shown is None:
            del os.environ["PUBLISHER_TEST"]
    profiles = home / ".config/skillhouse/profiles"
    profiles.mkdir()
    (profiles / "mine.toml").write_text('title = "Mine"\nwalk = "git_root"\nsymlinks = "follow"\n')


def documents(place: Path, group: str) -> Sequence[Path]:
    """Return the files of a group in a place that was made."""
    if group == "config":
        profile = place / "home/.config/skillhouse/profiles/mine.toml"
        return [*(place / relative for relative in OWN), profile]
    if group == "lock":
        return [place / relative for relative in (*MADE_LOCKS, *MADE_LOCKS, *LOCKS)]
    if group == "client":
        made = [
            place / "project" / name for name in (".mcp.json", "opencode.jsonc", "opencode.json")
        ]
        return [file for file in (*(place / one for one in CLIENTS), *made) if file.is_file()]
    places = [place / "home/.local/state", place / "home/.cache", place / "home/.claude/skills"]
    return [file for one in places for file in sorted(one.rglob("*")) if file.is_file()]


def mutate(place: Path, group: str, seed: int) -> Path:
    """Change one or more documents of a group, and return the first."""
    chance = random.Random(seed)
    files = documents(place, group)
    # A configuration is refused at its first fault, which hides those of other files.
    count = 1 if group in ("config", "lock") else chance.choice((1, 2, 5))
    chosen = chance.sample(files, count)
    for number, file in enumerate(chosen):
        # The same seed gives the same bytes, whatever time, keys and ids the template has.
        data = file.read_bytes() if file.exists() else b""
        kind = {".json": "json", ".lock": "json", ".toml": "toml"}.get(file.suffix, "text")
        if group == "state" or not data:
            kind = "text"
        if chance.random() < 0.04:
            file.unlink(missing_ok=True)
            chance.choice(_INSTEAD)(file)
            continue
        file.write_bytes(Mutations(seed * 31 + number).mutated(data, kind))
    return chosen[0]


_INSTEAD: tuple[Callable[[Path], object], ...] = (
    Path.mkdir,
    os.mkfifo,
    lambda file: file.symlink_to(file.name),
    lambda file: file.symlink_to("/dev/zero"),
    lambda file: file.symlink_to("/nowhere/at/all"),
    lambda file: file.write_bytes(b""),
)

FIXED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "config": (
        *(
            ("list",),
            ("doctor",),
            ("config", "check"),
            ("config", "check", "--json"),
            ("policy", "lint"),
        ),
        *(
            ("config", "repositories"),
            ("policy", "explain", "exec", "rm -r build"),
            ("tools", "list"),
        ),
        *(
            ("profiles", "show", "mine"),
            ("catalog",),
            ("call", "read", "path=x"),
            ("mcp", "servers"),
        ),
        *(
            ("remote", "list"),
            ("call", "exec", "command=ls"),
            ("policy", "allow", "exec", "ls *", "--yes"),
        ),
        ("list", "--profile", "mine"),
    ),
    "lock": (
        *(
            ("list",),
            ("doctor",),
            ("info",),
            ("info", "pdf"),
            ("verify",),
            ("verify", "--json", "--full"),
        ),
        *(
            ("outdated",),
            ("outdated", "--json"),
            ("update", "--dry-run"),
            ("load", "pdf"),
            ("show", "pdf"),
        ),
        *(
            ("install", "--from-lock", "{file}", "--dry-run"),
            ("install", "--from-lock", "skills-lock.json", "--yes"),
        ),
        *(
            ("install", "--frozen", "--yes", "--allow-unsigned"),
            ("install", "--frozen", "--project", "--yes", "--allow-unsigned"),
        ),
        *(
            ("install", "./src/notes", "--project", "--yes", "--allow-unsigned"),
            ("pin", "pdf"),
            ("update", "--yes", "--allow-unsigned"),
        ),
        *(
            ("rollback", "pdf", "--yes", "--allow-unsigned"),
            ("verify", "pdf", "--restore"),
            ("uninstall", "pdf", "--force"),
            ("list", "--json"),
        ),
    ),
    "client": (
        *(
            ("doctor",),
            ("doctor", "--client", "all"),
            ("doctor", "--json"),
            ("mcp", "status"),
            ("mcp", "status", "--json"),
        ),
        *(
            ("mcp", "install", client)
            for client in ("claude-code", "codex", "gemini-cli", "opencode")
        ),
        *(
            ("mcp", "install", client, "--project")
            for client in ("claude-code", "codex", "gemini-cli", "opencode")
        ),
        *(
            ("mcp", "status", "--fix"),
            ("export", "--status"),
            ("list", "--client", "codex"),
            ("profiles", "compare", "claude-code", "codex"),
        ),
        *(
            ("mcp", "uninstall", client)
            for client in ("claude-code", "codex", "gemini-cli", "opencode")
        ),
    ),
    "state": (
        *(
            ("list",),
            ("doctor",),
            ("verify",),
            ("info",),
            ("audit", "list"),
            ("audit", "list", "--json"),
            ("audit", "verify"),
        ),
        *(
            ("audit", "stats"),
            ("audit", "export"),
            ("tokens", "list"),
            ("approvals", "list"),
            ("approvals", "devices"),
        ),
        *(
            ("export", "--status"),
            ("export", "--sync"),
            ("delete", "--list"),
            ("delete", "--undo"),
            ("stop", "--status"),
        ),
        *(
            ("keys", "list"),
            ("registry", "token", "list"),
            ("search", "read"),
            ("rollback", "pdf", "--yes", "--allow-unsigned"),
        ),
        *(
            ("reload",),
            ("trust", "--show"),
            ("load", "local"),
            ("call", "read", "path=skills.lock"),
            ("resume",),
        ),
    ),
}
"""What is called after each mutation of a group; of all other calls one in eight is."""


def copy_template(template: Path, place: Path) -> None:
    """Put the template in the place of what is there."""
    for name in ("home", "project"):
        shutil.rmtree(place / name, ignore_errors=True)
        shutil.copytree(template / name, place / name, symlinks=True)
    (place / "managed.toml").unlink(missing_ok=True)
