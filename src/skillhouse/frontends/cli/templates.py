"""The skills that `new --template` makes: complete ones that run, to change into one's own.

Each has a SKILL.md that says when to use it; the tools' own descriptions say how.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

_USE = """# {name}

## When to use

Say which requests this skill is for.

"""

_TOOL_STEPS = """## Steps

1. Call the tool `{name}__greet` with the person's name.
2. Give its answer in your own words.
"""

_SCRIPT_STEPS = """## Steps

1. Run `scripts/count.py` with the text as its argument.
2. It prints JSON with the number of words; give that number.
"""

_PYTHON = '''"""The tools of this skill. `context` is the only way to network, files and keys."""


async def greet(params, context):
    context.log("greeting", params["name"])
    return {"greeting": f"Hello, {params['name']}."}


tools = {"greet": greet}
'''

_JAVASCRIPT = """'use strict';

// The tools of this skill. `context` is the only way to network, files and keys.
async function greet(params, context) {
  context.log('greeting', params.name);
  return { greeting: `Hello, ${params.name}.` };
}

module.exports = { tools: { greet } };
"""

_SCRIPT = '''"""Counts the words of a text: `count.py TEXT` prints JSON."""

import json
import sys

text = " ".join(sys.argv[1:])
print(json.dumps({"words": len(text.split())}))
'''

_PARAMETERS = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "description": "Whom to greet"}},
}


def _toml_text(text: str) -> str:
    # A JSON text is a TOML basic string, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _python(name: str, description: str) -> dict[str, str]:
    manifest = f"""[project]
name = {_toml_text(name)}
version = "0.1.0"
description = {_toml_text(description)}

[[tool.skillhouse.tools]]
name = "greet"
description = "Greets a person by name"
security = {{ level = "read" }}

[tool.skillhouse.tools.parameters]
type = "object"
required = ["name"]
properties.name = {{ type = "string", description = "Whom to greet" }}
"""
    return {"pyproject.toml": manifest, "main.py": _PYTHON}


def _javascript(name: str, description: str) -> dict[str, str]:
    tool = {
        "name": "greet",
        "description": "Greets a person by name",
        "parameters": _PARAMETERS,
        "security": {"level": "read"},
    }
    manifest = {
        "name": name,
        "version": "0.1.0",
        "description": description,
        "main": "index.js",
        "owliabot": {"tools": [tool]},
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    return {"package.json": text, "index.js": _JAVASCRIPT}


def _script(name: str, description: str) -> dict[str, str]:
    del name, description
    return {"scripts/count.py": _SCRIPT}


_FILES: Mapping[str, Callable[[str, str], dict[str, str]]] = {
    "python": _python,
    "javascript": _javascript,
    "script": _script,
}
TEMPLATES = tuple(_FILES)


def template_files(template: str, name: str, description: str) -> dict[str, str]:
    """Return the files beside the SKILL.md, by their paths in the skill."""
    return _FILES[template](name, description)


def template_body(template: str, name: str) -> str:
    steps = _SCRIPT_STEPS if template == "script" else _TOOL_STEPS
    return (_USE + steps).format(name=name)


def template_hint(template: str, name: str, root: str) -> str:
    """Return the line that tries the new skill."""
    if template == "script":
        return f"try it: python3 {root}/{name}/scripts/count.py three short words"
    return f"""try it: skillhouse call {name}:greet --args '{{"name": "Ann"}}'"""
