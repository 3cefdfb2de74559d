"""Installing, updating and verifying skills of repositories from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.floor import structs
from skillhouse.registry.releases import encode_document
from tests.frontends.conftest import Run
from tests.loopback_http import served
from tests.registry.repositories import StaticRepository, static_server
from tests.registry.sources import make_skill

UNSIGNED = ("--yes", "--allow-unsigned")
AGREED = (*UNSIGNED, "--accept-untrusted")


def configure(place: Path, *repositories: tuple[str, str, bool], more: str = "") -> None:
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(
        f'[[skills.repositories]]\nname = "{name}"\nurl = "{url}"\n'
        f"trusted = {str(trusted).lower()}\n{more}"
        for name, url, trusted in repositories
    )
    file.write_text(text)


@pytest.fixture
def official(place: Path) -> StaticRepository:
    """A trusted repository that is configured, with two versions of `notes`."""
    made = StaticRepository(place / "official")
    made.make("1.0.0")
    made.make("1.1.0")
    configure(place, ("official", made.address, True))
    return made


@pytest.fixture
def community(place: Path, official: StaticRepository) -> StaticRepository:
    """A second repository, which is not trusted."""
    made = StaticRepository(place / "community", "community.example")
    configure(place, ("official", official.address, True), ("community", made.address, False))
    return made


def installed(place: Path, name: str = "notes") -> str:
    return (place / "home/.agents/skills" / name / "SKILL.md").read_text()


def lock_of(place: Path) -> dict[str, dict[str, object]]:
    path = place / "home/.config/skillhouse/skills.lock"
    if not path.exists():
        return {}
    found: dict[str, dict[str, object]] = json.loads(path.read_text())["skills"]
    return found


def json_records(text: str) -> list[dict[str, str]]:
    listed = json.loads(text)["records"]
    return [one for entry in listed for one in (entry["record"], entry["outcome"]) if one]


@pytest.mark.req("S002-100", "S002-119")
def test_a_name_is_installed_from_its_repository(run: Run, place: Path, official):
    code, out, err = run("install", "notes", *UNSIGNED)
    assert (code, err) == (0, "")
    assert "repository official" in out
    assert "Version 1.1.0" in installed(place)
    entry = lock_of(place)["notes"]
    release = official.skills["notes"].versions[0]
    assert {key: entry[key] for key in ("repository", "resolved", "requested", "version")} == {
        "repository": "official",
        "resolved": f"{official.address}/skills/notes/1.1.0",
        "requested": "notes",
        "version": "1.1.0",
    }
    assert (entry["digest"], entry["tree_digest"]) == (release.digest, release.tree_digest)
    assert run("verify")[:2] == (0, "user:notes  as installed\n")
    assert run("install", "notes", *UNSIGNED)[0] == 0
    assert run("outdated")[0] == 0


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("notes@^1.0", "1.1.0"), ("notes@1.0.0", "1.0.0"), ("notes@~1.0.0", "1.0.0"),
     ("notes@beta", "2.0.0-rc.1"), ("@acme/notes", "3.0.0"), ("@acme/notes@3", "3.0.0")],
)  # fmt: skip
def test_ranges_channels_and_namespaces(run: Run, place: Path, official, wanted, version):
    official.make("2.0.0-rc.1")
    official.make("3.0.0", namespace="acme")
    found = official.skills["notes"]
    official.put(structs.replace(found, channels={"beta": "2.0.0-rc.1"}))
    assert run("install", wanted, *UNSIGNED)[0] == 0
    entry = lock_of(place)["notes"]
    assert (entry["version"], entry["requested"]) == (version, wanted)
    assert entry["repository"] == ("official/@acme" if "acme" in wanted else "official")


@pytest.mark.req("S002-100")
def test_the_published_configuration_is_read_as_printed(run: Run, place: Path, official):
    (place / "home/.config/skillhouse/config.toml").unlink()
    file = place / "home/.config/skillhouse/config.yaml"
    file.write_text(
        "skills:\n  repositories:\n    - name: official\n"
        f"      url: {official.address}\n      trusted: true\n"
        "    - name: community\n      url: https://community-skills.example.com\n"
        "      trusted: false    # warns when it installs\n"
    )
    code, out, _ = run("config", "repositories", "--json")
    assert code == 0
    assert [(one["name"], one["trusted"]) for one in json.loads(out)["repositories"]] == [
        ("official", True),
        ("community", False),
    ]
    assert (
        "community  https://community-skills.example.com  not trusted"
        in run("config", "repositories")[1]
    )
    assert run("install", "notes", *UNSIGNED)[0] == 0
    for text, said in (
        ("skill:\n  repositories: []\n", "unknown key `skill`"),
        ("skills:\n  repositories: x\n", "expected a list"),
        ("skills:\n  repositories:\n    - name: a\n", "`url` of `a` is missing"),
        (
            "skills:\n  repositories:\n    - name: a\n      url: /x\n      trusted: maybe\n",
            "true or",
        ),
        (
            "skills:\n  repositories:\n    - name: a\n      url: /x\n      trust: true\n",
            "`trusted`",
        ),
        ("skills: [\n", "not YAML"),
    ):
        file.write_text(text)
        code, _, err = run("list")
        assert (code, said in err, "config.yaml" in err) == (2, True, True), err
    file.write_text("")
    assert run("config", "check")[0] == 0


def test_a_repository_that_cannot_be_one_is_an_error(run: Run, place: Path):
    for url, more, said in (
        ("ftp://x.example", "", "expected https://host/path"),
        ("http://x.example", "", "is reached by https"),
        ("https://me@x.example", "", "expected https://host/path"),
        ("/mirror", 'token = "secret"', "expected `file:PATH`, `env:NAME` or `oidc`"),
        ("/mirror", 'tokens = "env:X"', "did you mean `token`"),
    ):
        configure(place, ("official", url, True), more=f"{more}\n")
        code, _, err = run("list")
        assert (code, said in err) == (2, True), err
        assert "secret" not in err.replace("SECRET", "")
    configure(place, ("a", "/x", True), ("a", "/y", True))
    assert "two repositories are called `a`" in run("list")[2]
    configure(place, ("../a", "/x", True))
    assert "expected a name of a-z" in run("list")[2]


def test_no_project_names_a_repository(run: Run, place: Path, official):
    text = f'[[skills.repositories]]\nname = "evil"\nurl = "{official.address}"\ntrusted = true\n'
    (place / "project/skillhouse.toml").write_text(text)
    assert run("trust", "--yes")[0] == 0
    assert [one["name"] for one in json.loads(run("config", "repositories", "--json")[1])[
        "repositories"
    ]] == ["official"]  # fmt: skip


@pytest.mark.req("S002-101")
def test_a_repository_that_is_not_trusted_is_warned_about_and_accepted_by_a_word(
    run: Run, place: Path, community, typing
):
    community.make("1.0.0", "memos")
    for flags in ((), ("--yes",), UNSIGNED, ("--yes", "--accept-untrusted")):
        code, out, err = run("install", "memos", *flags)
        assert (code, lock_of(place)) == (2, {})
        assert "warning: `community` is not trusted; " in out
        assert "days ago, unsigned" in " ".join(out.split())
        assert "its repository is not trusted" in err
    for words in ("yes", "unsigned\nyes", "untrusted\nunsigned"):
        assert typing(words, "install", "memos")[0] == 1
        assert lock_of(place) == {}
    assert typing("unsigned\nuntrusted", "install", "memos")[0] == 0
    assert run("uninstall", "memos")[0] == 0
    code, out, err = run("install", "memos", *AGREED)
    assert (code, err) == (0, "")
    assert lock_of(place)["memos"]["repository"] == "community"
    # An update needs the word again.
    community.make("1.1.0", "memos")
    assert run("update", *UNSIGNED)[0] == 2
    assert run("update", *AGREED)[0] == 0
    value = json.loads(run("install", "memos", "--dry-run", "--json")[1])["skills"][0]
    assert (value["trusted"], value["repository"]) == (False, "community")


def test_a_lock_of_others_needs_the_word_too(run: Run, place: Path, community):
    community.make("1.0.0", "memos")
    assert run("install", "memos", "--project", *AGREED)[0] == 0
    (place / "project/.agents/skills/memos").rename(place / "away")
    frozen = ("install", "--frozen", "--project", "--allow-unsigned")
    code, _, err = run(*frozen)
    assert (code, "`community` is not trusted: use --accept-untrusted" in err) == (1, True)
    assert run(*frozen, "--accept-untrusted")[0] == 0


def test_a_repository_may_give_signed_skills_only(run: Run, place: Path, official):
    configure(place, ("official", official.address, True), more="require_signature = true\n")
    code, _, err = run("install", "notes", *AGREED)
    assert (code, lock_of(place)) == (1, {})
    assert "`notes` is unsigned, and `require_signature` is set for `official`" in err


@pytest.mark.req("S002-105")
def test_an_unknown_skill_or_version_is_a_clear_error(run: Run, place: Path, official):
    listing = {"skills": [{"name": "notes", "description": "x"}]}
    official.write(".well-known/agent-skills/index.json", json.dumps(listing).encode())
    code, _, err = run("install", "nots", *UNSIGNED)
    assert code == 1
    assert "no skill `nots` in `official`; did you mean `notes` in official" in err
    code, _, err = run("install", "notes@^2", *UNSIGNED)
    assert code == 1
    assert "`notes` has no version `^2`; there are `1.1.0`, `1.0.0` [unknown-version]" in err
    code, _, err = run("install", "notes", "--repository", "oficial", *UNSIGNED)
    assert "no repository `oficial` is configured; did you mean `official`" in err
    configure(place)
    code, _, err = run("install", "notes", *UNSIGNED)
    assert code == 1
    assert "no repository of packages is configured that could have `notes`" in err


@pytest.mark.req("S002-106")
def test_repositories_are_asked_in_order_and_a_name_stays_where_it_is_locked(
    run: Run, place: Path, official, community
):
    community.make("9.0.0")
    community.make("1.0.0", "memos")
    assert run("install", "notes", *UNSIGNED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.1.0"
    code, _, err = run("install", "notes", "--repository", "community", *AGREED)
    assert code == 1
    assert "policy: `notes` is locked to official, and this one is from community" in err
    assert run("install", "memos", *AGREED)[0] == 0
    # The first repository has the name now, with a higher version: it is not the one that is meant.
    official.make("99.0.0", "memos")
    assert run("update", *AGREED)[0] == 0
    assert run("install", "memos", *AGREED)[0] == 0
    assert (lock_of(place)["memos"]["version"], run("outdated")[0]) == ("1.0.0", 0)
    # Another namespace is another owner.
    official.make("99.0.0", namespace="acme")
    code, _, err = run("install", "@acme/notes", *UNSIGNED)
    assert "`notes` is locked to official, and this one is from official/@acme" in err
    assert lock_of(place)["notes"]["version"] == "1.1.0"


def test_a_repository_that_cannot_be_asked_ends_the_search(run: Run, place: Path, community):
    community.make("9.0.0", "memos")
    gone = ("official", "http://127.0.0.1:9/x", True)
    configure(place, gone, ("community", community.address, True))
    code, _, err = run("install", "memos", *AGREED)
    assert (code, lock_of(place)) == (1, {})
    assert "repository `official`: " in err
    assert "the repositories after it are not asked" in err
    assert run("install", "memos", "--repository", "community", *AGREED)[0] == 0


@pytest.mark.req("S002-103")
def test_another_archive_than_that_of_the_index_is_refused_and_recorded(
    run: Run, place: Path, official
):
    new, old = official.skills["notes"].versions
    blob = official.place / "blobs/sha256" / new.digest[7:9] / new.digest[7:]
    blob.write_bytes(official.archives[old.digest][:-1] + b"x")
    code, _, err = run("install", "notes", *UNSIGNED)
    assert (code, lock_of(place)) == (1, {})
    assert err.startswith(f"skillhouse: notes: digest: expected {new.digest}, got sha256:")
    assert not (place / "home/.agents/skills/notes").exists()
    log = run("audit", "list", "--json", "--limit", "50")[1]
    assert [one["tool"] for one in json_records(log) if one["status"] == "error"] == [
        "manage:fetch"
    ]


def test_an_update_stays_in_the_range_and_never_goes_back(run: Run, place: Path, official):
    assert run("install", "notes@^1.0", *UNSIGNED)[0] == 0
    official.make("1.2.0")
    official.make("2.0.0")
    code, out, _ = run("outdated")
    assert (code, out) == (1, "notes  1.1.0 → 1.2.0, 1 file\n")
    assert run("update", *UNSIGNED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.2.0"
    official.change("notes", "1.2.0", state="yanked", reason="drops pages")
    code, out, err = run("update", *UNSIGNED)
    assert code == 1
    assert "would go back from 1.2.0, which its repository took back, to 1.1.0" in err
    assert run("verify")[:2] == (
        0,
        "user:notes  as installed; it was yanked by its repository: drops pages\n",
    )
    code, out, _ = run("install", "notes@1.1.0", *UNSIGNED)
    assert code == 0
    assert "warning: installed is the newer 1.2.0, and this one is 1.1.0" in " ".join(out.split())
    assert lock_of(place)["notes"]["version"] == "1.1.0"
    assert "yanked" in run("install", "notes@1.2.0", *UNSIGNED)[2]


def test_a_yanked_version_comes_from_a_lock_only_and_a_revoked_one_never(
    run: Run, place: Path, official, monkeypatch: pytest.MonkeyPatch
):
    assert run("install", "notes@1.0.0", "--project", *UNSIGNED)[0] == 0
    official.change("notes", "1.0.0", state="yanked")
    other = place / "other"
    other.mkdir()
    (other / ".config").mkdir()
    (place / "home/.config/skillhouse").rename(other / ".config/skillhouse")
    monkeypatch.setenv("HOME", str(other))
    files = place / "project/.agents/skills/notes"
    files.rename(place / "away")
    assert run("install", "--frozen", "--project", "--allow-unsigned")[0] == 0
    assert "Version 1.0.0" in (files / "SKILL.md").read_text()
    official.change("notes", "1.0.0", state="revoked", reason="steals keys")
    code, out, _ = run("verify")
    assert code == 1
    assert "project:notes  refused: it was revoked by its repository: steals keys" in out
    assert run("verify", "--offline")[0] == 1
    files.rename(place / "away-too")
    code, _, err = run("install", "--frozen", "--project", "--allow-unsigned")
    assert code == 1
    assert "`notes` 1.0.0 was revoked: steals keys" in err
    assert not files.exists()
    offline = run("install", "--frozen", "--offline", "--project", "--allow-unsigned")
    assert (offline[0], "it was revoked by its repository: steals keys" in offline[2]) == (1, True)


def test_what_cannot_be_asked_is_no_success(run: Run, place: Path, official):
    assert run("install", "notes", *UNSIGNED)[0] == 0
    configure(place)
    code, out, err = run("verify")
    assert code == 1
    assert "user:notes  as installed, and its repository was not asked" in out
    assert "no repository `official` is configured" in err
    assert run("verify", "--offline")[0] == 0


def test_repositories_are_searched_and_listed(run: Run, place: Path, official, community):
    for made, names in ((official, ["notes", "acme--pdf"]), (community, ["memos"])):
        entries = [{"name": name, "description": f"About {name}."} for name in names]
        listing = json.dumps({"skills": entries}).encode()
        made.write(".well-known/agent-skills/index.json", listing)
    line = "official  @acme/pdf  About acme--pdf. (exact name)\n"
    assert run("install", "--search", "pdf")[1] == line
    line = "official  @acme/pdf  About acme--pdf. (name: pdf; description: about, pdf)\n"
    assert run("install", "--search", "about pdf")[1] == line
    value = json.loads(run("install", "--search", "pdf", "--json")[1])
    assert value["weak"] is False
    assert value["skills"][0]["reason"] == "exact name"
    assert run("install", "--list", "--repository", "community")[1].startswith("community  memos")
    found = json.loads(run("install", "--list", "--json")[1])["skills"]
    assert [one["name"] for one in found] == ["notes", "@acme/pdf", "memos"]
    assert run("install", "--search", "nothing at all")[0] == 0


def test_a_file_server_and_its_token(run: Run, place: Path, official, monkeypatch):
    handler = static_server(official.place)
    with served(handler) as address:
        configure(place, ("official", address, True), more='token = "env:NOTES_ACCESS"\n')
        code, _, err = run("install", "notes", *UNSIGNED)
        assert (code, "expected the token of `official` in the variable" in err) == (1, True)
        monkeypatch.setenv("NOTES_ACCESS", "a-long-secret-word")
        assert run("install", "notes", *UNSIGNED)[0] == 0
    assert set(handler.credentials) == {"Bearer a-long-secret-word"}  # type: ignore[attr-defined]
    assert "a-long-secret-word" not in run("audit", "list", "--json")[1]


def test_the_archive_must_be_what_the_index_says(run: Run, place: Path, official):
    source = make_skill(place / "evil/notes", version="1.5.0")
    tree = "skilltree1:" + "0" * 64
    official.publish(source, tree_digest=tree)
    assert f"skill: expected {tree}" in run("install", "notes", *UNSIGNED)[2]
    official.publish(source, version="1.6.0")
    assert "its archive holds 1.5.0" in run("install", "notes", *UNSIGNED)[2]
    other = make_skill(place / "evil/other")
    release = official.publish(other)
    found = official.skills["notes"]
    versions = (structs.replace(release, version="7.0.0"), *found.versions)
    official.put(structs.replace(found, versions=versions))
    assert "its archive holds `other`" in run("install", "notes", *UNSIGNED)[2]
    official.index().write_bytes(encode_document(found).replace(b'"api"', b'"x"')[:-3])
    assert "is no JSON" in run("install", "notes", *UNSIGNED)[2]
    assert lock_of(place) == {}
