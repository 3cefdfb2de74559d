"""Publishing to a real repository from the command line, and what its users see of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.sandbox import SandboxStatus
from tests.extensions.registry.hosting.servers import Server, serving
from tests.frontends.conftest import Run
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.house.coded import tool, write_code
from tests.registry.publisher_skill import AS_INSTALLED, LOCKED, REGISTRY
from tests.registry.sources import make_skill

UNSIGNED = ("--yes", "--allow-unsigned")
TOKEN = 'token = "env:REPOSITORY_ACCESS"\n'


@pytest.fixture
def server(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A repository of this machine that is configured, with a token that may do everything."""
    with serving(place / "served", "--name", REGISTRY) as found:
        monkeypatch.setenv("REPOSITORY_ACCESS", found.token("admin"))
        configure(place, ("official", found.url, True), more=TOKEN)
        yield found


def test_a_skill_is_published_and_installed(run: Run, place: Path, server: Server):
    source = make_skill(place / "notes", version="1.0.0")
    code, out, err = run("publish", str(source), "--dry-run")
    assert (code, err) == (0, "")
    assert "publisher  unknown: it is unsigned" in out
    assert out.endswith("`official` would take it\n")
    assert run("install", "notes", *UNSIGNED)[0] == 1
    for flags in ((), ("--yes",)):
        assert "it is unsigned" in run("publish", str(source), *flags)[2]
    code, out, err = run("publish", str(source), *UNSIGNED)
    assert (code, err) == (0, "")
    assert out.endswith("notes 1.0.0 is published in `official`\n")
    value = json.loads(run("publish", str(source), *UNSIGNED, "--json")[1])
    assert value["status"] == "unchanged"
    code, out, _ = run("publish", str(source), "--dry-run")
    assert code == 0
    assert out.endswith("`official` has this version already, with these very bytes\n")
    # A check sends the archive, and so is in the log: as what it was.
    records = json.loads(run("audit", "list", "--json")[1])["records"]
    tools = [one["record"]["tool"] for one in records if "publish" in one["record"]["tool"]]
    check, publish = "manage:publish-check", "manage:publish"
    assert tools == [check, publish, publish, check]
    # Other bytes never get the same version.
    make_skill(source, "Other words.", version="1.0.0")
    code, _, err = run("publish", str(source), *UNSIGNED)
    assert (code, "status 409" in err) == (1, True)
    assert run("pack", str(make_skill(source, "New.", version="1.1.0")))[0] == 0
    code, out, _ = run("publish", "notes-1.1.0.tar.gz", "--namespace", "acme", *UNSIGNED)
    assert out.endswith("@acme/notes 1.1.0 is published in `official`\n")
    assert run("install", "notes", *UNSIGNED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.0.0"
    assert lock_of(place)["notes"]["resolved"] == f"{server.url}/skills/notes/1.0.0"
    found = json.loads(run("install", "--search", "notes", "--json")[1])["skills"]
    assert {(one["name"], one["version"]) for one in found} == {
        ("notes", "1.0.0"),
        ("@acme/notes", "1.1.0"),
    }
    code, _, err = run("install", "note", *UNSIGNED)
    assert "did you mean `notes` in official" in err


def test_what_is_published_is_checked_first(run: Run, place: Path, server: Server):
    bare = place / "bare"
    bare.mkdir()
    (bare / "SKILL.md").write_text("---\nname: bare\ndescription: No version here.\n---\nx\n")
    assert "expected a version in SKILL.md" in run("publish", str(bare), *UNSIGNED)[2]
    source = make_skill(place / "notes", version="1.0.0")
    (source / "link").symlink_to("/etc/passwd")
    assert run("publish", str(source), *UNSIGNED)[0] == 1
    (source / "link").unlink()
    (source / ".env").write_text("TOKEN=x\n")
    assert "warning    named as a secret: .env" in run("publish", str(source), "--dry-run")[1]
    for words, said in (
        (("--namespace", "../x"), "expected a namespace"),
        (("--repository", "oficial"), "did you mean `official`"),
    ):
        assert said in run("publish", str(source), *UNSIGNED, *words)[2]
    (place / "x.txt").write_text("x")
    assert "expected a .tar.gz or a .zip" in run("publish", str(place / "x.txt"), *UNSIGNED)[2]
    assert run("publish", str(place / "nowhere"), *UNSIGNED)[0] == 1
    assert run("install", "notes", *UNSIGNED)[0] == 1


def test_a_coding_agent_publishes_nothing(run: Run, place: Path, server: Server, monkeypatch):
    source = make_skill(place / "notes", version="1.0.0")
    monkeypatch.setenv("CLAUDECODE", "1")
    for words in (
        ("publish", str(source), *UNSIGNED),
        ("publish", str(source), "--dry-run"),
        ("registry", "yank", "notes@1.0.0"),
        ("registry", "revoke", "notes@1.0.0"),
        ("registry", "channel", "notes@1.0.0", "beta"),
        ("registry", "push-revocations", "x.json"),
    ):
        code, _, err = run(*words)
        assert (code, "is for a person" in err) == (1, True)


def test_who_has_no_right_is_refused(run: Run, place: Path, server: Server, monkeypatch):
    source = make_skill(place / "notes", version="1.0.0")
    monkeypatch.setenv("REPOSITORY_ACCESS", server.token("publish:acme/*"))
    code, _, err = run("publish", str(source), *UNSIGNED)
    assert (code, "status 403" in err) == (1, True)
    monkeypatch.setenv("REPOSITORY_ACCESS", "skh_" + "0" * 40)
    assert "status 401" in run("publish", str(source), *UNSIGNED)[2]
    configure(place, ("official", server.url, True))
    assert "status 401" in run("publish", str(source), *UNSIGNED)[2]
    configure(place, ("mirror", str(place / "served"), True))
    assert "configure a server" in run("publish", str(source), *UNSIGNED)[2]
    assert "takes nothing" in run("publish", str(source), "--repository", "mirror", *UNSIGNED)[2]


def test_versions_are_taken_back_and_channels_named(run: Run, place: Path, server: Server):
    for version in ("1.0.0", "1.1.0", "2.0.0-rc.1"):
        source = make_skill(place / "notes", version=version)
        assert run("publish", str(source), *UNSIGNED)[0] == 0
    code, out, _ = run("registry", "yank", "notes@1.1.0", "--reason", "drops pages")
    assert (code, out) == (0, "notes 1.1.0 is yanked in `official` now\n")
    assert run("install", "notes", *UNSIGNED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.0.0"
    assert run("registry", "unyank", "notes@1.1.0")[0] == 0
    assert run("update", *UNSIGNED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.1.0"
    assert run("registry", "channel", "notes@2.0.0-rc.1", "beta")[0] == 0
    assert run("install", "notes@beta", *UNSIGNED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "2.0.0-rc.1"
    value = json.loads(run("registry", "revoke", "notes@2.0.0-rc.1", "--reason", "x", "--json")[1])
    assert (value["state"], value["reason"]) == ("revoked", "x")
    code, out, _ = run("verify")
    assert (code, "refused: it was revoked by its repository: x" in out) == (1, True)
    assert run("install", "notes@beta", *UNSIGNED)[0] == 1
    assert "`notes` has no version 9.0.0" in run("registry", "yank", "notes@9.0.0")[2]
    assert run("registry", "yank", "notes")[0] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("publisher")
@pytest.mark.req("S002-110", "S002-112")
def test_a_developer_signs_and_publishes_and_is_revoked(
    run: Run, place: Path, server: Server, elsewhere: Callable[[], None]
):
    # `publisher`: a key pair, and a certificate that the root of the registry issued.
    assert run("registry", "trust", "root.crt", "--directory", str(server.directory))[0] == 0
    assert run("sign", "pdf", *LOCKED)[0] == 0
    code, out, _ = run("publish", "pdf", "--yes")
    assert code == 0
    assert f"publisher  acme of {REGISTRY}" in out
    value = json.loads(run("publish", "pdf", "--yes", "--json")[1])
    assert (value["publisher"], value["status"]) == (f"acme of {REGISTRY}", "unchanged")
    listed = ("revoke", "developer-acme.crt", "--by", "root", "--reason", "key lost", *LOCKED)

    elsewhere()
    shutil.copytree(place / "home/.config", place / "elsewhere/.config")
    assert "chain: no root certificate is trusted here" in run("install", "pdf", "--yes")[2]
    assert run("keys", "trust", "root.crt")[0] == 0
    code, out, _ = run("install", "pdf", "--yes")
    assert code == 0
    assert f"publisher  acme of {REGISTRY}, by certificate " in out
    assert run("verify")[:2] == (0, AS_INSTALLED)
    load = ("call", "skill", "--args", '{"name":"pdf"}')
    assert run(*load)[0] == 0

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(place / "home"))
        assert run("keys", *listed)[0] == 0
        code, out, _ = run("registry", "push-revocations", "revocations.json")
        assert (code, out) == (0, "`official` has list 1 of revocations now\n")
    code, out, _ = run("verify")
    assert (code, "user:pdf  refused: revocation: " in out) == (1, True)
    code, _, err = run(*load)
    assert (code, "key lost" in err) == (1, True)
    code, _, err = run("install", "pdf", "--yes")
    assert (code, "key lost" in err) == (1, True)


@pytest.mark.req("S002-99", "S002-102", "S002-119")
def test_skill_install_as_the_design_prints_it(run: Run, place: Path, server: Server):
    source = make_skill(place / "crypto-balance", version="1.0.0")
    assert run("publish", str(source), *UNSIGNED)[0] == 0
    words = ("skill", "install", "crypto-balance", *UNSIGNED)
    code, _, err = run(*words, "--profile", "owliabot-js")
    assert code == 0
    assert "fetching http://127.0.0.1:" in err
    found = place / "project/workspace/skills/crypto-balance/SKILL.md"
    assert found.read_bytes() == (source / "SKILL.md").read_bytes()
    assert "crypto-balance" in run("list", "--profile", "owliabot-js")[1]
    assert run("verify", "--profile", "owliabot-js")[0] == 0
    assert run(*words)[0] == 0
    assert (place / "home/.agents/skills/crypto-balance/SKILL.md").is_file()


@pytest.mark.slow
@pytest.mark.req("S002-94", "S002-99", "S002-102", "S002-119")
def test_what_skill_install_brings_can_be_called_at_once(
    run: Run, place: Path, server: Server, status: SandboxStatus
):
    code = "tools = {'get_price': lambda params, context: {'price': 2}}\n"
    source = write_code(place / "crypto-price", code, tool("get_price"))
    assert run("publish", str(source), *UNSIGNED)[0] == 0
    js = ("--profile", "owliabot-js")
    ended, _, err = run("skill", "install", "crypto-price", *UNSIGNED, *js)
    assert (ended, "tool: crypto-price:get_price\n" in err) == (0, True), err
    assert "skillhouse trust" not in err
    assert run("call", "crypto-price:get_price", *js)[:2] == (0, '{"price": 2}\n')
    assert run("call", "get_price", *js)[:2] == (0, '{"price": 2}\n')
    installed = place / "project/workspace/skills/crypto-price"
    assert (installed / "main.py").read_bytes() == (source / "main.py").read_bytes()


def test_an_install_trusts_nothing_else_of_the_project(run: Run, place: Path, server: Server):
    code = "tools = {'tool': lambda params, context: 1}\n"
    source = write_code(place / "brought", code)
    write_code(place / "project/workspace/skills/there", code)
    assert run("publish", str(source), *UNSIGNED)[0] == 0
    js = ("--profile", "owliabot-js")
    _, _, err = run("skill", "install", "brought", *UNSIGNED, *js)
    # What else would be read with it no person has looked at.
    assert ("skillhouse trust" in err, "tool: " in err) == (True, False)
    assert "0 of skills" in run("tools", "list", *js)[1]
    assert run("trust", "--yes", *js)[0] == 0
    shutil.rmtree(place / "project/workspace/skills/brought")
    write_code(place / "project/workspace/skills/later", code)
    assert run("skill", "install", "brought", *UNSIGNED, "--force", *js)[0] == 0
    out = run("tools", "list", *js)[1]
    assert ("brought:tool" in out, "there:tool" in out, "later:tool" in out) == (True, True, False)


def test_a_near_name_of_another_token_is_published_beside_the_known_one(
    run: Run, place: Path, server: Server, monkeypatch: pytest.MonkeyPatch
):
    flags = ("--yes", "--allow-unsigned")
    known = make_skill(place / "notes", version="1.0.0")
    assert run("publish", str(known), *flags)[0] == 0
    monkeypatch.setenv("REPOSITORY_ACCESS", server.token("publish:default/*"))
    near = make_skill(place / "notes-helper", version="1.0.0")
    for more in (("--dry-run",), (), ("--beside", "notse")):
        code, _, err = run("publish", str(near), *flags, *more)
        assert (code, "--beside notes" in err) == (1, True), err
    assert run("publish", str(near), *flags, "--beside", "notes")[0] == 0
