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
"""What DESIGN.md's contract and docs/reference name of each class; other members may move."""

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

SETTINGS = {
    "profile": 'profile = "default"',
    "roots": 'roots = ["more"]',
    "catalog_budget_tokens": "catalog_budget_tokens = 100",
    "yaml_fast_path": "yaml_fast_path = false",
    "cache": "cache = false",
    "cache_directory": 'cache_directory = "@STATE@"',
    "state_directory": 'state_directory = "@STATE@"',
    "exec_environment": 'exec_environment = ["LANG"]',
    "sandbox": 'sandbox = "bubblewrap"',
    "assignees": 'assignees = ["mika"]',
    "audit_checkpoints": 'audit_checkpoints = "@STATE@"',
    "rules.effect": RULE.format("rules").replace("ask", "deny"),
    "rules.action": RULE.format("rules"),
    "rules.pattern": RULE.format("rules"),
    "rules.reason": RULE.format("rules") + 'reason = "use the bin"',
    "rules.match": RULE.format("rules") + 'match = ["rm -r build"]',
    "rules.not_match": RULE.format("rules") + 'not_match = ["rmdir x"]',
    "approvals.wait_seconds": "[approvals]\nwait_seconds = 1.5",
    "approvals.expires_seconds": "[approvals]\nexpires_seconds = 60",
    "approvals.unattended": '[approvals]\nunattended = "deny"',
    "approvals.reject_all": "[approvals]\nreject_all = true",
    "approvals.grant_days": "[approvals]\ngrant_days = 3",
    "approvals.open_max": "[approvals]\nopen_max = 20",
    "approvals.user_open_max": "[approvals]\nuser_open_max = 2",
    "approvals.user_rate": "[approvals]\nuser_rate = 2",
    "approvals.webhook_url": '[approvals]\nwebhook_url = "https://hooks.example.com/ask"\n'
    'webhook_secret_env = "HOOK_SECRET"',
    "approvals.webhook_secret_env": '[approvals]\nwebhook_url = "https://hooks.example.com/ask"\n'
    'webhook_secret_env = "HOOK_SECRET"',
    "approvals.page_url": '[approvals]\npage_url = "https://me.example.com"',
    "approvals.elicitation": "[approvals]\nelicitation = false",
    "write_gate.enabled": "[write_gate]\nenabled = true",
    "write_gate.allow_users": '[write_gate]\nallow_users = ["local"]',
    "write_gate.confirmation": "[write_gate]\nconfirmation = false",
    "write_gate.allow_paths": '[write_gate]\nallow_paths = ["@STATE@"]',
    "extensions.invocation": "[extensions]\ninvocation = true",
    "extensions.substitution": "[extensions]\nsubstitution = true",
    "extensions.when_to_use": "[extensions]\nwhen_to_use = true",
    "extensions.paths": "[extensions]\npaths = true",
    "extensions.commands": "[extensions]\ncommands = true",
    "skill_code.enabled": "[skill_code]\nenabled = true",
    "skill_code.unhashed": "[skill_code]\nunhashed = true",
    "skill_code.builds": "[skill_code]\nbuilds = true",
    "skill_code.frames_for_models": "[skill_code]\nframes_for_models = true",
    "skill_code.python_packages": '[skill_code]\npython_packages = ["/opt/none"]',
    "skill_code.node_packages": '[skill_code]\nnode_packages = ["/opt/none"]',
    "skill_code.in_process": f'[skill_code]\nin_process = ["skilltree1:{"0" * 64}"]',
    "skill_code.executor": '[skill_code]\nexecutor = "http://127.0.0.1:8700/rpc"\n'
    'executor_token = "env:TOKEN"\ncallback = "127.0.0.1:8701"',
    "skill_code.executor_token": '[skill_code]\nexecutor = "http://127.0.0.1:8700/rpc"\n'
    'executor_token = "env:TOKEN"\ncallback = "127.0.0.1:8701"',
    "skill_code.callback": '[skill_code]\nexecutor = "http://127.0.0.1:8700/rpc"\n'
    'executor_token = "env:TOKEN"\ncallback = "127.0.0.1:8701"',
    "skill_code.env": '[skill_code.env]\ncrypto-balance = ["ALCHEMY_API_KEY"]',
    "skill_code.levels": '[skill_code.levels]\ncrypto-price = "write"',
    "memory.enabled": "[memory]\nenabled = true",
    "hooks.hints": "[hooks]\nhints = false",
    "protection.asked": '[protection]\nasked = [".github/workflows"]',
    "mcp_servers.label": '[[mcp_servers]]\nlabel = "a"\nurl = "https://a.example.com/mcp"',
    "mcp_servers.url": '[[mcp_servers]]\nlabel = "a"\nurl = "https://a.example.com/mcp"',
    "mcp_servers.command": '[[mcp_servers]]\nlabel = "a"\ncommand = ["/opt/none"]',
    "mcp_servers.environment": '[[mcp_servers]]\nlabel = "a"\ncommand = ["/opt/none"]\n'
    'environment = {A = "b"}',
    "mcp_servers.allow_private": '[[mcp_servers]]\nlabel = "a"\nurl = "https://a.example.com/m"\n'
    "allow_private = true",
    "agents.NAME.rules": RULE.format("agents.reviewer.rules"),
    "agents.NAME.skill": '[agents.reviewer]\nskill = {"internal-*" = "deny"}',
    "agents.NAME.preload": '[agents.reviewer]\npreload = ["weather"]',
    "net.hosts": '[net]\nhosts = ["docs.python.org", "GET,CONNECT pkg.example.org"]',
    "net.private": '[net]\nprivate = ["127.0.0.1/32"]',
    "net.brave_key_env": '[net]\nbrave_key_env = "BRAVE_KEY"',
    "net.searxng_url": '[net]\nsearxng_url = "https://search.example.com"',
    "net.secrets.name": '[[net.secrets]]\nname = "API"\nenv = "MY_API_KEY"\nhosts = ["a.example"]',
    "net.secrets.env": '[[net.secrets]]\nname = "API"\nenv = "MY_API_KEY"\nhosts = ["a.example"]',
    "net.secrets.hosts": '[[net.secrets]]\nname = "API"\nenv = "MY_API_KEY"\nhosts = ["a.example"]',
    "remotes.url": '[[remotes]]\nurl = "https://a.example.com"\nkind = "well-known"',
    "remotes.kind": '[[remotes]]\nurl = "https://a.example.com"\nkind = "opencode"',
    "signer.password": '[signer]\npassword = "terminal"',
}
"""A document for each key; @STATE@ is replaced by a directory that exists."""

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
