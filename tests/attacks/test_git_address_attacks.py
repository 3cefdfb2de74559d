"""Attacks by what git is led to: `insteadOf`, endless lists of refs, and names of refs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from skillhouse.registry import GitRepository, SourceError
from skillhouse.registry.git_program import transport_of
from skillhouse.registry.git_repository import divided_source
from tests.loopback_http import QuietHandler, served
from tests.registry.test_git_program import git_at_home, instead, parsed

HOSTILE = [
    "ssh://-oProxyCommand=touch%20pwned/acme/skills.git",
    "ssh://git@-oProxyCommand=x/acme/skills.git",
    "-oProxyCommand=x:acme/skills.git",
    "git@-oProxyCommand=x:acme/skills.git",
    "--upload-pack=touch pwned",
    "ext::sh -c touch% pwned",
    "ext::ssh://git@github.com/acme/skills.git",
    "fd::17",
    "file:///etc",
    "/etc/skills.git",
    "./skills.git",
    "../skills.git",
    "git://github.com/acme/skills.git",
    "ftp://github.com/acme/skills.git",
    "http://169.254.169.254/latest/meta-data/skills.git",
    "http://[fe80::1]/skills.git",
    "http://0xa9.0xfe.0xa9.0xfe/skills.git",
    "http://2852039166/skills.git",
    "https://git hub.test/skills.git",
    "https://github.test\\@evil.test/skills.git",
    "https://github.com/acme/skills.git\nhttps://evil.test/x.git",
    "https://github.com/acme\x1b[2J/skills.git",
    "https://github.com/acme/\u202eskills.git",
    "",
]


@pytest.mark.parametrize("address", HOSTILE)
def test_no_configuration_leads_git_to_what_is_no_server_of_git(address: str) -> None:
    with pytest.raises(
        SourceError, match="`insteadOf` in the configuration of git leads"
    ) as caught:
        transport_of(parsed("acme/skills"), f"{address}\n")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "address",
    ["file:///etc/skills/", "ext::sh -c touch% pwned ", "ssh://-oProxyCommand=x/"],
)
def test_what_is_refused_is_not_run(tmp_path: Path, address: str) -> None:
    program = git_at_home(tmp_path / "home", instead(address, "https://github.com/"))
    with pytest.raises(SourceError, match="insteadOf"):
        GitRepository(program, parsed("acme/skills"))
    assert not list(tmp_path.rglob("pwned"))


def test_a_token_of_the_configuration_is_in_no_message(tmp_path: Path) -> None:
    rules = instead("http://me:s3cr3t-token@169.254.169.254/", "https://github.com/")
    program = git_at_home(tmp_path / "home", rules)
    with pytest.raises(SourceError) as caught:
        GitRepository(program, parsed("acme/skills"))
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.slow
def test_an_endless_list_of_refs_ends_at_the_bound_of_memory(tmp_path: Path) -> None:
    """It ended after two minutes, at 4 GiB."""
    sent = [0]

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            self.wfile.write(b"001e# service=git-upload-pack\n0000")
            lines = b"".join(
                b"%04x" % (4 + 41 + 240) + b"1" * 40 + b" refs/heads/" + b"%0228d" % at
                for at in range(2_000)
            )
            try:
                while sent[0] < 8 << 30:
                    self.wfile.write(lines)
                    sent[0] += len(lines)
            except OSError:
                return

    began = time.monotonic()
    with served(Handler) as address:
        program = git_at_home(tmp_path / "home")
        with pytest.raises(SourceError, match="too much memory"):
            GitRepository(program, parsed(f"{address}/a/b.git"), fetch_seconds=100)
    assert sent[0] < 512 << 20
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "listed",
    [
        b"1111\trefs/heads/--upload-pack=x\n",
        b"1111\trefs/heads/a..b\n",
        b"1111\trefs/heads/feature\x1b[2J\n",
        b"no tab at all\n",
        b"\xff\xfe\trefs/heads/\xff\n",
        b"",
    ],
)
def test_names_of_refs_that_a_server_made_up_divide_nothing(listed: bytes) -> None:
    source = parsed("https://github.com/acme/skills/tree/feature/x/a")
    assert divided_source(source, listed) is None


def test_no_division_leads_out_of_the_repository() -> None:
    with pytest.raises(SourceError):
        parsed("acme/skills@v1/../../etc")
    source = parsed("https://github.com/acme/skills/tree/v1/a")
    divided = divided_source(source, b"1111\trefs/tags/v1\n")
    assert divided is not None
    assert (divided.ref, divided.path) == ("v1", "a")
