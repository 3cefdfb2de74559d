"""A tree of skills that asks clients one question each, and what real clients answered.

`measured.json` holds the lists that the programs themselves gave their model. To measure again:

    python -m tests.profiles.probes build DIR
    # run the client in DIR/project/sub with HOME=DIR/home, against a fake model that logs requests
    python -m tests.profiles.probes read CLIENT DIR LOG > list.json

Every skill's description holds its own mark, so that the list is read from the request itself.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START = "project/sub"
LEVELS = {
    "start": START,
    "top": "project",
    "above": ".",
    "below": f"{START}/package",
}
PLACES = (
    ".agents/skills .claude/skills .codex/skills .gemini/skills .opencode/skills "
    ".opencode/skill .github/skills .cursor/skills skills"
).split()
HOME_PLACES = (
    ".agents/skills .claude/skills .codex/skills .gemini/skills .config/opencode/skills "
    ".config/opencode/skill .opencode/skills .copilot/skills"
).split()
_MARK = re.compile(r"MARK<([^>]+)>")


def build(base: Path) -> None:
    """Write the tree below `base`: a home, and a project with a start directory in it."""
    (base / "project/.git").mkdir(parents=True)
    (base / "project/.git/HEAD").write_text("ref: refs/heads/main\n")
    for below in ("objects", "refs"):
        (base / "project/.git" / below).mkdir()
    for level, place in LEVELS.items():
        for directory in PLACES:
            name = f"at-{level}-{directory.strip('.').replace('/', '-').replace('.', '')}"
            _skill(base / place / directory / name, name)
    for directory in HOME_PLACES:
        name = f"at-home-{directory.strip('.').replace('/', '-').replace('.', '')}"
        _skill(base / "home" / directory / name, name)
    for place in (f"{START}/.agents/skills", f"{START}/.gemini/skills", f"{START}/.claude/skills"):
        _skill(base / place / "twice", "twice")
    for place in ("home/.agents/skills", "home/.claude/skills", "home/.gemini/skills"):
        _skill(base / place / "twice", "twice")
    _ask(base, base / START / ".agents/skills", "a")
    _ask(base, base / START / ".claude/skills", "c")


def _skill(
    directory: Path, name: str | None, description: str = "", *, more: str = "", head: str = "---\n"
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "SKILL.md"
    mark = f"MARK<{file.relative_to(_base(file)).as_posix()}>"
    lines = [head]
    if name is not None:
        lines.append(f"name: {name}\n")
    lines.append(f"description: {description.replace('MARK', mark) or mark}\n")
    file.write_text("".join([*lines, more, "---\nBody.\n"]), encoding="utf-8")
    return file


def _base(file: Path) -> Path:
    """Return the directory that holds `home` and `project`."""
    for place in file.parents:
        if (place / "project/.git").is_dir():
            return place
    raise AssertionError(file)


def _ask(base: Path, root: Path, key: str) -> None:
    """Write one skill for each question into a directory of skills."""

    def put(name: str, *parts: str, **values: str) -> Path:
        return _skill(root / f"{key}-{name}", f"{key}-{name}", *parts, **values)

    put("plain")
    _skill(root / f"{key}-group/{key}-inner", f"{key}-inner")
    _skill(root / f"{key}-group/x/{key}-deeper", f"{key}-deeper")
    deep = root / f"{key}-deep/1/2/3"
    _skill(deep / f"4/{key}-six", f"{key}-six")
    _skill(deep / f"4/5/{key}-seven", f"{key}-seven")
    put("outer")
    _skill(root / f"{key}-outer/{key}-child", f"{key}-child")
    _skill(root / f".{key}-hidden", f"{key}-hidden")
    _skill(root / f"node_modules/{key}-module", f"{key}-module")
    put("lower").rename(root / f"{key}-lower/skill.md")
    _skill(root / f"{key}-no-name", None)
    _skill(root / f"{key}-directory", f"{key}-field")
    _skill(root / f"{key}-upper", f"{key}-UPPER_Name")
    _skill(root / f"{key}-signs", f'"{key}-a:b?c"')
    _skill(root / f"{key}-long-name", f"{key}-{'n' * 70}")
    put("colon", "Use when: MARK")
    put("one-line", "> MARK")
    put("twice-key", "first", more=f"description: MARK<{_at(root)}/{key}-twice-key/SKILL.md>\n")
    put("number", "12345")
    put("blanks", head="---  \n")
    put("blank-line", head="\n---\n")
    put("manual", more="disable-model-invocation: true\n")
    put("odd-fields", more="foo: bar\nmetadata:\n  a: {b: c}\nallowed-tools: [Read, Bash]\n")
    file = put("mark-first")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    file = put("crlf")
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    file = put("utf-16")
    file.write_bytes(file.read_text().encode("utf-16"))
    for name, text in (
        ("no-frontmatter", f"# Title MARK<{_at(root)}/{key}-no-frontmatter/SKILL.md>\n"),
        ("no-description", f"---\nname: {key}-no-description\n---\nBody.\n"),
        ("empty-description", f'---\nname: {key}-empty-description\ndescription: ""\n---\nBody.\n'),
    ):
        put(name).write_text(text)
    file = put("unclosed")
    file.write_text(file.read_text().replace("---\nBody.\n", ""))
    outside = base / "outside"
    _skill(outside / f"{key}-linked", f"{key}-linked")
    (root / f"{key}-linked").symlink_to(outside / f"{key}-linked")
    file = _skill(outside / f"{key}-linked-file", f"{key}-linked-file")
    (root / f"{key}-linked-file").mkdir()
    (root / f"{key}-linked-file/SKILL.md").symlink_to(file)
    _skill(root, f"{key}-in-the-root")


def _at(root: Path) -> str:
    return root.relative_to(_base(root)).as_posix()


def read_list(client: str, base: Path, log: str) -> list[list[str]]:
    """Return (name, path below `base`) of each skill in the first request that lists any.

    Claude Code lists no paths; there the mark in the description tells the file, where the
    description was not dropped, and "" stands for a path that is not known.
    """
    request = next(line for line in log.splitlines() if "MARK<" in line)
    text = "\n".join(part for part in _texts(json.loads(request)) if "MARK<" in part)
    if client == "claude-code":
        text = text.split("for use with the Skill tool:\n\n", 1)[1].split("</system-reminder>")[0]
        found = [
            [name, mark[1] if (mark := _MARK.search(rest)) else ""]
            for name, rest in re.findall(r"^- ([^:\n]+)(.*)$", text, re.MULTILINE)
        ]
    elif client == "codex":
        roots = dict(re.findall(r"^- `(r\d+)` = `([^`]+)`$", text, re.MULTILINE))
        text = text.split("### Available skills\n", 1)[1].split("### How to use", 1)[0]
        lines = re.findall(r"^- (.+?): .*\(file: ([^)]+)\)$", text, re.MULTILINE)
        found = [[name, re.sub(r"^r\d+", lambda m: roots[m[0]], path)] for name, path in lines]
    else:
        pattern = r"<name>([^<]*)</name>.*?<location>(?:file://)?([^<]*)</location>"
        found = [[name, path] for name, path in re.findall(pattern, text, re.DOTALL)]
    prefix = f"{base}/"
    return sorted([name, path.removeprefix(prefix)] for name, path in found)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]))
    else:
        listed = read_list(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]).read_text())
        print(json.dumps(listed, ensure_ascii=False, indent=1))
