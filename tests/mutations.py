"""Makes files as strangers might write them: seeds of every kind, mutated from a number.

A mutation is one of bytes, of lines, of words, or of the structure of what a JSON or TOML text
says. The same number gives the same bytes in every run.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.seed_skills import BODY, SeedSkill

DEEP = 3_000
"""Nested lists or objects: more than any reader may follow."""
LONG = 70_000
"""Bytes of a long line: more than a frontmatter may have."""

ODD_TEXTS = (
    "",
    " ",
    "\ud800",
    "a\udfff\ud800b",
    "\0",
    "\ufeff",
    "\u202egnp.exe\u202c",
    "\u200b\u2028\x85\u2029",
    "\U000e0041\U000e0042",
    "\x1b]8;;https://x.invalid\x07x\x1b[2J",
    "a\nb",
    "a\rb\tc",
    "../../etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "~root/.ssh",
    "C:\\x\\..",
    "-rf",
    "--yes",
    "%00%2e%2e%2f",
    "{{secret:API}} ${HOME} $(id) `id`",
    "[https://react.dev](https://react.dev)",
    "https://[port]/",
    "https://[",
    "https://[::1",
    "https://[::1]:99999/",
    "https://user:pass@x.invalid:port/%zz?#[",
    "http://\u2100.invalid/ http://xn--.invalid/ https://-.invalid",
    "https://" + "a" * 300 + ".invalid",
    "https://x.invalid:0/ //x.invalid ///",
    "9999-99-99T99:99:99Z",
    "0000-00-00",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "1e999",
    "１２３",
    "é\u0301" * 40,
    "x" * 5_000,
    "skilltree1:" + "0" * 64,
    "sha256:" + "g" * 64,
    "1.0.0-" + "9" * 400,
    ">=" * 200,
    "^(a+)+$",
    "(" * 200,
    "git+ssh://x.invalid/a/b",
    "@/@",
    "mcp:",
    "null",
    "!!python/object:os.system",
)
ODD_VALUES: tuple[Any, ...] = (
    *ODD_TEXTS,
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 253_402_300_800),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *([], {}, [[]], [None], [{}], {"": ""}, {"\ud800": "\udfff"}, {"a": {"b": {"c": [1, {}]}}}),
    *(["a", 1, None], {"name": 1}, [["a", "b"]], {"0": 0}, ["x"] * 2_000),
)
ODD_BYTES = (
    *(b"\xff", b"\xfe\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\0", b"\xef\xbb\xbf"),
    *(b"\r", b"\x1b", b"\x0b\x0c", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xc2\x85", b"\x7f"),
    *(b"---\n", b"\n---\n", b"```\n", b"~~~~", b"    ", b"\t", b"<!--", b"-->", b"'", b'"', b"\\"),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"#",
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!binary ",
        b"%YAML 9.9\n",
    ),
    *(b"\\ud800", b"\\u0000", b"\\x", b'"\\ud83d"', b"NaN", b"-Infinity", b"1e400", b"0x_1"),
    *(b"- " * 200, b"? " * 60, b"| " * 50, b"![](", b"[a]: ", b"$ARGUMENTS", b"!`id`"),
)
MERGE_MARKS = b"<<<<<<< ours\n%s=======\n%s>>>>>>> theirs\n"

NAMES = (
    *(b"a\nb", b"caf\xe9", b"\xff\xfe", b"x" * 255, b"-rf", b"a b", b"<b>", b"CON", b"..."),
    *(
        b"\xe2\x80\xae",
        "é".encode(),
        b"e\xcc\x81",
        b"a\tb",
        b"a\\b",
        b"'\"`$(id)",
        b"a:b",
        b"\x1b[2J",
    ),
    *(
        b"user:pdf",
        b"%2e%2e",
        b"*",
        b"~",
        b"a" * 65,
        b"SKILL.md",
        b"UPPER",
        b".hidden",
        b"\xf0\x9f\x92\xa9",
    ),
)
"""Names of directories and files that a file system of Linux takes."""

_WORD = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[\w.:/@+-]{2,}')


class Mutations:
    """Mutations that follow from one number."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def mutated(self, data: bytes, kind: str) -> bytes:
        """Return some bytes with one to three changes; `kind` is `json`, `toml` or `text`."""
        chance = self.random
        if data and chance.random() < 0.5 and kind != "text":
            data = self.restructured(data, kind)
        for _ in range(chance.choice((0, 1, 1, 2, 3)) if kind != "text" else chance.randint(1, 3)):
            data = chance.choice(_CHANGES)(chance, data)
        return data[:2_000_000]

    def restructured(self, data: bytes, kind: str) -> bytes:
        """Return a document with one to four values of other types, or keys that are not there."""
        chance = self.random
        try:
            value = parsed(data, kind)
        except ValueError:  # A name that it had to take made it none.
            return data
        for _ in range(chance.randint(1, 4)):
            value = self._changed(value)
        text = json_text(value) if kind == "json" else toml_text(value)
        if chance.random() < 0.1:
            # A key twice, at the top.
            text = re.sub(r"[{]?\s*(\"[^\"]*\"\s*[:=][^\n]*)", r"\g<0>\n, \1", text, count=1)
        if chance.random() < 0.05:
            mark = '{"a":' if kind == "json" and chance.random() < 0.5 else "["
            text = text.replace("1", mark * DEEP, 1) if "1" in text else mark * DEEP
        return text.encode("utf-8", "surrogatepass")

    def _changed(self, value: Any) -> Any:
        """Change the value at a place that is chosen at random."""
        chance = self.random
        if isinstance(value, dict) and value and chance.random() < 0.85:
            key = chance.choice(list(value))
            if chance.random() < 0.12:
                return {name: one for name, one in value.items() if name != key}
            if chance.random() < 0.08:
                return {**value, chance.choice(ODD_TEXTS): value[key]}
            return {**value, key: self._changed(value[key])}
        if isinstance(value, list) and value and chance.random() < 0.75:
            at = chance.randrange(len(value))
            return [*value[:at], self._changed(value[at]), *value[at + chance.randint(0, 1) :]]
        if isinstance(value, str) and chance.random() < 0.3:
            at = chance.randint(0, len(value))
            return value[:at] + chance.choice(ODD_TEXTS) + value[at:]
        return chance.choice(ODD_VALUES)

    def frontmatter(self, data: bytes) -> bytes:
        """Return a SKILL.md with an odd value for one of its keys, or a key more."""
        chance = self.random
        lines = data.split(b"\n")
        end = lines.index(b"---", 1) if b"---" in lines[1:] else 1
        at = chance.randint(1, max(1, end - 1))
        key = lines[at].partition(b":")[0] if chance.random() < 0.6 else chance.choice(_KEYS)
        value = json_text(chance.choice(ODD_VALUES)).encode("utf-8", "surrogatepass")
        if chance.random() < 0.4:
            value = chance.choice(ODD_TEXTS).encode("utf-8", "surrogatepass")
        elif chance.random() < 0.1:
            value = b"[" * DEEP
        lines[at : at + chance.randint(0, 1)] = [key + b": " + value]
        return b"\n".join(lines)

    def skill(self, place: Path, seed: SeedSkill, name: bytes, only: Sequence[str] = ()) -> Path:
        """Write a mutated skill below a directory, and return its own.

        Where `only` names files, nothing but those is mutated.
        """
        chance = self.random
        files = {
            path: data.replace(b"{name}", name.replace(b"\n", b" "))
            for path, data in seed.files.items()
        }
        count = min(len(files), chance.choice((1, 1, 2, 3)))
        for path in [one for one in only if one in files] or chance.sample(sorted(files), count):
            is_main = path == "SKILL.md" and chance.random() < 0.6
            kind = {"package.json": "json", "pyproject.toml": "toml"}.get(path, "text")
            files[path] = (
                self.frontmatter(files[path]) if is_main else self.mutated(files[path], kind)
            )
        directory = Path(os.fsdecode(os.path.join(os.fsencode(place), name)))
        directory.mkdir(parents=True)
        for path, data in files.items():
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        if chance.random() < 0.35 and not only:
            chance.choice(_PLACES)(chance, directory)
        return directory


def parsed(data: bytes, kind: str) -> Any:
    """Return what a seed says."""
    if kind == "json":
        return json.loads(data)
    import tomllib  # noqa: PLC0415 - few seeds are TOML.

    return tomllib.loads(data.decode())


def json_text(value: Any) -> str:
    """Return JSON as Python writes it: NaN, huge numbers and lone surrogates included."""
    return json.dumps(value, indent=1, default=str)


def toml_text(value: Any) -> str:
    """Return TOML with every value on the line of its key at the top."""
    if not isinstance(value, dict):
        return _toml_value(value)
    return "".join(f"{_toml_key(key)} = {_toml_value(one)}\n" for key, one in value.items())


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_toml_key(key)} = {_toml_value(one)}" for key, one in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if value is None:
        return "1979-05-27T07:32:00Z"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii="\ud800" in value or "\udfff" in value)
    return str(value).lower()


Change = Callable[[random.Random, bytes], bytes]


def _insert(chance: random.Random, data: bytes) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(ODD_BYTES) + data[at:]


def _cut(chance: random.Random, data: bytes) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + data[at + chance.randint(1, 40) :]


def _truncate(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randint(0, len(data))]


def _flip(chance: random.Random, data: bytes) -> bytes:
    if not data:
        return b"\x80"
    at = chance.randrange(len(data))
    return data[:at] + bytes((data[at] ^ (1 << chance.randint(0, 7)),)) + data[at + 1 :]


def _repeat(chance: random.Random, data: bytes) -> bytes:
    at = chance.randint(0, len(data))
    piece = data[at : at + chance.randint(1, 60)]
    return data[:at] + piece * chance.choice((2, 3, 50, LONG // max(1, len(piece)))) + data[at:]


def _line(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randint(0, 5)
    if kind == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 1:
        lines.insert(at, lines[other])
    elif kind == 2:
        del lines[at]
    elif kind == 3:
        lines[at] = chance.choice((b" ", b"\t", b"  - ", b"> ")) + lines[at]
    elif kind == 4:
        lines[at] = MERGE_MARKS % (lines[at], lines[other])
    else:
        lines[at] = lines[at].rstrip(b"\r\n") + chance.choice((b"\r\n", b"\r", b"\n\n", b""))
    return b"".join(lines)


def _word(chance: random.Random, data: bytes) -> bytes:
    """Put an odd value where a word, a number or a text in quotes was."""
    words = list(_WORD.finditer(data))
    if not words:
        return _insert(chance, data)
    word = chance.choice(words)
    value = chance.choice(ODD_VALUES)
    text = value if isinstance(value, str) and chance.random() < 0.5 else json_text(value)
    return data[: word.start()] + text.encode("utf-8", "surrogatepass") + data[word.end() :]


_CHANGES: tuple[Change, ...] = (_insert, _insert, _cut, _truncate, _flip, _repeat, _line, _line)
_CHANGES += (_word, _word, _word)


def _link_loop(chance: random.Random, directory: Path) -> None:
    (directory / "loop").symlink_to(chance.choice((".", "..", "loop", "./loop/loop")))


def _link_out(chance: random.Random, directory: Path) -> None:
    target = chance.choice(("/etc/passwd", "/nowhere", "../../..", "/proc/self/root", "\n", "/dev"))
    (directory / chance.choice(("link", "references", "LICENSE.md"))).symlink_to(target) if not (
        directory / "references"
    ).exists() else (directory / "l").symlink_to(target)


def _link_main(chance: random.Random, directory: Path) -> None:
    main = directory / "SKILL.md"
    main.unlink(missing_ok=True)
    main.symlink_to(chance.choice(("SKILL.md", "/dev/zero", "/nowhere", "..", "/etc/passwd")))


def _special(chance: random.Random, directory: Path) -> None:
    name = chance.choice(("SKILL.md", "pipe", "scripts.sock", "package.json", "skill.sig"))
    (directory / name).unlink(missing_ok=True)
    if chance.random() < 0.6:
        os.mkfifo(directory / name)
        return
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(directory, os.O_RDONLY)
        try:
            one.bind(f"/proc/self/fd/{here}/{name}")
        finally:
            os.close(here)


def _directory_of_file(chance: random.Random, directory: Path) -> None:
    name = chance.choice(("SKILL.md", "package.json", "pyproject.toml", "skill.sig", "main.py"))
    (directory / name).unlink(missing_ok=True)
    (directory / name).mkdir()
    (directory / name / "SKILL.md").write_text("---\nname: x\ndescription: y\n---\n")


def _modes(chance: random.Random, directory: Path) -> None:
    for file in sorted(directory.rglob("*")):
        if not file.is_symlink() and chance.random() < 0.5:
            file.chmod(chance.choice((0o000, 0o200, 0o111, 0o4755, 0o1777, 0o666)))


def _odd_names(chance: random.Random, directory: Path) -> None:
    for name in chance.sample(NAMES, 3):
        place = Path(os.fsdecode(os.path.join(os.fsencode(directory), name)))
        if os.path.lexists(place):
            continue
        if chance.random() < 0.4:
            place.mkdir()
            (place / "notes.md").write_bytes(BODY)
        else:
            place.write_bytes(chance.choice((b"", BODY, b"\xff\0\xfe", b"x" * LONG)))


def _git(chance: random.Random, directory: Path) -> None:
    kind = chance.randint(0, 3)
    if kind == 0:
        (directory / ".git").write_text(
            chance.choice(("gitdir: /nowhere\n", "gitdir: .\n", "\ufeff"))
        )
    elif kind == 1:
        (directory / ".git").symlink_to(chance.choice((".git", "/nowhere", "..")))
    elif kind == 2:
        (directory / ".git").mkdir()
        (directory / ".git" / "config").write_bytes(b"[core]\n\tfsmonitor = id\n\xff[\n")
        (directory / ".git" / "HEAD").write_bytes(b"ref: refs/heads/\xff\n")
    else:
        (directory / ".gitmodules").write_bytes(b'[submodule "\xff"]\n\tpath = ..\n')
        (directory / ".gitignore").write_bytes(b"*\n")


def _deep(chance: random.Random, directory: Path) -> None:
    place = directory
    for _ in range(chance.choice((8, 40, 120))):
        place = place / "d"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: d\ndescription: y\n---\n")


def _sizes(chance: random.Random, directory: Path) -> None:
    file = directory / chance.choice(("SKILL.md", "references.md", "package.json"))
    if file.is_dir() or file.is_symlink():
        return
    with open(file, "ab") as opened:
        opened.truncate(chance.choice((1_048_576, 1_048_577, 60_000_000)))  # Sparse.


def _times(chance: random.Random, directory: Path) -> None:
    for file in directory.rglob("*"):
        if not file.is_symlink():
            os.utime(file, (0, chance.choice((0, 1, 2**31, 2**34 - 2, 253_402_300_800))))


Place = Callable[[random.Random, Path], None]
_PLACES: tuple[Place, ...] = (
    *(_link_loop, _link_out, _link_main, _special, _directory_of_file, _modes, _odd_names),
    *(_git, _deep, _sizes, _times, _odd_names),
)

_KEYS = (
    b"name description license compatibility allowed-tools metadata disable-model-invocation "
    b"user-invocable argument-hint model context agent hooks when_to_use paths version tools "
    b"requires author tags platforms"
).split()


def skill_names(count: int, chance: random.Random) -> Sequence[bytes]:
    """Return names of directories, few of them odd, none twice."""
    odd = chance.sample(NAMES, min(len(NAMES), max(1, count // 12)))
    return [*odd, *(f"skill-{number}".encode() for number in range(count - len(odd)))]
