"""What it costs to read the manifests of many executable skills.

`./x bench manifests [--skills N] [--rounds N]` writes skills with three tools each, half in
JavaScript and half in Python, and measures `find_manifests` and `has_manifest` in fresh processes,
imports left out, page cache warm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from _measure import interleaved, markdown_table

WORK = """
import json, sys, time
from pathlib import Path
from typing import Any
from skillhouse.skill import find_manifests, has_manifest
root = Path(sys.argv[1])
before = time.perf_counter()
found = find_manifests(root)
read = time.perf_counter() - before
places = [result.directory for result in found]
before = time.perf_counter()
claims = sum(map(has_manifest, places))
seconds = time.perf_counter() - before
assert claims == sum(result.manifest is not None for result in found)
print(json.dumps({"read": read, "claims": seconds, "skills": claims}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the reading of manifests.")
    parser.add_argument("--skills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        script = place / "work.py"
        script.write_text(WORK)
        cases: dict[str, list[str | Path]] = {}
        for language, share in (("JavaScript", 0), ("Python", 1), ("both", 2)):
            make_skills(place / language, options.skills, share)
            cases[language] = [sys.executable, script, place / language]
        used = interleaved(cases, rounds=options.rounds)
        rows = [
            (language, f"{usage.said['skills']:,.0f}", f"{usage.said['read'] * 1_000:.1f}",
             f"{usage.said['claims'] * 1_000:.1f}", f"{usage.peak_mib:.0f}")
            for language, usage in used.items()
        ]  # fmt: skip
        header = ("skills in", "skills", "read, ms", "has_manifest, ms", "peak MiB")
        print(markdown_table(header, rows))


def make_skills(root: Path, count: int, share: int) -> None:
    """Write `count` skills: all in JavaScript, all in Python, or by turns."""
    for number in range(count):
        directory = root / f"skill-{number:05}"
        directory.mkdir(parents=True)
        tools: list[dict[str, Any]] = [
            {
                "name": f"tool_{place}",
                "description": "Reads one thing and says what it is. " * 3,
                "parameters": {
                    "type": "object",
                    "properties": {
                        f"field_{n}": {"type": "string", "description": "What to look for. " * 2}
                        for n in range(5)
                    },
                    "required": ["field_0"],
                },
                "security": {"level": "read"},
            }
            for place in range(3)
        ]
        about = {"name": directory.name, "version": "1.0.0", "description": "Reads things. " * 8}
        if share == 0 or (share == 2 and number % 2):
            own = {"requires": {"env": ["API_KEY"]}, "tools": tools}
            text = json.dumps({**about, "owliabot": own}, indent=2)
            (directory / "package.json").write_text(text)
            (directory / "index.js").write_text("export const tools = {};\n")
        else:
            (directory / "pyproject.toml").write_text(toml(about, tools))
            (directory / "main.py").write_text("tools = {}\n")


def toml(about: dict[str, str], tools: list[dict[str, Any]]) -> str:
    """Return a pyproject.toml; JSON's texts and lists are also TOML's."""
    lines = ["[project]", *(f"{key} = {json.dumps(text)}" for key, text in about.items())]
    lines += ["[tool.skillhouse]", 'requires = { env = ["API_KEY"] }']
    for tool in tools:
        lines.append("[[tool.skillhouse.tools]]")
        lines += [f"{key} = {json.dumps(tool[key])}" for key in ("name", "description")]
        lines.append('security = { level = "read" }')
        schema = tool["parameters"]
        lines += ["[tool.skillhouse.tools.parameters]", 'type = "object"']
        lines.append(f"required = {json.dumps(schema['required'])}")
        for name, field in schema["properties"].items():
            lines.append(f"[tool.skillhouse.tools.parameters.properties.{name}]")
            lines += [f"{key} = {json.dumps(text)}" for key, text in field.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
