"""Tests of registry/git_program.py: what a configuration of git leads to."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from pathlib import Path

import pytest

from skillhouse.registry import Git, GitRepository, Source, SourceError, parse_source
from skillhouse.registry.git_program import transport_of
from tests.loopback_http import served
from tests.registry.sources import git, git_server, make_repository, make_skill


def git_at_home(home: Path, configuration: str = "", **variables: str) -> Git:
    program = shutil.which("git")
    assert program is not None
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text(configuration, encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    return Git(program=program, environment=environment)


def instead(address: str, of: str) -> str:
    return f'[url "{address}"]\n\tinsteadOf = "{of}"\n'


def parsed(text: str) -> Source:
    return parse_source(text, Path("/"), home=Path("/"))


@pytest.fixture
def forge(tmp_path: Path) -> Path:
    """Give a directory with `acme/skills.git`, of which `v1` has no skill `later`."""
    origin = make_repository(
        make_skill(tmp_path / "served/acme/skills.git/skills/pdf").parent.parent
    )
    git(origin, "branch", "feature/x")
    git(origin, "tag", "v1")
    make_skill(origin / "skills/later")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message=two")
    return tmp_path / "served"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ref", "path", "skill"),
    [
        ("acme/skills@v1/skills", "v1", "skills", ""),
        ("acme/skills@feature/x/skills/pdf", "feature/x", "skills/pdf", ""),
        ("acme/skills@pdf", "", "", "pdf"),
        ("https://github.com/acme/skills/tree/feature/x/skills/pdf", "feature/x", "skills/pdf", ""),
        ("https://github.com/acme/skills/tree/feature/x", "feature/x", "", ""),
        ("https://github.com/acme/skills/tree/v1/skills", "v1", "skills", ""),
        ("https://raw.githubusercontent.com/acme/skills/feature/x/skills/pdf/SKILL.md",
         "feature/x", "skills/pdf", ""),
        ("https://skills.sh/acme/skills/pdf", "", "", "pdf"),
    ],
)  # fmt: skip
def test_what_is_pasted_is_divided_as_the_repository_divides_it(
    forge: Path, tmp_path: Path, text: str, ref: str, path: str, skill: str
) -> None:
    with served(git_server(forge)) as address:
        program = git_at_home(tmp_path / "home", instead(f"{address}/", "https://github.com/"))
        with GitRepository(program, parsed(text)) as repository:
            found = repository.source
            assert (found.ref, found.path, found.skill) == (ref, path, skill)
            assert found.location == "https://github.com/acme/skills.git"
            assert repository.files()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "acme/skills@nowhere/skills",
        "acme/skills@NOT_A_NAME",
        "acme/skills#pdf",
        "acme/skills/skills@pdf",
        "https://github.com/acme/skills/tree/feature/y",
        "https://github.com/acme/skills.git@v1/skills",
    ],
)
def test_what_the_repository_does_not_have_is_not_guessed(
    forge: Path, tmp_path: Path, text: str
) -> None:
    with served(git_server(forge)) as address:
        program = git_at_home(tmp_path / "home", instead(f"{address}/", "https://github.com/"))
        with pytest.raises(SourceError, match="no such branch, tag or commit"):
            GitRepository(program, parsed(text))


@pytest.mark.parametrize(
    ("text", "address", "transport"),
    [
        ("acme/skills", "ssh://git@github.com/acme/skills.git", "ssh"),
        ("acme/skills", "git@github.com:acme/skills.git", "ssh"),
        ("acme/skills", "github.com:acme/skills.git", "ssh"),
        ("acme/skills", "ssh://git@ssh.github.com:443/acme/skills.git", "ssh"),
        ("acme/skills", "https://mirror.test/acme/skills.git", "https"),
        ("acme/skills", "https://me:secret@mirror.test:8443/acme/skills.git", "https"),
        ("acme/skills", "http://mirror.internal/acme/skills.git", "http"),
        ("acme/skills", "http://10.0.0.5/acme/skills.git", "http"),
        ("git@github.com:acme/skills.git", "https://github.com/acme/skills.git", "https"),
    ],
)
def test_the_transport_is_that_of_the_address_which_git_asks(
    text: str, address: str, transport: str
) -> None:
    assert transport_of(parsed(text), f"{address}\n") == transport


@pytest.mark.slow
def test_ssh_in_place_of_https_asks_ssh(tmp_path: Path) -> None:
    """`insteadOf` with ssh is what nearly every developer of a company has."""
    asked = tmp_path / "asked"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {asked}\nexit 255\n', encoding="utf-8")
    ssh.chmod(0o755)
    program = git_at_home(
        tmp_path / "home",
        instead("ssh://git@github.com/", "https://github.com/"),
        GIT_SSH_COMMAND=str(ssh),
    )
    with pytest.raises(SourceError, match="cannot be reached"):
        GitRepository(program, parsed("acme/skills"))
    assert "git@github.com git-upload-pack '/acme/skills.git'" in asked.read_text()


@pytest.mark.slow
def test_a_credential_helper_may_reserve_more_than_git_may_use(forge: Path, tmp_path: Path) -> None:
    """Programs in Go or .NET do; `gh auth git-credential` is one."""
    wanted = f"Basic {base64.b64encode(b'me:s3cr3t-word').decode()}"
    helper = tmp_path / "helper"
    helper.write_text(
        f"#!{sys.executable}\nimport mmap\n"
        "kept = mmap.mmap(-1, 2 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)\n"
        "print('username=me\\npassword=s3cr3t-word')\n"
    )
    helper.chmod(0o755)

    class Private(git_server(forge)):  # type: ignore[misc] # a class made by a function
        def do_GET(self) -> None:
            if self.headers.get("Authorization") == wanted:
                super().do_GET()
            else:
                self.answer(401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    with served(Private) as address:
        rules = (
            f"{instead(f'{address}/', 'https://github.com/')}[credential]\n\thelper = {helper}\n"
        )
        with GitRepository(git_at_home(tmp_path / "home", rules), parsed("acme/skills")) as found:
            assert found.files()


@pytest.mark.slow
def test_git_asks_the_proxy_of_the_environment(forge: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    class Proxy(git_server(forge)):  # type: ignore[misc] # a class made by a function
        path: str

        def parse_request(self) -> bool:
            found = bool(super().parse_request())
            asked.append(self.path)
            self.path = self.path.removeprefix("http://git.test")
            return found

    with served(Proxy) as address:
        program = git_at_home(tmp_path / "home", HTTP_PROXY=address)
        source = parsed("http://git.test/acme/skills.git#v1")
        with GitRepository(program, source) as repository:
            assert repository.files()
    assert asked[0].startswith("http://git.test/acme/skills.git/info/refs")


def test_the_certificates_and_the_proxy_of_the_environment_are_gits_too(tmp_path: Path) -> None:
    program = git_at_home(
        tmp_path / "home",
        SSL_CERT_FILE="/etc/own.pem",
        HTTPS_PROXY="http://proxy.test:3128",
        NO_PROXY="git.internal",
        GIT_SSL_NO_VERIFY="1",
    )
    variables = program.variables("https")
    assert variables["GIT_SSL_CAINFO"] == "/etc/own.pem"
    assert variables["https_proxy"] == "http://proxy.test:3128"
    assert variables["no_proxy"] == "git.internal,localhost,127.0.0.1,::1"
    assert "GIT_SSL_NO_VERIFY" not in variables
