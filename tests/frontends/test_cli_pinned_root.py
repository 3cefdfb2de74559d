"""Tests of `keys trust --repository`: the root of a repository that a person pins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.floor import digest
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY
from tests.frontends.conftest import Run
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.loopback_http import QuietHandler, served
from tests.registry.rooted import RootedRegistry

AGREED = ("--yes", "--allow-unsigned", "--accept-untrusted")
NAMED = ("--repository", "team")


@pytest.fixture
def registry(place: Path) -> Iterator[RootedRegistry]:
    made = RootedRegistry(place)
    made.publish("pdf", "1.0.0", "acme")
    made.give({"pdf": ("acme",)})
    configure(place, ("team", made.directory.as_uri(), True))
    yield made
    made.close()


def root_of(registry: RootedRegistry) -> str:
    return str(registry.directory / METADATA_DIRECTORY / FIRST_ROOT)


def other_registry(place: Path) -> Path:
    """Return the directory of another registry, with a root of its own."""
    (place / "other").mkdir()
    made = RootedRegistry(place / "other")
    made.publish("pdf", "2.0.0")
    made.close()
    return made.copied("mirror")


def test_a_root_is_pinned_by_its_fingerprint(run: Run, registry: RootedRegistry):
    words = ("keys", "trust", root_of(registry), *NAMED, "--fingerprint")
    code, out, err = run(*words, registry.root)
    assert (code, out) == (0, f"pinned for `team`: {registry.root}\n")
    assert f"  fingerprint  {registry.root}\n" in err
    assert "  signed by    2 of 3 keys, until " in err
    assert f"repository team\n    {registry.root}\n" in run("keys", "trust")[1]
    listed = json.loads(run("keys", "trust", "--json")[1])["repositories"]
    assert listed == [{"repository": "team", "root": registry.root}]
    assert run("install", "pdf", *AGREED)[0] == 0


def test_what_is_pinned_here_counts_as_what_the_configuration_pins(
    run: Run, place: Path, registry: RootedRegistry
):
    """Another registry takes the place of the one that is pinned."""
    evil = other_registry(place)
    configure(place, ("team", evil.as_uri(), True))
    assert run("install", "pdf@2.0.0", *AGREED)[0] == 0, "it works on who pins nothing"
    assert run("uninstall", "pdf")[0] == 0
    words = ("keys", "trust", root_of(registry), *NAMED, "--fingerprint", registry.root[7:])
    assert run(*words)[0] == 0
    code, out, err = run("install", "pdf", *AGREED)
    assert (code, lock_of(place)) == (1, {})
    assert "is not as its root signed it" in out + err
    configure(place, ("team", registry.directory.as_uri(), True))
    assert run("install", "pdf", *AGREED)[0] == 0
    assert lock_of(place)["pdf"]["version"] == "1.0.0"


def test_another_fingerprint_pins_nothing(run: Run, registry: RootedRegistry):
    code, _, err = run(
        "keys", "trust", root_of(registry), *NAMED, "--fingerprint", "sha256:" + "0" * 64
    )
    assert code == 1
    assert f"got {registry.root}" in err
    assert json.loads(run("keys", "trust", "--json")[1])["repositories"] == []


def test_without_a_file_it_is_the_root_that_the_repository_has(run: Run, registry: RootedRegistry):
    code, out, _ = run("keys", "trust", *NAMED, "--fingerprint", registry.root, "--json")
    assert (code, json.loads(out)) == (0, {"repository": "team", "root": registry.root})


def test_an_address_is_fetched(run: Run, registry: RootedRegistry):
    data = Path(root_of(registry)).read_bytes()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            is_there = self.path == "/1.root.json"
            self.send_response(200 if is_there else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with served(Handler) as address:
        words = ("--fingerprint", registry.root)
        assert run("keys", "trust", f"{address}/1.root.json", *NAMED, *words)[0] == 0
        code, _, err = run("keys", "trust", f"{address}/none", *NAMED, *words)
        assert (code, "status 404" in err) == (1, True)


def test_a_root_of_another_pin_takes_its_place_and_is_named(
    run: Run, place: Path, registry: RootedRegistry
):
    other = other_registry(place)
    first = other / METADATA_DIRECTORY / FIRST_ROOT
    pin = digest(first.read_bytes())
    run("keys", "trust", str(first), *NAMED, "--fingerprint", pin)
    code, _, err = run("keys", "trust", *NAMED, "--fingerprint", registry.root)
    assert (code, f"in place of  {pin}" in err) == (0, True)
    assert run("keys", "trust", "--remove", registry.root)[0] == 0
    assert run("keys", "trust")[2].startswith("nothing is trusted yet")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("registry/metadata/timestamp.json",), 1, "expected the root of a repository"),
        (("text.json",), 1, "expected the root of a repository"),
        (("forged.json",), 1, "expected the root of a repository"),
        (("none.json",), 3, "none.json"),
        (("--repository", "nowhere"), 1, "no repository `nowhere` is configured"),
        (("root.json", "--for", "timestamps"), 2, "--repository pins a root"),
        (("root.json", "--remove", "00000000"), 2, "--repository pins a root"),
    ],
)
def test_what_is_no_root_is_refused(
    run: Run, place: Path, registry: RootedRegistry, words: tuple[str, ...], code: int, said: str
):
    shutil.copy(root_of(registry), "root.json")
    if not Path("registry").exists():
        shutil.copytree(registry.directory, "registry")
    Path("text.json").write_text('{"api": 1}')
    forged = json.loads(Path("root.json").read_text())
    forged["signatures"] = forged["signatures"][:1]
    Path("forged.json").write_text(json.dumps(forged))
    named = () if "--repository" in words else NAMED
    found = run("keys", "trust", *words, *named, "--fingerprint", registry.root)
    assert (found[0], said in found[2]) == (code, True), found


def test_a_fingerprint_alone_and_a_root_of_the_configuration_are_refused(
    run: Run, place: Path, registry: RootedRegistry
):
    code, _, err = run("keys", "trust", root_of(registry), "--fingerprint", registry.root)
    assert (code, "add --repository NAME" in err) == (2, True)
    configure(
        place,
        ("team", registry.directory.as_uri(), True),
        more=f'root = "{registry.root}"\n',
    )
    code, _, err = run("keys", "trust", *NAMED, "--fingerprint", registry.root)
    assert (code, "the configuration pins the root of `team`" in err) == (1, True)


def test_a_pin_that_cannot_be_read_is_no_missing_pin(
    run: Run, place: Path, registry: RootedRegistry
):
    run("keys", "trust", *NAMED, "--fingerprint", registry.root)
    (kept,) = (place / "home/.local/state/skillhouse/publishers/trusted/repositories").iterdir()
    kept.chmod(0o666)
    code, out, err = run("install", "pdf", *AGREED)
    assert (code, lock_of(place)) == (1, {})
    assert "the root of `team` cannot be used" in out + err


def test_a_coding_agent_pins_nothing(
    run: Run, registry: RootedRegistry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLAUDECODE", "1")
    assert run("keys", "trust", *NAMED, "--fingerprint", registry.root)[0] != 0
    monkeypatch.delenv("CLAUDECODE")
    assert json.loads(run("keys", "trust", "--json")[1])["repositories"] == []
