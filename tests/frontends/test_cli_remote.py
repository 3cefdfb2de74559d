"""Tests of `skillhouse remote`, against a real web server on loopback."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from tests.frontends.conftest import Run
from tests.loopback_http import QuietHandler, serving_http
from tests.person_answers import approve
from tests.remote.servers import SCHEMA, digest_of, tar_of, text_of

INDEX = "/.well-known/agent-skills/index.json"


class Shop(http.server.ThreadingHTTPServer):
    """Serves what a test puts into it, and remembers what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.pages: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def offer(self, **skills: bytes) -> list[dict[str, str]]:
        """List these skills, each one file or one archive, and return the entries."""
        entries = []
        for name, data in skills.items():
            self.pages[f"/files/{name}"] = data
            kind = "skill-md" if data.startswith(b"---") else "archive"
            entries.append(
                {
                    "name": name,
                    "type": kind,
                    "url": f"/files/{name}",
                    "digest": digest_of(data),
                    "description": "x",
                }
            )
        self.list(entries)
        return entries

    def list(self, entries: list[dict[str, str]]) -> None:
        self.pages[INDEX] = json.dumps({"$schema": SCHEMA, "skills": entries}).encode()


class _Answer(QuietHandler):
    def do_GET(self) -> None:
        shop = self.server
        assert isinstance(shop, Shop)
        shop.asked.append(self.path)
        if self.path in shop.moved:
            self.answer(302, headers={"Location": shop.moved[self.path]})
        elif self.path in shop.pages:
            self.answer(200, shop.pages[self.path])
        else:
            self.answer(404, b"nothing here")


@pytest.fixture
def shop() -> Iterator[Shop]:
    with serving_http(Shop()) as shop:
        yield shop


@pytest.fixture
def other() -> Iterator[Shop]:
    with serving_http(Shop()) as shop:
        yield shop


def configure(
    place: Path, *sources: tuple[str, str], net: str = 'private = ["127.0.0.1/32"]'
) -> None:
    tables = [f'[[remotes]]\nurl = "{url}"\nkind = "{kind}"' for url, kind in sources]
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([f"[net]\n{net}", *tables]))


def log_of(place: Path) -> list[Any]:
    return list(read_records(place / "home/.local/state/skillhouse/audit.jsonl", limit=10))


@pytest.mark.slow
def test_skills_of_both_kinds_of_server_are_listed_with_their_scope_and_asked_about(
    run: Run, place: Path, shop: Shop, other: Shop
) -> None:
    shop.offer(alpha=text_of("alpha"), beta=tar_of({"SKILL.md": text_of("beta"), "a.py": b"1\n"}))
    index = {"skills": [{"name": "gamma", "files": ["SKILL.md", "ref/x.md"]}]}
    other.pages = {
        "/repo/index.json": json.dumps(index).encode(),
        "/repo/gamma/SKILL.md": text_of("gamma"),
        "/repo/gamma/ref/x.md": b"x",
    }
    configure(place, (shop.url, "well-known"), (f"{other.url}/repo", "opencode"))
    assert "remote:" not in run("list", "--json")[1]
    assert (shop.asked, other.asked) == ([], [])
    assert "never" in run("remote", "list")[1]

    code, out, err = run("remote", "sync")
    assert (code, [line for line in out.splitlines() if line.startswith("http")]) == (
        0,
        [f"{shop.url}: 2 skills", f"{other.url}/repo: 1 skill"],
    )
    assert f"syncing {shop.url}\n  fetching {shop.url}{INDEX}\n" in err

    found = json.loads(run("list", "--json")[1])["skills"]
    remote = [skill["id"] for skill in found if skill["scope"] == "remote"]
    assert remote == ["remote:alpha", "remote:beta", "remote:gamma"]
    assert all("skills of scope remote default to ask" in run("show", skill)[1] for skill in remote)
    assert "\n  alpha" in run("list")[1]
    assert run("list")[1].startswith("remote  http")

    code, _, err = run("call", "skill", "--args", '{"name": "gamma"}')
    assert (code, "skills of scope remote default to ask" in err) == (1, True)
    (waiting,) = json.loads(run("approvals", "list", "--json")[1])["approvals"]
    approve(place / "home/.local/state/skillhouse", waiting["id"])
    code, out, _ = run("call", "skill", "--args", '{"name": "gamma"}')
    assert (code, "Body." in out, "ref/x.md" in out) == (0, True, True)

    listed = json.loads(run("remote", "list", "--json")[1])["remotes"]
    assert [(state["skills"], state["read"]) for state in listed] == [
        (["alpha", "beta"], True),
        (["gamma"], True),
    ]
    assert all(state["synced_at"] for state in listed)


@pytest.mark.slow
def test_a_changed_skill_is_seen_in_the_next_process_and_asked_about_anew(
    run: Run, place: Path, shop: Shop
) -> None:
    shop.offer(alpha=text_of("alpha", "Old."))
    configure(place, (shop.url, "well-known"))
    run("remote", "sync")
    run("call", "skill", "--args", '{"name": "alpha"}')
    (waiting,) = json.loads(run("approvals", "list", "--json")[1])["approvals"]
    approve(place / "home/.local/state/skillhouse", waiting["id"], Answer.ALWAYS)
    assert "Old." in run("call", "skill", "--args", '{"name": "alpha"}')[1]
    assert "Old." in run("call", "skill", "--args", '{"name": "alpha"}')[1]

    shop.offer(alpha=text_of("alpha", "New."))
    code, out, _ = run("remote", "sync", shop.url, "--json")
    assert (code, json.loads(out)["remotes"][0]["changed"]) == (0, ["alpha"])
    code, out, err = run("call", "skill", "--args", '{"name": "alpha"}')
    assert (code, out) == (1, "")
    assert "not approved" in err
    assert [(e.record.tool, e.status) for e in log_of(place) if e.record.tool == "remote:sync"] == [
        ("remote:sync", "ok"),
        ("remote:sync", "ok"),
    ]


def test_an_address_that_is_not_public_must_be_named_by_the_operator(
    run: Run, place: Path, shop: Shop
) -> None:
    shop.offer(alpha=text_of("alpha"))
    configure(place, (shop.url, "well-known"), net="private = []")
    code, out, err = run("remote", "sync")
    assert code == 1
    assert "which is not public" in err
    assert "what was here is as it was" in out
    assert shop.asked == []
    (entry,) = log_of(place)
    assert (entry.record.tool, entry.status) == ("remote:sync", "error")


@pytest.mark.slow
def test_a_wrong_digest_costs_that_skill_alone(run: Run, place: Path, shop: Shop) -> None:
    entries = shop.offer(alpha=text_of("alpha"), beta=text_of("beta", "Evil."))
    shop.list([entries[0], {**entries[1], "digest": f"sha256:{'0' * 64}"}])
    configure(place, (shop.url, "well-known"))
    code, out, _ = run("remote", "sync", "--json")
    (synced,) = json.loads(out)["remotes"]
    assert (code, synced["added"], len(synced["problems"])) == (1, ["alpha"], 1)
    assert "expected sha256:000" in synced["problems"][0]
    kept = place / "home/.cache/skillhouse"
    assert not [p for p in kept.rglob("*") if p.is_file() and b"Evil." in p.read_bytes()]


@pytest.mark.slow
def test_only_the_servers_origin_and_listed_hosts_are_asked(
    run: Run, place: Path, shop: Shop, other: Shop
) -> None:
    """What a server lists or redirects to may be anywhere: also in the operator's own network."""
    (entry,) = shop.offer(alpha=text_of("alpha"))
    other.pages["/alpha"] = text_of("alpha")
    elsewhere = {**entry, "url": f"{other.url}/alpha"}
    shop.moved["/files/moved"] = f"{other.url}/alpha"
    shop.moved["/files/near"] = "/files/alpha"
    near = {**entry, "url": "/files/near"}
    configure(place, (shop.url, "well-known"))
    for offered, code in ((elsewhere, 1), ({**entry, "url": "/files/moved"}, 1), (near, 0)):
        shop.list([offered])
        assert run("remote", "sync")[0] == code
        assert other.asked == []
    assert json.loads(run("remote", "list", "--json")[1])["remotes"][0]["skills"] == ["alpha"]
    configure(
        place,
        (shop.url, "well-known"),
        net=f'private = ["127.0.0.1/32"]\nhosts = ["{other.url}"]',
    )
    shop.offer(beta=text_of("beta"))
    other.pages["/beta"] = text_of("beta")
    shop.list(
        [
            {
                **entry,
                "name": "beta",
                "url": f"{other.url}/beta",
                "digest": digest_of(text_of("beta")),
            }
        ]
    )
    assert run("remote", "sync")[0] == 0
    assert other.asked == ["/beta"]


def test_an_address_that_is_not_configured_is_refused_with_the_nearest(
    run: Run, place: Path, shop: Shop
) -> None:
    code, _, err = run("remote", "sync")
    assert (code, "add `[[remotes]]`" in err) == (2, True)
    configure(place, (shop.url, "well-known"))
    code, _, err = run("remote", "sync", f"{shop.url}0")
    assert (code, f"did you mean `{shop.url}`" in err) == (2, True)
    assert shop.asked == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[remotes]]\nurl = "http://skills.test"', "expected https"),
        ('[[remotes]]\nurl = "ftp://skills.test"', "expected https://host/path"),
        ('[[remotes]]\nurl = "https://a.test"\n[[remotes]]\nurl = "https://a.test"', "twice"),
        ('[[remotes]]\nurll = "https://a.test"', "did you mean `url`"),
        ('[[remotes]]\nurl = "https://a.test"\nkind = "other"', "wrong value"),
    ],
)
def test_a_remote_that_is_none_is_an_error_of_its_file(
    run: Run, place: Path, text: str, said: str
) -> None:
    configure(place)
    file = place / "home/.config/skillhouse/config.toml"
    file.write_text(text)
    code, _, err = run("remote", "list")
    assert (code, said in err, str(file) in err) == (2, True, True)


def test_what_is_synced_never_lies_where_other_skills_are_looked_for(
    run: Run, place: Path, shop: Shop
) -> None:
    """Below an explicit root a stranger's skill would be allowed like one of the user's own."""
    shop.offer(alpha=text_of("alpha"))
    configure(place, (shop.url, "well-known"))
    file = place / "home/.config/skillhouse/config.toml"
    inside = place / "home/.agents/skills/.cache"
    file.write_text(f'cache_directory = "{inside}"\n{file.read_text()}')
    for arguments in (("remote", "sync"), ("list",)):
        code, _, err = run(*arguments)
        assert (code, "is below" in err) == (2, True)
    assert shop.asked == []
    assert not inside.exists()


def test_a_profile_without_remote_skills_says_so(run: Run, place: Path, shop: Shop) -> None:
    shop.offer(alpha=text_of("alpha"))
    configure(place, (shop.url, "well-known"))
    assert run("remote", "sync")[0] == 0
    assert "has no skills of other servers" in run("remote", "list", "--profile", "owliabot")[1]
    assert "remote:alpha" not in run("list", "--json", "--profile", "owliabot")[1]


ONLY = '[[registry.sources]]\nsource = "{}"\n'


def allow(place: Path, *sources: str) -> None:
    """Let the operator allow some sources, as a managed file does."""
    file = place / "home/.config/skillhouse/config.toml"
    file.write_text(file.read_text() + "\n" + "".join(map(ONLY.format, sources)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((), ("alpha", "beta")),
        (("official",), ()),
        (("https://skills.example.com/*",), ()),
        (("{shop}",), ("alpha",)),
        (("{shop}/*", "{other}"), ("alpha", "beta")),
        (("{other}/*",), ("beta",)),
    ],
)
def test_servers_that_the_operator_does_not_allow_are_neither_asked_nor_read(
    run: Run,
    place: Path,
    shop: Shop,
    other: Shop,
    sources: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    shop.offer(alpha=text_of("alpha"))
    other.offer(beta=text_of("beta"))
    named = [one.format(shop=shop.url, other=other.url) for one in sources]
    configure(place, (shop.url, "well-known"), (other.url, "well-known"))
    # Both were synced before there was a rule: it works where none forbids it.
    assert run("remote", "sync")[0] == 0
    before = len(shop.asked), len(other.asked)
    allow(place, *named)
    listed = json.loads(run("list", "--json")[1])["skills"]
    names = tuple(one["name"] for one in listed if one["scope"] == "remote")
    assert names == expected
    states = json.loads(run("remote", "list", "--json")[1])["remotes"]
    assert tuple(one["skills"][0] for one in states if one["read"]) == expected
    for name in {"alpha", "beta"} - set(expected):
        assert run("call", "skill", "--args", json.dumps({"name": name}))[0] == 1
    code, out, err = run("remote", "sync")
    refused = (out + err).count("is not among the sources that `registry.sources`")
    assert (code, refused) == (int(len(expected) < 2), 2 - len(expected))
    is_asked = len(shop.asked) > before[0], len(other.asked) > before[1]
    assert is_asked == ("alpha" in expected, "beta" in expected)
