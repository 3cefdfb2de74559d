"""Tests of what follows one another at the command line: keys, certificates, roots, signatures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.registry.publisher_skill import AS_INSTALLED, LOCKED, REGISTRY

LOAD = ("call", "skill", "--args", '{"name":"pdf"}')

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("publisher")]


def well(run: Run, *words: str) -> str:
    """Return what a command says, which must succeed."""
    code, out, err = run(*words)
    assert code == 0, err
    return out


def verified(run: Run, directory: str = "./pdf") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("verify", directory, "--json")[1])
    return found


def renewed(run: Run) -> None:
    """Sign the same files again, with another certificate of the same key."""
    well(run, "keys", "issue", "acme.csr", "--by", "root", *LOCKED)
    well(run, "sign", "pdf", "--replace", *LOCKED)


def certificate_of(name: str) -> Any:
    lock = json.loads(Path.home().joinpath(".config/skillhouse/skills.lock").read_text())
    return lock["skills"][name]["signature"]["cert_sha256"]


def test_an_update_brings_a_new_signature_over_the_same_files(run: Run) -> None:
    well(run, "sign", "pdf", *LOCKED)
    well(run, "install", "./pdf", "--yes")
    before = certificate_of("pdf")
    assert "up to date" in run("update", "--yes")[2]

    renewed(run)
    code, out, _ = run("outdated")
    assert (code, out) == (1, "pdf  1.2.0 → 1.2.0, another signature\n")
    out = well(run, "update", "--yes")
    assert "only its signature is another" in out
    assert certificate_of("pdf") == verified(run)["certificate"] != before
    assert run("verify")[:2] == (0, AS_INSTALLED)
    well(run, *LOAD)
    assert "up to date" in run("update", "--yes")[2]


def test_a_rollback_brings_the_signature_that_was_there_before(run: Run) -> None:
    well(run, "sign", "pdf", *LOCKED)
    well(run, "install", "./pdf", "--yes")
    before = Path("pdf/skill.sig").read_bytes()
    renewed(run)
    after = Path("pdf/skill.sig").read_bytes()
    well(run, "update", "--yes")
    installed = Path.home() / ".agents/skills/pdf/skill.sig"
    for wanted in (before, after, before):
        well(run, "rollback", "pdf", "--yes")
        assert installed.read_bytes() == wanted
        assert run("verify")[:2] == (0, AS_INSTALLED)
        well(run, *LOAD)


def test_locked_skills_come_back_with_the_signature_of_the_lock(run: Run) -> None:
    well(run, "sign", "pdf", *LOCKED)
    well(run, "install", "./pdf", "--yes")
    renewed(run)
    well(run, "update", "--yes")
    installed = Path.home() / ".agents/skills/pdf"
    shutil.rmtree(installed)
    well(run, "install", "--frozen", "--yes")
    assert (installed / "skill.sig").read_bytes() == Path("pdf/skill.sig").read_bytes()
    assert run("verify")[:2] == (0, AS_INSTALLED)
    # Its source has another signature by now, and nothing is kept here.
    renewed(run)
    shutil.rmtree(installed)
    shutil.rmtree(Path.home() / ".local/state/skillhouse/installs/packages")
    code, _, err = run("install", "--frozen", "--yes")
    assert (code, "another certificate than in the lock" in err) == (1, True), err
    assert not installed.exists()
    well(run, "update", "--yes")
    assert run("verify")[:2] == (0, AS_INSTALLED)


def test_a_new_key_of_a_developer_goes_on_while_old_releases_stay_valid(run: Run) -> None:
    well(run, "sign", "pdf", *LOCKED)
    shutil.copytree("pdf", "old/pdf")
    old = verified(run)["certificate"]
    shutil.copy("developer-acme.crt", "old.crt")

    well(run, "keys", "new", "acme-2", "--for", "skills", *LOCKED)
    well(run, "keys", "request", "acme-2", "--publisher", "acme", *LOCKED)
    well(run, "keys", "issue", "acme-2.csr", "--by", "root", *LOCKED)
    well(run, "install", "./pdf", "--yes")
    text = Path("pdf/SKILL.md").read_text().replace("1.2.0", "1.3.0")
    Path("pdf/SKILL.md").write_text(text)
    well(run, "sign", "pdf", "--key", "acme-2", *LOCKED)
    found = verified(run)
    assert (found["handle"], found["certificate"] == old) == ("acme", False)
    assert verified(run, "./old/pdf")["certificate"] == old
    well(run, "update", "--yes")
    assert "version    1.3.0" in well(run, "info", "pdf")

    # The old key ends: what only it signed is refused, what the new one signed is not.
    well(run, "keys", "revoke", "old.crt", "--by", "root", "--reason", "replaced", *LOCKED)
    assert verified(run, "./old/pdf")["step"] == "revocation"
    assert verified(run)["verified"] is True
    well(run, *LOAD)
    code, _, err = run("rollback", "pdf", "--yes")
    assert (code, "the certificate was revoked (replaced)" in err) == (1, True)
    assert "version    1.3.0" in well(run, "info", "pdf")


def test_a_root_is_replaced_while_both_are_trusted(run: Run) -> None:
    well(run, "sign", "pdf", *LOCKED)
    well(run, "install", "./pdf", "--yes")
    shutil.copytree("pdf", "old/pdf")
    new = ("keys", "new", "root-2", "--for", "root", "--registry", REGISTRY)
    well(run, *new, "--output", "root-2.crt", *LOCKED)
    first, second = (
        one["certificate"] for one in json.loads(well(run, "keys", "trust", "--json"))["roots"]
    )
    well(run, "keys", "issue", "acme.csr", "--by", "root-2", *LOCKED)
    well(run, "sign", "pdf", "--replace", *LOCKED)
    assert verified(run)["verified"] is verified(run, "./old/pdf")["verified"] is True
    # Each root has a list of its own, and revokes nothing of the other.
    well(run, "keys", "revoke", "--by", "root", "--output", "one.json", *LOCKED)
    well(run, "keys", "revoke", "--by", "root-2", "--output", "two.json", *LOCKED)
    assert verified(run)["warnings"] == verified(run, "./old/pdf")["warnings"] == []
    well(run, "update", "--yes")

    listed = json.loads(well(run, "keys", "list", "--json"))["keys"]
    old = next(one for one in listed if one["name"] == "root")["certificates"][0]["certificate"]
    assert old in (first, second)
    well(run, "keys", "trust", "--remove", old)
    assert verified(run)["verified"] is True
    assert verified(run, "./old/pdf")["step"] == "chain"
    assert run("verify")[:2] == (0, "user:pdf  as installed\n")
    well(run, *LOAD)


def test_an_intermediate_is_replaced_below_the_same_root(run: Run) -> None:
    for name in ("ca", "ca-2"):
        well(run, "keys", "new", name, "--for", "intermediate", *LOCKED)
        well(run, "keys", "request", name, *LOCKED)
        well(run, "keys", "issue", f"{name}.csr", "--by", "root", "--intermediate", *LOCKED)
    well(run, "keys", "issue", "acme.csr", "--by", "ca", *LOCKED)
    well(run, "sign", "pdf", *LOCKED)
    well(run, "install", "./pdf", "--yes")
    shutil.copytree("pdf", "old/pdf")
    well(run, "keys", "issue", "acme.csr", "--by", "ca-2", *LOCKED)
    well(run, "sign", "pdf", "--replace", *LOCKED)
    assert verified(run)["verified"] is verified(run, "./old/pdf")["verified"] is True
    well(run, "update", "--yes")
    well(run, "keys", "revoke", "intermediate-ca.crt", "--by", "root", *LOCKED)
    assert verified(run)["verified"] is True
    assert verified(run, "./old/pdf")["step"] == "revocation"
    well(run, *LOAD)
