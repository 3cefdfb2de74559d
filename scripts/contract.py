"""Keeps tests/data/contract.json, the list of what the public contract of this tree has.

`./x docs` writes it: what is new (a verb, an option, a word to choose, a key, a route) is added,
and is no break. What the list has and the tree no longer, or has changed, is one; so is a new
argument or option of an old verb that must be given. `./x py -m scripts.contract [SECTION...]`
prints the breaks, and ends with 1 if there is one; `--write` adds what is new, in some sections.

Everything is read from the running program in a throw-away home: the command line, public names,
MCP, HTTP and the files on disk (scripts/contract_probes.py, scripts/contract_table.py).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import contract_table as table
from scripts.contract_probes import PROBES, without_texts
from scripts.contract_schemas import promises

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "data" / "contract.json"
PATIENCE_SECONDS = 120
FIRST_AFTER_HANDSHAKE = 2

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "contract", "version": "1"},
}


class BrokenContractError(Exception):
    """The tree lacks something of the list; `text` is the list with what is new."""

    def __init__(self, breaks: Sequence[str], text: str) -> None:
        super().__init__("\n".join((*breaks, BREAK)))
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A home and a project that are thrown away."""

    home: Path
    project: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every process here."""
        sources = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
        # Not the PATH of whoever runs it: what `doctor` says of that is in its answer.
        path = "/usr/local/bin:/usr/bin:/bin"
        return {"HOME": str(self.home), "PATH": path, "PYTHONPATH": sources}

    def python(self, *arguments: str | Path) -> str:
        """Run Python here and return what it printed."""
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            sys.exit(f"exit code {done.returncode} of {arguments}:\n{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def new_place() -> Iterator[Place]:
    """Make a place with one skill of the project, one that is broken, and a file."""
    with tempfile.TemporaryDirectory() as base:
        place = Place(home=Path(base, "home"), project=Path(base, "project"))
        place.home.mkdir(mode=0o700)
        alpha = place.project / ".agents/skills/alpha"
        for directory in (alpha, place.project / ".git", place.project / "broken"):
            directory.mkdir(parents=True)
        text = "---\nname: alpha\ndescription: Does alpha.\n---\nBody.\n"
        (alpha / "SKILL.md").write_text(text, encoding="utf-8")
        (place.project / "broken/SKILL.md").write_text("no frontmatter", encoding="utf-8")
        (place.project / "a.txt").write_text("hello\n", encoding="utf-8")
        yield place


def probed(name: str) -> Any:
    """Return what a probe printed in a place of its own."""
    with new_place() as place:
        return json.loads(place.python("-m", "scripts.contract_probes", name))


def mcp() -> dict[str, Any]:
    """Return what `skillhouse mcp` says of itself and offers, without texts for a model."""
    with new_place() as place:
        process = subprocess.Popen(
            [sys.executable, "-m", "skillhouse", "mcp"],
            cwd=place.project,
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                hello = _asked(process, 1, "initialize", HELLO)
                offered = {"initialize": without_texts(hello)}
                for number, kind in enumerate(("tools", "prompts", "resources"), start=2):
                    answer = _asked(process, number, f"{kind}/list", {})
                    offered[kind] = {each["name"]: _offer(each) for each in answer[kind]}
            finally:
                process.kill()
    del offered["initialize"]["instructions"]
    return offered


def _asked(
    process: subprocess.Popen[str], number: int, method: str, params: Mapping[str, Any]
) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    if number == FIRST_AFTER_HANDSHAKE:
        process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    while line := process.stdout.readline():
        message = json.loads(line)
        if message.get("id") == number:
            return message["result"]
    raise SystemExit(f"no answer to {method}")


def _offer(described: Mapping[str, Any]) -> Any:
    kept = {key: value for key, value in described.items() if key not in ("description", "title")}
    kept.pop("size", None)
    return without_texts(kept)


def http() -> dict[str, Any]:
    """Return the routes of `skillhouse up`, what it answers with the token and without, and what
    its OpenAPI document promises of answers."""
    found: dict[str, Any] = {"routes": probed("routes"), "answers": {}}
    with new_place() as place:
        process = subprocess.Popen(
            [sys.executable, "-m", "skillhouse", "up", "--port", "0"],
            cwd=place.project,
            env=place.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                address, token = re.findall(r"(http://\S+)/\?token=(\S+)", line)[0]
                for method, path in table.REQUESTS:
                    found["answers"][f"{method} {path}"] = {
                        "with token": _answer(method, address + path, token),
                        "without": _answer(method, address + path, ""),
                    }
                document = urllib.request.Request(address + "/api/v1/openapi.json")
                document.add_header("authorization", f"Bearer {token}")
                with urllib.request.urlopen(document, timeout=PATIENCE_SECONDS) as answer:
                    found["promises"] = promises(json.load(answer))
            finally:
                process.kill()
    return found


def _answer(method: str, url: str, token: str) -> str:
    request = urllib.request.Request(url, method=method)
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return f"{answer.status} {answer.headers['content-type']}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {error.headers['content-type']}"


def state() -> dict[str, Any]:
    """Return the files that a house leaves, the tables of its databases, and the log's records."""
    with new_place() as place:
        for line in (
            ("trust", "--yes"),
            ("disable", "weather"),
            ("search", "alpha"),
            *table.CALLED,
        ):
            with contextlib.suppress(SystemExit):  # What waits for an answer is a refusal.
                place.python("-m", "skillhouse", *line)
        place.python("-m", "skillhouse", "stop")
        files = sorted(path for path in place.home.rglob("*") if path.is_file())
        databases = [path for path in files if path.suffix == ".sqlite3"]
        kept = {_named(path, place.home): f"{path.stat().st_mode & 0o777:o}" for path in files}
        [log] = [path for path in files if path.name == "audit.jsonl"]
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        # What is thrown away when it is another version is no format that anybody relies on.
        schemas = {_named(p, place.home): _schema(p) for p in databases if ".cache" not in p.parts}
    return {
        "files": kept,
        "schemas": schemas,
        "log version": sorted({record["version"] for record in records}),
        "log records": _record_keys(records),
    }


def _named(path: Path, home: Path) -> str:
    """Return a file's place with its ids and digests replaced; side files of SQLite are none."""
    return re.sub(r"(?<![a-z])[0-9a-f]{12,}", "ID", path.relative_to(home).as_posix())


def _schema(path: Path) -> dict[str, Any]:
    """Return the mark, tables and indexes of a database, whatever steps led there.

    Not its version, which counts steps: those before the first release may become one.
    """
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [[mark]] = connection.execute("PRAGMA application_id")
        listed = "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        found: dict[str, Any] = {"mark": mark}
        for kind, name in connection.execute(listed).fetchall():
            pragma = "table_info" if kind == "table" else "index_info"
            rows = connection.execute(f'PRAGMA {pragma}("{name}")').fetchall()
            if kind == "table":
                columns = {row[1]: _column(*row[2:]) for row in rows}
                found[f"table {name}"] = columns
            else:
                found[f"{kind} {name}"] = [row[2] for row in rows]
    return found


def _column(kind: str, not_null: int, default: object, key: int) -> str:
    texts = (kind, "not null" * bool(not_null), f"default {default}" * (default is not None))
    return " ".join(filter(None, (*texts, f"key {key}" * bool(key))))


def _record_keys(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the keys of each kind of record, and those below the two that are objects."""
    found: dict[str, Any] = {}
    for record in records:
        keys = found.setdefault(record["kind"], {})
        keys.update(dict.fromkeys(record, "yes"))
        for decided in record["permissions"]:
            keys.update(dict.fromkeys([f"permissions[].{key}" for key in decided], "yes"))
        keys.update({f"confirmation.{key}": "yes" for key in record.get("confirmation") or ()})
    return found


SECTIONS: dict[str, Callable[[], Any]] = {
    **{name: functools.partial(probed, name) for name in PROBES},
    "mcp": mcp,
    "http": http,
    "state": state,
}
"""What the list holds, and how each part is read from the running program."""


def collected(section: str) -> Any:
    """Return a section as this tree has it, in the form in which the list keeps it."""
    return json.loads(json.dumps(SECTIONS[section]()))


SETS = {"enum", "log version"}
"""Keys of lists whose items are words to choose from: another one is new."""
UNORDERED = {"required"}
"""Keys of lists that are one value, in whatever order: an item more asks for more."""
BREAK = (
    "Something that others may rely on is gone or another one. Keep the old beside the new; or, if "
    "it has to go, write a decision record, delete these entries from tests/data/contract.json, "
    "and run ./x docs."
)


def flat(value: object, before: str = "") -> dict[str, object]:
    """Return the leaves of a JSON value by their JSON Pointers (RFC 6901).

    A list is a leaf, since its order counts. The items of a set of words, and of a list of objects
    with names, are found by their names.

    >>> flat({"a/b": {"c": 1, "d": [2]}, "enum": ["x"]})
    {'/a~1b/c': 1, '/a~1b/d': [2], '/enum/x': 'yes'}
    >>> flat({"arguments": [{"name": "x", "required": False}], "required": ["b", "a"]})
    {'/arguments/x/name': 'x', '/arguments/x/required': False, '/required': ['a', 'b']}
    """
    key = before.rpartition("/")[2]
    if isinstance(value, list) and value:
        if key in SETS:
            value = {str(item): "yes" for item in value}
        elif key in UNORDERED:
            value = sorted(value)
        elif all(isinstance(item, dict) and "name" in item for item in value):
            value = {item["name"]: item for item in value}
    if isinstance(value, dict) and value:
        escaped = {key: key.replace("~", "~0").replace("/", "~1") for key in value}
        items = [(f"{before}/{escaped[key]}", item) for key, item in value.items()]
        return {path: leaf for at, item in items for path, leaf in flat(item, at).items()}
    return {before: value}


def broken(listed: object, now: object) -> list[str]:
    """Return a line for each leaf of the list that is gone or another now, and for new demands."""
    old, new = flat(listed), flat(now)
    lost = [
        f"{path}: listed {value!r}, now {new[path]!r}" if path in new else f"{path}: gone"
        for path, value in old.items()
        # What was empty may have got something.
        if (path not in new or new[path] != value) and not (value == {} and _has_below(new, path))
    ]
    demands = [
        f"{path}: new, and must be given: {new[path]}"
        for path in new
        if path not in old and _is_demanded(path, new[path]) and _has_below(old, _owner(path))
    ]
    return lost + demands


def _has_below(leaves: Mapping[str, object], path: str) -> bool:
    return any(each.startswith(f"{path}/") for each in leaves)


def _owner(path: str) -> str:
    """Return the path of the verb that an argument or option is of."""
    return re.split(r"/(?:arguments|options)/", path)[0]


def _is_demanded(path: str, value: object) -> bool:
    """Whether an argument or option of the command line has to be given."""
    if not isinstance(value, str) or not value.startswith("takes "):
        return False
    if "/options/" in path:
        return "required" in value.split(", ")
    takes = value.removeprefix("takes ").split(",")[0]
    return "/arguments/" in path and takes not in ("?", "*", "...")


def added(listed: object, now: object) -> list[str]:
    """Return the paths of what the list does not have yet."""
    old = flat(listed)
    return [path for path in flat(now) if path not in old]


def merged(listed: Any, now: Any, key: str = "") -> Any:
    """Return the list with what is new; what it has stays as it is there."""
    if isinstance(listed, dict) and isinstance(now, dict):
        both = listed.keys() & now.keys()
        return {**now, **listed, **{each: merged(listed[each], now[each], each) for each in both}}
    # A list in which words are new, and nothing else, is the new one.
    return listed if broken({key: listed}, {key: now}) else now


def updated(sections: Sequence[str] = ()) -> tuple[str, list[str], int]:
    """Return the text of the list with what is new in it, the breaks, and how many are new."""
    listed = json.loads(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    breaks, count = [], 0
    wanted = sections or list(SECTIONS)
    with ThreadPoolExecutor(max_workers=2) as pool:  # Each section waits for processes.
        found = dict(zip(wanted, pool.map(collected, wanted), strict=True))
    for section, now in found.items():
        before = listed.get(section)
        listed[section] = now if before is None else merged(before, now)
        breaks += [] if before is None else [f"{section}{line}" for line in broken(before, now)]
        count += len(added(before or {}, now))
    return json.dumps(listed, indent=1, sort_keys=True) + "\n", breaks, count


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the public contract with its list.")
    parser.add_argument("--write", action="store_true", help="add what is new to the list")
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION")
    options = parser.parse_args()
    text, breaks, count = updated(options.sections)
    print(*breaks, *([BREAK] if breaks else []), sep="\n")
    print(f"contract: {len(breaks)} breaks, {count} new", file=sys.stderr)
    if options.write:
        LIST.write_text(text, encoding="utf-8")
    return 1 if breaks else 0


if __name__ == "__main__":
    raise SystemExit(main())
