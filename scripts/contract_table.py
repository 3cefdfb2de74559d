"""What `scripts/contract.py` tries: commands, calls, members, keys and requests, as documented."""

from __future__ import annotations

COMMANDS = (
    ("--version",),
    ("--help",),
    (),
    ("nonsense",),
    ("list",),
    ("list", "--nonsense"),
    ("list", "--root", "no-such-directory"),
    ("show", "weather"),
    ("show", "no-such-skill"),
    ("search", "weather"),
    ("search", "zzzz"),
    ("load", "weather"),
    ("load", "no-such-skill"),
    ("invoke", "no-such-skill"),
    ("files", "weather"),
    ("new", "fresh"),
    ("new", "fresh", "--description", "Does things."),
    ("disable", "weather"),
    ("enable", "weather"),
    ("delete", "weather"),
    ("validate",),
    ("validate", "broken"),
    ("doctor", "--client", "all"),
    ("profiles", "list"),
    ("profiles", "show", "no-such-profile"),
    ("trust",),
    ("trust", "--yes"),
    ("trust", "--show"),
    ("rehearse", "weather"),
    ("tools", "list"),
    ("call", "read", "--args", '{"path": "a.txt"}'),
    ("call", "read", "--args", '{"path": "no-such-file"}'),
    ("call", "exec", "--args", '{"command": "touch", "params": ["b.txt"]}'),
    ("call", "no-such-tool", "--args", "{}"),
    ("call", "read", "--args", "{"),
    ("approvals", "list"),
    ("approvals", "approve", "no-such-approval"),
    ("audit", "list"),
    ("audit", "verify"),
    ("audit", "show", "no-such-record"),
    ("policy", "explain", "exec", "git", "status"),
    ("policy", "lint"),
    ("remote", "list"),
    ("resume",),
    ("export", "--help"),
)
"""Command lines whose exit codes are kept, each run after those before it."""

CALLED = (
    ("call", "skill", "--args", '{"name": "alpha"}'),
    ("call", "read", "--args", '{"path": "a.txt"}'),
    ("call", "write", "--args", '{"path": "b.txt", "content": "x"}'),
)
"""Calls that leave records and a question behind."""

LISTINGS = (
    ("list",),
    ("catalog", "--for", "weather"),
    ("show", "weather"),
    ("search", "weather"),
    ("load", "weather"),
    ("files", "weather"),
    ("validate",),
    ("doctor", "--client", "all"),
    ("trust", "--show"),
    ("trust", "--list"),
    ("profiles", "list"),
    ("profiles", "show", "default"),
    ("profiles", "compare"),
    ("rehearse", "weather"),
    ("tools", "list"),
    ("policy", "explain", "exec", "git", "status"),
    ("approvals", "list"),
    ("audit", "list"),
    ("audit", "stats"),
    ("remote", "list"),
)

FREE_KEYS = frozenset({".skills[].clients", ".catalogs", ".by_day"})
"""Paths of objects in JSON output whose keys are data and no words of the contract."""

MACHINES_LISTS = frozenset({".sandbox.reasons"})
"""Paths of lists that are empty or not as the machine and the user are."""

MEMBERS = {
    "AuditRecord": "",
    "Catalog": "text included omitted tokens",
    "CommandVerdict": "effect plan reasons",
    "Decision": "effect layer rule_index",
    "Diagnostic": "code severity message path line",
    "Hit": "id name score",
    "Layer": "name rules trusted match",
    "ParseResult": "skill diagnostics",
    "PathError": "code relative base",
    "Permission": "action resource",
    "Root": "",
    "Rule": "effect action pattern",
    "SearchIndex": "from_documents search",
    "Skill": "id name description scope location directory uri frontmatter",
    "SkillContent": "body resources directory",
    "SkillIndex": "skills shadowed diagnostics",
    "Skillhouse": (
        "index catalog tools call call_sync search load forecast conversation approvals close"
    ),
    "Tool": "name description schema",
    "ToolResult": "content data is_error status approval_id",
}
"""What docs/reference names of each class; other members may move."""

CALLS = (
    "confine(base, relative, mode=)",
    "decide(layers, permission, default=)",
    "digest(data)",
    "discover(roots, profile=, trusted=, cache=)",
    "judge_command(command, allow=, deny=, cwd=, writable=)",
    "load(skill)",
    "open_beneath(base, relative)",
    "parse(data, directory=, path=, policy=)",
    "render_catalog(index, style=, budget_tokens=)",
    "search(index, query, limit=)",
    "tree_digest(directory)",
    "validate(directory, strict=)",
    "validate_name(name, directory=)",
    "verify_log(path)",
    "wire_name(skill, tool)",
    "SearchIndex.from_documents(documents)",
    "Layer(name=, rules=, trusted=, match=)",
    "Permission(action=, resource=)",
    "Rule(effect=, action=, pattern=)",
    "Skillhouse(config, channel=, profile=, roots=, state_directory=)",
    "Skillhouse.catalog(agent=, budget_tokens=)",
    "Skillhouse.catalog(request=, style=)",
    "Skillhouse.tools(agent=)",
    "Skillhouse.search(query, limit=)",
    "Skillhouse.load(reference)",
    "Skillhouse.call(name, arguments, agent=, user=, channel=, approval_id=, session_id=)",
    "Skillhouse.call(name, arguments, client=, connection=)",
    "Skillhouse.call_sync(name, arguments, agent=, user=, channel=, approval_id=, session_id=)",
    "Skillhouse.forecast(name, arguments, agent=, user=, channel=)",
    "Skillhouse.conversation(agent=, user=, channel=, session_id=)",
)

RULE = '[[{}]]\neffect = "ask"\naction = "exec"\npattern = "rm *"\n'

EXECUTOR = """[skill_code]
executor = "http://127.0.0.1:8700/rpc"
executor_token = "env:TOKEN"
callback = "127.0.0.1:8701"
"""
EXECUTORS = """[skill_code]
executors = { gpu = ["https://127.0.0.1:8700/rpc"] }
executor_token = "env:TOKEN"
executor_certificate = "/run/tls/tls.crt"
executor_key = "/run/tls/tls.key"
callback_url = "https://127.0.0.1:8701/rpc"
"""
WEBHOOK = """[approvals]
webhook_url = "https://hooks.example.com/ask"
webhook_secret_env = "HOOK_SECRET"
"""
SERVER = '[[mcp_servers]]\nlabel = "a"\nurl = "https://a.example.com/mcp"\n'
REMOTE = '[[remotes]]\nurl = "https://a.example.com"\nkind = "opencode"\n'
REPOSITORY = '[[skills.repositories]]\nname = "a"\nurl = "https://a.example.com"\n'
BUNDLE = """[skills]
source = "s3://acme-skills/team"
source_publisher = "acme of skills.example.com"
"""
BUNDLE_KEYS = {
    "": "",
    "_publisher": "",
    "_seconds": "source_seconds = 60",
    "_allow_older": "source_allow_older = true",
    "_endpoint": 'source_endpoint = "https://s3.example.com"',
    "_region": 'source_region = "eu-central-1"',
    "_access_key": 'source_access_key = "env:S3_ID"\nsource_secret_key = "env:S3_SECRET"',
    "_secret_key": 'source_access_key = "env:S3_ID"\nsource_secret_key = "env:S3_SECRET"',
}
OAUTH = """[oauth]
issuer = "https://login.example.com"
resource = "https://skills.example.com/mcp"
users = ["alice"]
"""
OAUTH_KEYS = {
    "": "",
    ".issuer": "",
    ".resource": "",
    ".users": "",
    ".user_claim": 'user_claim = "email"',
    ".claims": 'claims = {groups = "tools"}',
    ".scope": 'scope = "skills"',
    ".agent": 'agent = "default"',
    ".jwks": 'jwks = "https://login.example.com/jwks"',
}
ALLOWED = '[[registry.sources]]\nsource = "official"\n'
COVERING = RULE.format("rules").replace("ask", "allow")

STATE = '[state]\nurl = "postgresql://skillhouse@127.0.0.1:1/skillhouse"\n'
SETTINGS = {
    "profile": 'profile = "default"',
    "cache_directory": 'cache_directory = "@STATE@"',
    "state_directory": 'state_directory = "@STATE@"',
    "audit_checkpoints": 'audit_checkpoints = "@STATE@"',
    "server_name": 'server_name = "core-a"',
    "sandbox": 'sandbox = "bubblewrap"',
    "sandbox.output_bytes": "[sandbox]\noutput_bytes = 10485760",
    "sandbox.memory": "[sandbox]\nmemory = 1073741824",
    "sandbox.mounts": '[sandbox]\nmounts = ["/opt/none"]',
    "rules.not_match": RULE.format("rules") + 'not_match = ["rmdir x"]',
    "rules.unbound": COVERING + "unbound = true",
    "rules.scripts": COVERING + "scripts = true",
    "approvals.webhook_url": WEBHOOK,
    "approvals.webhook_secret_env": WEBHOOK,
    "approvals.page_url": '[approvals]\npage_url = "https://me.example.com"',
    "write_gate.allow_paths": '[write_gate]\nallow_paths = ["@STATE@"]',
    "skill_code.python_packages": '[skill_code]\npython_packages = ["/opt/none"]',
    "skill_code.node_packages": '[skill_code]\nnode_packages = ["/opt/none"]',
    "skill_code.in_process": f'[skill_code]\nin_process = ["skilltree1:{"0" * 64}"]',
    "skill_code.executor": EXECUTOR,
    "skill_code.executor_token": EXECUTOR,
    "skill_code.callback": EXECUTOR,
    "skill_code.executors": EXECUTORS,
    "skill_code.executor_certificate": EXECUTORS,
    "skill_code.executor_key": EXECUTORS,
    "skill_code.callback_url": EXECUTORS,
    "search.weights": '[search]\nweights = "@STATE@"',
    "search.database": '[search]\ndatabase = "env:INDEX"',
    "state.url": STATE,
    "state.listen_url": STATE + 'listen_url = "postgresql://skillhouse@127.0.0.1:1/skillhouse"',
    "registry.min_release_age": '[registry]\nmin_release_age = "24h"',
    **{f"oauth{name}": OAUTH + more for name, more in OAUTH_KEYS.items()},
    "registry.sigstore_roots": '[registry]\nsigstore_roots = ["public-good"]',
    "registry.attestation_issuers": '[registry]\nattestation_issuers = ["https://gitlab.com"]',
    "registry.sources": ALLOWED,
    "registry.sources.source": ALLOWED,
    "registry.sources.publishers": ALLOWED + 'publishers = ["acme of skills.example.com"]',
    "registry.sources.require_signature": ALLOWED + "require_signature = true",
    "registry.sources.min_release_age": ALLOWED + 'min_release_age = "7d"',
    "mcp_servers.label": SERVER,
    "mcp_servers.url": SERVER,
    "mcp_servers.environment": '[[mcp_servers]]\nlabel = "a"\ncommand = ["/opt/none"]\n'
    'environment = {A = "b"}',
    "mcp_servers.allow_private": SERVER + "allow_private = true",
    "agents.NAME.rules": RULE.format("agents.reviewer.rules"),
    "agents.NAME.skill": '[agents.reviewer]\nskill = {"internal-*" = "deny"}',
    "agents.NAME.tools": '[agents.reviewer]\ntools = ["skills", "read"]',
    "tools": 'tools = ["skills", "read"]',
    "net.private": '[net]\nprivate = ["127.0.0.1/32"]',
    "net.searxng_url": '[net]\nsearxng_url = "https://search.example.com"',
    "remotes.url": REMOTE,
    "remotes.kind": REMOTE,
    "signer.password": '[signer]\npassword = "terminal"',
    **{f"skills.source{name}": BUNDLE + more for name, more in BUNDLE_KEYS.items()},
    "skills.repositories.name": REPOSITORY,
    "skills.repositories.url": REPOSITORY,
    "skills.repositories.trusted": REPOSITORY + "trusted = true",
    "skills.repositories.token": REPOSITORY + 'token = "env:SKILLS_TOKEN"',
    "skills.repositories.require_signature": REPOSITORY + "require_signature = true",
    "skills.repositories.refresh": REPOSITORY + 'refresh = "24h"',
    "registry.timestamp": '[registry]\ntimestamp = "https://timestamps.example.com/tsr"',
}
"""A document for each key whose value has a form of its own; @STATE@ is replaced by a directory
that exists. `scripts/config_reference.py` makes those of the other keys from their types."""

VARIABLES = {
    "SKILLHOUSE_PROFILE": "default",
    "SKILLHOUSE_SKILLS_DIR": "more",
    "SKILLHOUSE_CATALOG_BUDGET_TOKENS": "100",
    "SKILLHOUSE_YAML_FAST_PATH": "false",
    "SKILLHOUSE_CACHE": "false",
    "SKILLHOUSE_CACHE_DIRECTORY": "@STATE@",
    "SKILLHOUSE_STATE_DIRECTORY": "@STATE@",
    "SKILLHOUSE_CHAT_MODEL": "test",
    "SKILLHOUSE_CHAT_BASE_URL": "http://127.0.0.1:1",
    "SKILLHOUSE_STATE_URL": "postgresql://skillhouse@127.0.0.1:1/skillhouse",
    "SKILLHOUSE_STATE_LISTEN_URL": "postgresql://skillhouse@127.0.0.1:1/skillhouse",
}

PROJECT_SETTINGS = {
    "rules": RULE.format("rules"),
    "catalog_budget_tokens": "catalog_budget_tokens = 10",
    "profile": 'profile = "default"',
    "net": '[net]\nhosts = ["docs.python.org"]',
}
"""What a trusted project's file may and may not set."""

REQUESTS = (
    ("GET", "/"),
    ("GET", "/skills/weather"),
    ("GET", "/skills/no-such-skill"),
    ("GET", "/approvals"),
    ("GET", "/approvals/no-such-approval"),
    ("GET", "/approvals/stop"),
    ("GET", "/api/status"),
    ("GET", "/api/skills"),
    ("GET", "/api/skills/weather"),
    ("GET", "/api/skills/no-such-skill"),
    ("GET", "/api/approvals"),
    ("GET", "/style.css"),
    ("GET", "/icon.svg"),
    ("GET", "/no-such-page"),
    ("POST", "/api/status"),
)
"""Requests whose status and content type are kept, with the token and without."""
