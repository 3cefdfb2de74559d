"""Sources of skills for the tests: directories, archives, Git repositories, servers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.loopback_http import QuietHandler

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@test",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@test",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


def skill_text(name: str, body: str = "Body.", *, version: str = "1.0") -> str:
    head = f"name: {name}\ndescription: About {name}. Use it in tests.\nlicense: MIT"
    return f'---\n{head}\nmetadata:\n  version: "{version}"\n---\n{body}\n'


def make_skill(directory: Path, body: str = "Body.", *, version: str = "1.0") -> Path:
    """Write a skill with a script and return its directory."""
    (directory / "scripts").mkdir(parents=True, exist_ok=True)
    text = skill_text(directory.name, body, version=version)
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    script = directory / "scripts/run.sh"
    script.write_text("#!/bin/sh\necho done\n", encoding="utf-8")
    script.chmod(0o755)
    return directory


def git(place: Path, *arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["git", "-C", str(place), *arguments],
        env={**os.environ, **GIT},
        input=stdin,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def make_repository(place: Path) -> Path:
    """Make a repository of the files that are at a place, with one commit on `main`."""
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "--quiet", "--initial-branch=main")
    return commit(place)


def commit(place: Path) -> Path:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--allow-empty", "--message=one")
    return place


def commit_objects(place: Path, entries: Mapping[str, tuple[str, bytes | str]]) -> str:
    """Commit a tree with any names and modes, which no work tree could hold; return the commit.

    Args:
        entries: Mode and content by name; the content of a tree or a submodule is its id.
    """
    lines = b""
    for name, (mode, content) in entries.items():
        if isinstance(content, bytes):
            content = git(place, "hash-object", "-w", "--stdin", stdin=content)
        kind = {"040000": "tree", "160000": "commit"}.get(mode, "blob")
        lines += f"{mode} {kind} {content}\t".encode() + os.fsencode(name) + b"\0"
    tree = git(place, "mktree", "-z", "--missing", stdin=lines)
    return git(place, "commit-tree", "-m", "odd", tree)


def pages(files: Mapping[str, bytes]) -> type[BaseHTTPRequestHandler]:
    """Return a handler that serves these paths, and nothing else."""

    class Handler(QuietHandler):
        asked: list[str] = []  # noqa: RUF012 shared by all requests

        def do_GET(self) -> None:
            self.asked.append(self.path)
            body = files.get(self.path)
            self.answer(404 if body is None else 200, body or b"")

    return Handler


def git_server(top: Path, **more: str) -> type[BaseHTTPRequestHandler]:
    """Return a handler that serves the repositories below a directory as git's own server does.

    `more` are variables of that server's environment.
    """

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            variables = {
                **os.environ,
                **GIT,
                **more,
                "GIT_PROJECT_ROOT": str(top),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            body = self._body()
            variables["CONTENT_LENGTH"] = str(len(body))
            done = subprocess.run(
                ["git", "http-backend"],
                env=variables,
                input=body,
                capture_output=True,
                check=True,
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.answer(int(fields.pop("Status", "200 OK").split()[0]), content, fields)

        do_POST = do_GET

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            return b"".join(chunks)

    return Handler
