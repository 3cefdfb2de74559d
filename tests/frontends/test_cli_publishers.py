"""Tests of publishers at the command line: from a key to a skill that others install."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import keyring
import pytest
from cryptography import x509
from keyring.backend import KeyringBackend

from tests.frontends.conftest import Run
from tests.loopback_http import QuietHandler, served
from tests.registry.pki import TimestampAuthority
from tests.registry.publisher_skill import AS_INSTALLED, LOCKED, REGISTRY, make_skill

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("publisher")]


def step(run: Run, *arguments: str) -> str:
    """Return the step that refuses a command, which must fail."""
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    return err.removeprefix("skillhouse: ").strip()


@pytest.mark.req("S002-111", "S002-113")
def test_another_user_verifies_installs_and_loads_what_was_signed(
    run: Run, elsewhere: Callable[[], None]
) -> None:
    code, out, err = run("sign", "pdf", *LOCKED)
    assert (code, err) == (0, "")
    assert out.startswith(f"signed pdf 1.2.0 as acme of {REGISTRY}: ")
    # The names that the design publishes.
    for name in ("root.crt", "developer-acme.crt", "pdf/skill.sig"):
        assert Path(name).is_file()
    assert run("pack", "pdf")[0] == 0

    elsewhere()
    archive = "./pdf-1.2.0.tar.gz"
    assert "chain: no root certificate is trusted here" in run("install", archive, "--yes")[2]
    code, out, _ = run("keys", "trust", "root.crt")
    assert (code, out.startswith(f"trusted for `{REGISTRY}`: ")) == (0, True)
    code, out, err = run("verify", "./pdf")
    assert code == 0
    assert out.startswith(f"pdf 1.2.0: signed by acme of {REGISTRY} at ")
    assert "no revocation list" in err
    code, out, err = run("install", archive, "--yes")
    assert (code, err) == (0, "")
    assert f"publisher  acme of {REGISTRY}, by certificate " in out
    assert f"publisher  acme of {REGISTRY}" in run("info", "pdf")[1]
    assert run("call", "skill", "--args", '{"name":"pdf"}')[0] == 0
    # What programs leave there is no part of what was signed.
    installed = Path(os.environ["HOME"], ".agents/skills/pdf")
    for place in (Path("pdf"), installed):
        (place / ".DS_Store").write_text("")
        (place / "__pycache__").mkdir()
        (place / "__pycache__/a.pyc").write_text("")
    assert run("verify", "./pdf")[0] == 0
    assert run("verify", "pdf", "--offline")[0] == 0
    assert run("call", "skill", "--args", '{"name":"pdf"}')[0] == 0
    (installed / "__pycache__/a.py").write_text("")
    assert run("call", "skill", "--args", '{"name":"pdf"}')[0] == 1


@pytest.mark.req("S002-112")
def test_what_was_changed_or_signed_by_others_is_refused(
    run: Run, elsewhere: Callable[[], None]
) -> None:
    assert run("sign", "pdf", *LOCKED)[0] == 0
    shutil.copytree("pdf", "changed/pdf")
    Path("changed/pdf/SKILL.md").write_text(Path("pdf/SKILL.md").read_text() + "And more.\n")
    assert step(run, "verify", "./changed/pdf") == "files: changed: SKILL.md"
    assert step(run, "install", "./changed/pdf", "--yes").endswith("files: changed: SKILL.md")
    shutil.copytree("pdf", "csv")
    assert step(run, "verify", "./csv") == "identity: expected a directory named `pdf`, got `csv`"
    code, out, err = run("verify", "./changed/pdf", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "verified": False,
        "step": "files",
        "message": "files: changed: SKILL.md",
    }
    message = step(run, "verify", "./pdf", "--repository", "other.example.com")
    assert message.startswith("identity: expected the repository `other.example.com`")
    elsewhere()
    other = ("keys", "new", "root", "--for", "root", "--registry", REGISTRY, *LOCKED)
    assert run(*other, "--output", "other.crt")[0] == 0
    assert step(run, "verify", "./pdf").startswith("chain: ")


@pytest.mark.req("S002-112")
def test_a_revoked_publisher_is_stopped_where_their_skills_are_installed(
    run: Run, elsewhere: Callable[[], None]
) -> None:
    assert run("sign", "pdf", *LOCKED)[0] == 0
    elsewhere()
    run("keys", "trust", "root.crt")
    assert run("install", "./pdf", "--yes")[0] == 0
    assert run("verify")[:2] == (0, AS_INSTALLED)
    # A list that holds whole bodies is a way to a model too.
    listing = ("catalog", "--style", "direct")
    assert "### Skill: pdf" in run(*listing)[1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(Path.home().parent / "home"))
        revoke = ("keys", "revoke", "developer-acme.crt", "--by", "root", "--reason", "key lost")
        code, out, _ = run(*revoke, *LOCKED)
        assert (code, out.startswith("revoked ")) == (0, True)
        assert step(run, "verify", "./pdf").startswith("revocation: ")
    assert run("verify")[0] == 0
    assert "[refused]" not in run("list")[1]
    assert "name: pdf" in run("load", "pdf", "--raw")[1]

    code, out, _ = run("keys", "trust", "revocations.json")
    assert (code, out) == (0, "took over revocation list 1 with 1 entry\n")
    why = "revocation: the certificate was revoked (key lost)"
    assert run("verify")[:2] == (1, f"user:pdf  refused: {why}\n")
    code, _, err = run("call", "skill", "--args", '{"name":"pdf"}')
    assert (code, why in err) == (1, True)
    assert "### Skill: pdf" not in run(*listing)[1]
    assert "pdf  [refused] " in run("list")[1]
    code, out, err = run("load", "pdf", "--raw")
    assert (code, out, why in err) == (1, "", True)
    assert "name: pdf" in run("load", "pdf", "--raw", "--anyway")[1]
    assert why in run("install", "./pdf", "--yes")[2]


@pytest.mark.req("S002-114")
def test_where_signatures_are_required_nothing_unsigned_is_installed_or_loaded(
    run: Run, place: Path
) -> None:
    make_skill(Path("own").absolute(), "csv")
    shutil.copytree("own/csv", place / "home" / ".agents" / "skills" / "csv")
    assert run("call", "skill", "--args", '{"name":"csv"}')[0] == 0
    config = place / "home" / ".config" / "skillhouse" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[registry]\nrequire_signature = true\n")
    message = "is unsigned, and `registry.require_signature` is set"
    code, _, err = run("install", "./pdf", "--yes", "--allow-unsigned")
    assert (code, message in err) == (1, True)
    code, _, err = run("call", "skill", "--args", '{"name":"csv"}')
    assert (code, message in err) == (1, True)
    assert run("sign", "pdf", *LOCKED)[0] == 0
    assert run("install", "./pdf", "--yes")[0] == 0
    assert run("call", "skill", "--args", '{"name":"pdf"}')[0] == 0


class MemoryKeyring(KeyringBackend):
    """A keyring in memory that passes for one of the operating system."""

    priority = 1.0

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password


MemoryKeyring.__module__ = "keyring.backends.SecretService"


def test_the_keyring_of_the_system_opens_a_key_without_a_question(run: Run) -> None:
    before = keyring.get_keyring()
    ring = MemoryKeyring()
    keyring.set_keyring(ring)
    try:
        assert run("keys", "new", "globex", "--for", "skills", "--password", "keyring")[0] == 0
        ((_, name),) = ring.kept
        assert name.startswith("publisher-")
        assert run("keys", "request", "globex")[0] == 0
        assert run("keys", "issue", "globex.csr", "--by", "root", *LOCKED)[0] == 0
        assert run("sign", "pdf", "--key", "globex")[0] == 0
        code, _, err = run("sign", "pdf", "--key", "acme", "--replace", "--password", "keyring")
        assert (code, "is not in the keyring: it has a password" in err) == (1, True)
        ring.kept.clear()
        assert "has no secret" in run("sign", "pdf", "--key", "globex")[2]
    finally:
        keyring.set_keyring(before)


def test_a_name_stays_with_its_publisher(run: Run) -> None:
    assert run("sign", "pdf", *LOCKED)[0] == 0
    assert run("install", "./pdf", "--yes")[0] == 0
    text = Path("pdf/SKILL.md").read_text().replace("1.2.0", "1.3.0")
    Path("pdf/SKILL.md").write_text(text)
    Path("pdf/skill.sig").unlink()
    why = f"`pdf` is installed as signed by acme of {REGISTRY}, and this one is "
    code, _, err = run("install", "./pdf", "--yes", "--allow-unsigned")
    assert (code, f"{why}unsigned" in err) == (1, True)
    assert run("keys", "new", "globex", "--for", "skills", *LOCKED)[0] == 0
    assert run("keys", "request", "globex", *LOCKED)[0] == 0
    assert run("keys", "issue", "globex.csr", "--by", "root", *LOCKED)[0] == 0
    assert run("sign", "pdf", "--key", "globex", *LOCKED)[0] == 0
    code, _, err = run("install", "./pdf", "--yes")
    assert (code, f"{why}signed by globex of {REGISTRY}" in err) == (1, True)
    assert run("verify")[:2] == (0, AS_INSTALLED)
    assert run("sign", "pdf", "--key", "acme", "--replace", *LOCKED)[0] == 0
    assert run("update", "--yes")[0] == 0
    assert "version    1.3.0" in run("info", "pdf")[1]


def test_an_intermediate_issues_in_place_of_the_root(run: Run) -> None:
    assert run("keys", "new", "ca", "--for", "intermediate", *LOCKED)[0] == 0
    assert run("keys", "request", "ca", *LOCKED)[0] == 0
    code, _, err = run("keys", "issue", "ca.csr", "--by", "root", *LOCKED)
    assert (code, "add --intermediate" in err) == (2, True)
    code, out, _ = run("keys", "issue", "ca.csr", "--by", "root", "--intermediate", *LOCKED)
    assert (code, "intermediate-ca.crt" in out) == (0, True)
    # A developer's request never becomes one that issues.
    code, _, err = run("keys", "issue", "acme.csr", "--by", "root", "--intermediate", *LOCKED)
    assert code == 2
    assert run("keys", "issue", "acme.csr", "--by", "ca", *LOCKED)[0] == 0
    assert run("sign", "pdf", *LOCKED)[0] == 0
    code, out, _ = run("verify", "./pdf", "--json")
    assert (code, json.loads(out)["handle"]) == (0, "acme")


def test_a_certificate_from_elsewhere_is_kept_for_its_key(
    run: Run, elsewhere: Callable[[], None]
) -> None:
    elsewhere()
    assert run("keys", "new", "globex", "--for", "skills", *LOCKED)[0] == 0
    assert run("keys", "request", "globex", *LOCKED)[0] == 0
    message = step(run, "sign", "pdf", *LOCKED)
    assert message.startswith("certificate: the key `globex` has no certificate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(Path.home().parent / "home"))
        assert run("keys", "issue", "globex.csr", "--by", "root", *LOCKED)[0] == 0
    code, out, _ = run("keys", "certify", "developer-globex.crt")
    assert (code, out.startswith("kept the certificate of `globex`: ")) == (0, True)
    assert step(run, "keys", "certify", "developer-acme.crt").startswith("certificate: no key here")
    assert run("sign", "pdf", *LOCKED)[0] == 0


def test_the_signature_of_another_is_replaced_only_on_demand(run: Run) -> None:
    assert run("keys", "new", "globex", "--for", "skills", *LOCKED)[0] == 0
    assert run("keys", "request", "globex", *LOCKED)[0] == 0
    assert run("keys", "issue", "globex.csr", "--by", "root", *LOCKED)[0] == 0
    code, _, err = run("sign", "pdf", *LOCKED)
    assert (code, "name one with --key: `acme`, `globex`" in err) == (2, True)
    assert run("sign", "pdf", "--key", "acme", *LOCKED)[0] == 0
    assert run("sign", "pdf", "--key", "acme", *LOCKED)[0] == 0
    message = step(run, "sign", "pdf", "--key", "globex", *LOCKED)
    assert message.startswith("signature: it is signed by acme")
    assert run("sign", "pdf", "--key", "globex", "--replace", *LOCKED)[0] == 0
    code, _, err = run("sign", "pdf", "--key", "root", *LOCKED)
    assert (code, "issues certificates" in err) == (2, True)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not here")
def test_a_timestamp_is_asked_for_and_trusted(run: Run, place: Path) -> None:
    authority = TimestampAuthority(place / "authority")

    class Answer(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = authority.answer(body) if self.path == "/tsr" else b"no timestamp"
            self.answer(200, answer)

    config = place / "home" / ".config" / "skillhouse" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[net]\nprivate = ["127.0.0.1/32"]\n')
    with served(Answer) as url:
        assert step(run, "sign", "pdf", "--timestamp", f"{url}/no", *LOCKED).startswith("timestamp")
        assert not Path("pdf/skill.sig").exists()
        assert run("sign", "pdf", "--timestamp", f"{url}/tsr", *LOCKED)[0] == 0
    value = json.loads(run("verify", "./pdf", "--json")[1])
    assert value["is_time_trusted"] is False
    assert "no timestamp authority is trusted here" in value["warnings"][0]
    code, _, err = run("keys", "trust", "root.crt", "--for", "timestamps")
    assert code == 1  # A root of skills stamps nothing.
    assert "a root of publishers confirms no times" in err
    root = place / "authority" / "root.pem"
    assert run("keys", "trust", str(root), "--for", "timestamps")[0] == 0
    value = json.loads(run("verify", "./pdf", "--json")[1])
    assert value["is_time_trusted"] is True
    gone = f"{url}/tsr"  # Its server is closed.
    before = Path("pdf/skill.sig").read_bytes()
    assert run("sign", "pdf", "--timestamp", gone, *LOCKED)[0] == 1
    assert Path("pdf/skill.sig").read_bytes() == before


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not here")
def test_signing_asks_the_authority_of_the_configuration(run: Run, place: Path) -> None:
    code, out, _ = run("sign", "pdf", *LOCKED)
    end = x509.load_pem_x509_certificate(Path("developer-acme.crt").read_bytes())
    day = f"{end.not_valid_after_utc:%Y-%m-%d}"
    unset = "no timestamp authority is set (`registry.timestamp`, or --timestamp URL)"
    assert (code, f"it ends with the certificate, on {day}: {unset}" in out) == (0, True)
    authority = TimestampAuthority(place / "authority")

    class Answer(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, authority.answer(body))

    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    with served(Answer) as url:
        config.write_text(
            f'[net]\nprivate = ["127.0.0.1/32"]\n[registry]\ntimestamp = "{url}/tsr"\n'
        )
        code, out, _ = run("sign", "pdf", *LOCKED)
        kept = f"the timestamp of {url}/tsr keeps it when the certificate ends, on {day}"
        assert (code, kept in out) == (0, True)
        value = json.loads(run("sign", "pdf", *LOCKED, "--json")[1])
        assert (value["timestamped"], value["certificate_ends"][:10]) == (True, day)
        code, out, _ = run("sign", "pdf", "--no-timestamp", *LOCKED)
        assert (code, f"on {day}: no authority was asked" in out) == (0, True)
        both = run("sign", "pdf", "--no-timestamp", "--timestamp", url, *LOCKED)
        assert (both[0], "exclude each other" in both[2]) == (2, True)
    before = Path("pdf/skill.sig").read_bytes()
    code, _, err = run("sign", "pdf", *LOCKED)
    assert (code, "--no-timestamp signs without it" in err) == (1, True)
    assert Path("pdf/skill.sig").read_bytes() == before
    for wrong in ("timestamps", "ftp://x.example/", "https://me@x.example/"):
        config.write_text(f'[registry]\ntimestamp = "{wrong}"\n')
        assert "expected https://host/path in `timestamp`" in run("list")[2]


def test_what_ends_soon_is_said_where_skills_are_shown(
    run: Run, elsewhere: Callable[[], None]
) -> None:
    issue = ("keys", "issue", "acme.csr", "--by", "root", "--days", "20", "--output", "short.crt")
    assert run(*issue, *LOCKED)[0] == 0
    assert run("keys", "certify", "short.crt")[0] == 0
    assert run("sign", "pdf", *LOCKED)[0] == 0
    elsewhere()
    run("keys", "trust", "root.crt")
    end = x509.load_pem_x509_certificate(Path("short.crt").read_bytes()).not_valid_after_utc
    said = f"the certificate of acme ends on {end:%Y-%m-%d}, and no timestamp keeps what it signed"
    out = run("install", "./pdf", "--dry-run")[1]
    assert said in " ".join(out.split())
    value = json.loads(run("install", "./pdf", "--yes", "--json")[1])["skills"][0]
    assert value["warnings"] == [
        "the registry has no revocation list here, so none was asked", said,
    ]  # fmt: skip
    assert f"; {said}" in run("verify")[1]
    # The first time is in the log, once.
    assert run("audit", "list", "--json")[1].count('"system:skill-verified"') == 1
    assert f"user:pdf: {said}" in run("list")[1]
    assert said in " ".join(run("doctor")[1].split())
    assert said in json.loads(run("verify", "./pdf", "--json")[1])["ending"]


def test_keys_and_what_is_trusted_are_listed(run: Run) -> None:
    code, out, err = run("keys", "list")
    assert (code, err) == (0, "")
    certificate = x509.load_pem_x509_certificate(Path("root.crt").read_bytes())
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    assert f"root  root certificate, until {until}" in out
    assert f"skill://{REGISTRY}/publisher/acme" in out
    found = json.loads(run("keys", "list", "--json")[1])["keys"]
    assert [(one["name"], one["for"], one["kind"]) for one in found] == [
        ("acme", "skills", "p256"),
        ("root", "root", "p384"),
    ]
    (root,) = json.loads(run("keys", "trust", "--json")[1])["roots"]
    assert root["certificate"] == found[1]["certificates"][0]["certificate"]
    code, out, _ = run("keys", "trust")
    assert root["certificate"] in out
    assert run("keys", "trust", "--remove", root["certificate"][:12])[0] == 0
    assert run("keys", "trust")[2].startswith("nothing is trusted yet")
    assert step(run, "keys", "trust", "--remove", "00000000").startswith("trust: nothing trusted")


def test_a_coding_agent_signs_and_trusts_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    for words in (
        ("sign", "pdf"),
        ("keys", "new", "more", "--for", "skills"),
        ("keys", "request", "acme"),
        ("keys", "issue", "acme.csr", "--by", "root"),
        ("keys", "certify", "developer-acme.crt"),
        ("keys", "revoke", "developer-acme.crt", "--by", "root"),
        ("keys", "trust", "root.crt"),
        ("keys", "trust", "--remove", "00000000"),
    ):
        assert "is for a person" in run(*words)[2]
    assert run("keys", "trust")[0] == 0


def test_what_cannot_be_is_said_in_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, code, message in (
        (("verify", "./nothing"), 2, "expected the directory of a skill"),
        (("verify", "./pdf"), 1, "unsigned: there is no `skill.sig`"),
        (("verify", "./pdf", "csv"), 2, "a directory is verified alone"),
        (("keys", "request", "root", *LOCKED), 2, "a root has its certificate already"),
        (("keys", "request", "none", *LOCKED), 1, "no publisher key `none`"),
        (("keys", "issue", "root.crt", "--by", "root", *LOCKED), 1, "request: expected a request"),
        (("keys", "issue", "acme.csr", "--by", "acme", *LOCKED), 2, "expected a root or an"),
        (("keys", "new", "acme", "--for", "skills", *LOCKED), 1, "is a publisher key `acme`"),
        (("keys", "new", "b", "--for", "skills", "--days", "3", *LOCKED), 2, "with its certific"),
        (
            ("keys", "new", "r", "--for", "root", "--registry", "A", *LOCKED),
            1,
            "name: expected a r",
        ),
        (("keys", "new", "r", "--for", "root", "--days", "9999", *LOCKED), 1, "for 1 to 7300 days"),
        (("keys", "request", "r", *LOCKED), 1, "no publisher key `r`"),
        (("keys", "trust", "developer-acme.crt"), 1, "purpose: the root certificate must"),
        (("keys", "trust", "acme.csr"), 1, "bundle: is no JSON"),
        (("keys", "revoke", "--by", "root", "--from", "2026-01-01", *LOCKED), 2, "--from is about"),
        (
            ("keys", "issue", "acme.csr", "--by", "root", "--days", "500", *LOCKED),
            1,
            "a developer certificate is valid for 1 to 397 days, not 500",
        ),
    ):
        found = run(*words)
        assert (found[0], message in found[2]) == (code, True), found
    monkeypatch.setenv("PUBLISHER_TEST", "wrong horse")
    assert "key: does not open: another password" in run("sign", "pdf", *LOCKED)[2]
    monkeypatch.setenv("PUBLISHER_TEST", "short")
    assert "8 characters" in run("keys", "new", "b", "--for", "skills", *LOCKED)[2]
    monkeypatch.setenv("PUBLISHER_TEST", "")
    assert "is empty" in run("sign", "pdf", *LOCKED)[2]
