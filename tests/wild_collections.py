"""Repositories of skills made by script after thirteen public ones, with all that those have odd.

Each is made of its name and its size alone: the same bytes in every run. What they hold was seen in
public collections of skills (layouts, links, LFS pointers, submodules, names of files), or is the
next thing that somebody may write there.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SIZES = {
    "flat": 224,
    "skills": 262,
    "claude": 300,
    "plugins": 352,
    "categories": 404,
    "scientific": 460,
    "curated": 512,
    "agents": 570,
    "deep": 628,
    "monorepo": 690,
    "translated": 755,
    "mixed": 824,
    "odd": 900,
}
"""Skills of each collection: 6,881 in all."""

LINKS = (
    "[https://react.dev](https://react.dev)",
    "[https://react.dev/learn](https://react.dev/learn 'a]b')",
    "[`https://a.example`](https://a.example)",
    "[![build](https://img.example/b.svg)](https://ci.example/x)",
    '[ref][1] and [https://b.example][1]\n\n[1]: https://b.example "title"',
    "[^1]: https://[",
    "[[https://wiki.example]]",
    "[a](<https://a.example/with blank>)",
    "[](https://empty.example) ![](https://image.example)",
    "<https://angle.example>, <HTTP://UPPER.EXAMPLE>",
    "**https://bold.example** _https://under.example_ ~~https://struck.example~~",
    "https://a.example,https://b.example;https://c.example|https://d.example",
    "| https://cell.example | [x](https://[x]) |",
    "https://[::1]:8080/ http://[fe80::1%25eth0]/ https://[::ffff:1.2.3.4]/",
    "https://[port]/ https://[ https://[] https://[:]/ https://[::1 https://[::1]x https://]x",
    "https://[[a]](b) [https://[::1]](https://[::1])",
    "https://user:pass@a.example https://@b.example https://a.example@ https://:80",
    "https://a.example:99999 https://a.example:0 https://a.example:port https://a.example:80:80",
    "https:// https://... https://…, https:///three.example https:\\\\back.example https://x\\y",
    "https://例え.jp/、 https://bücher.example。 https://xn-- https://xn--a https://ﬀ.example",
    "https://%zz https://%65vil.example https://a_b.example https://-a.example https://a..example",
    "https://1.2.3 https://0x7f000001 http://127.1 http://2130706433 http://٣.example",
    "https://{host}/ https://<host>/ https://$HOST/ https://${HOST}:1 https://*.example https://%s",
    "//proto.example ftp://f.example file:///etc/passwd javascript:x data:text/html,x mailto:",
    "git+https://git.example/x.git ssh://git@git.example:22/x git@git.example:x/y.git",
    f"https://{'a' * 300}.example https://{'a.' * 200}example https://a.example/{'b' * 9000}",
    "https://a.example\u200b.b.example https://a\u00adb.example https://\u202egpj.example",
    "https://a.example#[x] https://a.example?[x]=[y] https://a.example/[x](y)",
    "see http://a.example) and (http://b.example), or 'http://c.example' or \"http://d.example\"",
    "[x](https://a.example\n) [y\n](https://b.example) [z](\nhttps://c.example)",
    "autolink www.example.com, x@y.example, https://例.例:８０/",
)
BODIES = (
    '```bash\ncurl https://a.example | sh\nrm -rf "$HOME"/x\n```',
    "```\n$ git push --force\n> npm install\n```",
    "~~~python\nprint('x')\n~~~",
    "    sudo make install\n\n1. `pip install x`\n   ```sh\n   cd x && ./a <<E\n   x\n   E\n   ```",
    "```sh\ncat <<'EOF'\nunclosed",
    '```bash\nfor i in $(seq 1 $((1+2))); do echo "${i//a/b}" >&2; done | tee >(cat) 2>&1\n```',
    "```sh\n" + "(" * 400 + "\n" + "$(" * 200 + "\n" + "{a," * 100 + "\n```",
    "<pre>rm -rf /</pre><code>exec x</code><!-- https://[hidden] -->",
    "> > > ```sh\n> > > read x\n> > > ```",
    "`read` `write` `exec` ``a ` b`` `unclosed\n\n`fetch https://[x]`",
    "| a | b |\n|---|---|\n| `x|y` | <br/> |",
    "# 标题 عنوان כותרת 🏴󠁧󠁢󠁥󠁮󠁧󠁿 e\u0301 \u200d\u200c\ufeff \U000e0041\U000e0042",
    "\x1b[31mred\x1b[0m \x07 \x9b8m \u2028 \u2029 \x85",
    "{{ template }} {% raw %} <%= erb %> $ARGUMENTS !`date` @file.md",
    "a" * 20_000,
    "\\" * 500 + "[" * 500 + "]" * 500 + "*" * 500,
    "---\nname: second\ndescription: block\n---",
)
HEADS = (
    "name: {name}\ndescription: About {name}. Use it in tests.",
    "name: {name}\ndescription: >-\n  About {name}.\n  https://[x] [a](b)\nlicense: Apache-2.0",
    "name: {name}\ndescription: Use when: a colon, #1 or [x](y)\nallowed-tools: Read, Bash(git *)",
    "name: \"{name}\"\ndescription: 'It''s {name}'\nmetadata:\n  version: \"1.0\"\n  author: x",
)
ODD_HEADS = (
    b"",
    b"---\n---\n",
    b"---\nname: {name}\n---\n",
    b"---\nname: {name}\ndescription: x\n",
    b"--- \nname: {name}\ndescription: x\n---\n",
    b"\xef\xbb\xbf---\r\nname: {name}\r\ndescription: x\r\n---\r\n",
    "---\nname: {name}\ndescription: x\n---\n".encode("utf-16"),
    b"---\nname: {name}\ndescription: \xff\xfe\xed\xa0\x80\n---\n",
    b'---\nname: {name}\ndescription: "\\ud800 \\0 \\x1b"\n---\n',
    b"---\nname: {name}\ndescription: \x00\n---\n",
    b"---\nname: [a, b]\ndescription: {{x: y}}\n---\n",
    b"---\nname: 1\ndescription: 2026-01-01\n---\n",
    b"---\nname: {name}\ndescription: &a x\nb: *a\n<<: *a\n---\n",
    b"---\nname: {name}\nname: other\ndescription: !!python/object:os.system x\n---\n",
    b"---\nname: {name}\ndescription:\tx\n\tmetadata: y\n---\n",
    b"---\nname: Other Name\ndescription: x\n---\n",
    b"---\nname: ../../{name}\ndescription: x\n---\n",
    b"---\nname: -{name}-\ndescription: x\n---\n",
    b"---\nname: {name}\ndescription: " + b"x" * 5_000 + b"\n---\n",
    b"---\nname: {name}\ndescription: x\nmetadata: " + b"[" * 60 + b"]" * 60 + b"\n---\n",
    b"---\nname: {name}\ndescription: x\nallowed-tools: {{a: [1, null, true]}}\nlicense: []\n---\n",
    b"---\nname: {name}\ndescription: \xe2\x80\xae\xf3\xa0\x81\x81 x\n---\n",
    b"+++\nname = '{name}'\n+++\n",
    b"# {name}\n\nNo frontmatter.\n",
)
ODD_NAMES = (
    b"a b.md", b"caf\xe9.md", "cafe\u0301.md".encode(), "caf\u00e9.md".encode(), b"new\nline.md",
    b"tab\t.md", b"quote\".md", b"back\\slash.md", b"con.txt", b"NUL", b"aux.md", b"trailing.",
    b"trailing ", b"-dash.md", b"~tilde", b"a:b.md", b"star*.md", b"q?.md", b"<x>.md", b"p|q.md",
    b"\x1b[31m.md", b"\xe2\x80\xaegpj.exe", "表.md".encode(), "🙂.md".encode(), b"x" * 250,
    b"deep/" * 30 + b"a.md", b".hidden", b".DS_Store", b"Thumbs.db", b"__pycache__/a.pyc",
    b"README.md", b"readme.md", b"LICENSE", b"package.json", b"pyproject.toml", b"scripts/run.sh",
    b"%2e%2e.md", b"skill.sig", b"SKILL.md.bak", b"nested/SKILL.md", b"node_modules/x/SKILL.md",
    b"$HOME.md", b"`id`.md",
)  # fmt: skip
LFS = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
FILES = (
    LFS,
    b"",
    b"\x00\x01\x02\xff" * 50,
    b'#!/bin/sh\necho https://[x] "$@"\n',
    b"\x89PNG\r\n\x1a\n" + b"\x00" * 100,
    b'{"name": "x", "skillhouse": {"tools": []}, "url": "https://[x]"}',
    b"[project]\nname = 1\n[tool.skillhouse]\nentry = '../x'\n",
    b"\xed\xa0\x80 https://a.example \xff",
    b"[" * 5_000,
    b"a,b\n" * 500,
)
TARGETS = (
    b"SKILL.md", b"../../README.md", b"/etc/passwd", b"missing", b".", b"..", b"loop", b"scripts",
    b"../" * 40 + b"etc/passwd", b"caf\xe9.md", b"a\nb", b"https://[x]",
)  # fmt: skip


@dataclass(frozen=True)
class Collection:
    repository: Path
    skills: tuple[str, ...]
    """The directories, each with a SKILL.md."""


def make_collection(place: Path, name: str, count: int) -> Collection:
    """Make a bare repository of `count` skills with one commit; `name` says how it is laid out."""
    rng = random.Random(f"{name} {SIZES[name]}")
    files: dict[bytes, tuple[bytes, bytes]] = {
        b"README.md": (b"100644", "\n\n".join(LINKS).encode("utf-8", "surrogatepass")),
        b"package.json": (b"100644", b'{"name": "collection", "private": true}'),
        b".gitattributes": (b"100644", b"*.bin filter=lfs diff=lfs merge=lfs -text\n"),
        b".claude-plugin/marketplace.json": (
            b"100644",
            b'{"plugins": [{"source": "https://[x]"}]}',
        ),
    }
    skills = []
    for number in range(count):
        top = _top(rng, name, number)
        skills.append(top.decode("utf-8", "surrogateescape"))
        for relative, mode, data in _skill(rng, top.rpartition(b"/")[2].decode(), number):
            files.setdefault(top + b"/" + relative, (mode, data))
    repository = place / f"{name}.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(repository)], check=True)
    subprocess.run(
        ["git", "-C", str(repository), "fast-import", "--quiet"],
        input=b"".join(_stream(_without_clashes(files))),
        check=True,
    )
    head = ["git", "-C", str(repository), "symbolic-ref", "HEAD", "refs/heads/main"]
    subprocess.run(head, check=True)
    return Collection(repository=repository, skills=tuple(skills))


def _top(rng: random.Random, layout: str, number: int) -> bytes:
    name = f"{rng.choice(('pdf', 'react-best-practices', 'seo', 'k8s', 'data'))}-{number:03}"
    if layout == "odd" and number % 5 == 0:
        odd = (
            "Upper-{0}",
            "under_{0}",
            "dot.{0}",
            "ünï-{0}",
            "two--{0}",
            "-{0}",
            "{0}-",
            "sp ace {0}",
        )
        name = rng.choice(odd).format(number)
    if layout == "mixed":
        layout = rng.choice(
            ("flat", "skills", "claude", "plugins", "categories", "deep", "curated")
        )
    kind = rng.choice(("web", "data", "ops"))
    above = {
        "flat": "",
        "skills": "skills/",
        "claude": ".claude/skills/",
        "plugins": f"plugins/{kind}-tools/skills/",
        "categories": f"{kind}/",
        "scientific": "scientific-skills/",
        "curated": rng.choice(("skills/.curated/", "skills/.experimental/", "skills/")),
        "agents": ".agents/skills/",
        "deep": f"docs/{kind}/v1/skills/",
        "monorepo": f"packages/{kind}/skills/",
        "translated": f"i18n/{rng.choice(('de', 'zh', 'ja'))}/skills/",
        "odd": rng.choice(("skills/", "", "a b/", "ä/", "[x]/")),
    }[layout]
    return f"{above}{name}".encode()


def _skill(rng: random.Random, name: str, number: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield path, mode and content of each file of one skill."""
    body = "\n\n".join(
        (*rng.sample(LINKS, rng.randint(1, 4)), *rng.sample(BODIES, rng.randint(0, 3)))
    )
    data = body.encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        head = rng.choice(ODD_HEADS)
        yield b"SKILL.md", b"100644", head.replace(b"{name}", name.encode()) + data
    else:
        text = rng.choice(HEADS).format(name=name)
        yield b"SKILL.md", b"100644", f"---\n{text}\n---\n".encode() + data + b"\n"
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        path = rng.choice(
            (b"references/guide.md", b"scripts/run.sh", b"assets/logo.bin", b"data.csv")
        )
        mode = rng.choice((b"100644", b"100755"))
        yield path, mode, rng.choice((*FILES, rng.choice(LINKS).encode("utf-8", "surrogatepass")))
    odd = rng.random()
    if odd < 0.1:
        yield rng.choice(ODD_NAMES), b"100644", rng.choice(FILES)
    elif odd < 0.14:
        yield b"link", b"120000", rng.choice(TARGETS)
    elif odd < 0.16:
        yield b"vendor", b"160000", b"4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    elif odd < 0.165:
        for count in range(1_001):
            yield f"many/{count}.txt".encode(), b"100644", b"x"
    elif odd < 0.17:
        yield b"long.md", b"100644", b"https://[" * 130_000
    elif number == 7:
        yield b"SKILL.md/impossible", b"100644", b"x"


def _without_clashes(
    files: dict[bytes, tuple[bytes, bytes]],
) -> dict[bytes, tuple[bytes, bytes]]:
    """Leave out a file below another: no tree of git has both."""
    return {
        path: found
        for path, found in files.items()
        if not any(
            b"/".join(path.split(b"/")[:count]) in files for count in range(1, path.count(b"/") + 1)
        )
    }


def _stream(files: dict[bytes, tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield what `git fast-import` reads: it takes names and modes that no work tree could hold."""
    yield b"commit refs/heads/main\ncommitter A <a@test> 1767225600 +0000\ndata 4\nmade\n"
    for path, (mode, data) in sorted(files.items()):
        escaped = {b'"': b'\\"', b"\\": b"\\\\", b"\n": b"\\n"}
        quoted = b"".join(escaped.get(bytes([one]), bytes([one])) for one in path)
        if mode == b"160000":
            yield b"M " + mode + b" " + data + b' "' + quoted + b'"\n'
            continue
        yield b"M " + mode + b' inline "' + quoted + b'"\n'
        yield f"data {len(data)}\n".encode() + data + b"\n"
