"""Skills and manifests as people write them, before anything of them is mutated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSkill:
    """The files of a skill before anything is changed; `{name}` in a text is its directory's."""

    files: Mapping[str, bytes]


BODY = b"""# Work

Read [the guide](references/guide.md), [react](https://react.dev), and <https://x.invalid/a?b=c>.
[https://react.dev](https://react.dev) https://[::1]:8080/x http://127.0.0.1:9/ https://x.invalid:99/.
![picture](assets/a.png "title") [ref] and [up](../../other/SKILL.md) or `scripts/run.sh --all`.
Write to user@x.invalid, ssh://git@x.invalid/a.git, git@x.invalid:a/b.git, ftp://x.invalid.
Start with $ARGUMENTS, $1, ${CLAUDE_SKILL_DIR}/scripts/run.sh and !`git status`.

[ref]: <https://x.invalid/[odd]> 'title'

```bash
curl -fsSL https://x.invalid/install.sh | sh -s -- --yes
python3 scripts/run.py "$1" > out.txt; rm -rf "${TMPDIR:-/tmp}/x"
```

```python
import requests
requests.get(f"https://{host}:{port}/path", timeout=3)
```

    npx --yes some-package@latest

| a | b |
|---|---|
| https://a.invalid | `|` |

<!-- hidden words --> <details><script>alert(1)</script></details>
"""
FRONTMATTERS = tuple(
    """name: {name}
description: Does things. Use it for work.
%%
name: {name}
description: >-
  Does things
  over lines.
license: MIT
compatibility: Needs Python 3.11 and git
metadata: {version: '1.0', author: me}
allowed-tools: Read Write Bash(git:*)
%%
name: {name}
description: "Does: things"
allowed-tools: [Read, 'Bash(git log *)']
disable-model-invocation: true
user-invocable: false
argument-hint: '[issue]'
context: fork
paths: ['*.py', 'src/**']
%%
name: {name}
description: |
  Line.
  Other: line.
when_to_use: On work.
version: 1.2.0
hooks:
  PreToolUse:
    - {matcher: Bash, hooks: [{type: command, command: ./scripts/run.sh}]}
tags: [a, b]
%%
name: {name}
description: 发票整理 & café
metadata: {a: &x [1, 2], b: *x, c: !!str 3, date: 2026-01-01}
""".encode().split(b"%%\n")
)
PACKAGE = json.dumps(
    {
        "name": "{name}",
        "version": "0.1.0",
        "description": "Query balances",
        "author": {"name": "me"},
        "license": "MIT",
        "main": "index.js",
        "dependencies": {"viem": "^2.0.0"},
        "owliabot": {
            "requires": {"env": ["ALCHEMY_API_KEY"]},
            "tools": [
                {
                    "name": "get_balance",
                    "description": "Get the balance",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "address": {"type": "string", "pattern": "^0x", "maxLength": 42}
                        },
                        "required": ["address"],
                    },
                    "security": {"level": "read", "maxAmount": "1"},
                    "timeout": 30_000,
                }
            ],
        },
    },
    indent=2,
).encode()
PYPROJECT = b"""[project]
name = "{name}"
version = "0.1.0"
description = "Query balances"
authors = [{ name = "me", email = "me@x.invalid" }]
license = { text = "MIT" }
requires-python = ">=3.11"
dependencies = ["viem==2.0.0", "httpx>=0.27; python_version > '3.8'"]

[tool.skillhouse]
main = "main.py"
requires = { env = ["ALCHEMY_API_KEY"] }

[[tool.skillhouse.tools]]
name = "get_balance"
description = "Get the balance"
security = { level = "read" }
timeout = 30000

[tool.skillhouse.tools.parameters]
type = "object"
required = ["address"]
properties.address = { type = "string", description = "Wallet (0x...)" }
"""
SIGNATURE = json.dumps(
    {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"x509CertificateChain": {"certificates": [{"rawBytes": "AAAA"}]}},
        "dsseEnvelope": {
            "payload": "e30=",
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": "AAAA", "keyid": ""}],
        },
    }
).encode()


def _main(frontmatter: bytes, body: bytes = BODY) -> bytes:
    return b"---\n" + frontmatter + b"---\n" + body


SKILLS: tuple[SeedSkill, ...] = (
    *(SeedSkill(files={"SKILL.md": _main(each)}) for each in FRONTMATTERS),
    SeedSkill(
        files={
            "SKILL.md": _main(FRONTMATTERS[1]),
            "references/guide.md": b"# Guide\n\n" + BODY * 3,
            "references/api.json": b'{"openapi": "3.1.0", "url": "https://[port]/"}\n',
            "scripts/run.sh": b"#!/bin/sh\nset -eu\ncurl https://x.invalid | tee out\n",
            "scripts/run.py": b"#!/usr/bin/env python3\nimport os\nos.system('ls https://[')\n",
            "assets/a.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            "LICENSE.txt": b"MIT\n",
        }
    ),
    SeedSkill(
        files={
            "SKILL.md": _main(FRONTMATTERS[0]),
            "package.json": PACKAGE,
            "index.js": b"export const tools = {get_balance: async () => 1}\n",
        }
    ),
    SeedSkill(files={"package.json": PACKAGE, "index.js": b"module.exports = {}\n"}),
    SeedSkill(
        files={
            "SKILL.md": _main(FRONTMATTERS[0]),
            "pyproject.toml": PYPROJECT,
            "main.py": b"def get_balance(arguments, context):\n    return 1\n",
        }
    ),
    SeedSkill(files={"pyproject.toml": PYPROJECT, "main.py": b"tools = 1\n"}),
    SeedSkill(files={"SKILL.md": _main(FRONTMATTERS[2]), "skill.sig": SIGNATURE}),
)


MANIFESTS = SKILLS[6:10]
"""Those with a manifest."""


def write_seed(directory: Path, seed: SeedSkill) -> Path:
    """Write a skill as it is, and return its directory."""
    for path, data in seed.files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.replace(b"{name}", directory.name.encode()))
    return directory
