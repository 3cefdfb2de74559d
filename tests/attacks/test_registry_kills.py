"""Kills of publishers, servers and clients of a registry at random moments, and what is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import load_config
from skillhouse.registry import pack
from skillhouse.registry.releases import blob_path, index_path
from tests.attacks.test_install_kills import check
from tests.extensions.registry.hosting.servers import Server, serving
from tests.house.places import make_places
from tests.registry.sources import make_skill

KILLS = 50
"""In each of the four runs, of which three are nightly: together they are 200."""
AGREED = ("--yes", "--allow-unsigned")
CONFIG = """
[[skills.repositories]]
name = "official"
url = "{url}"
trusted = true
token = "env:SKILLS_TOKEN"
"""


@dataclass
class Scene:
    """A registry, and a user who publishes to it and installs from it."""

    base: Path
    token: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """Digest of each version that the registry ever had."""
    trees: set[str] = field(default_factory=set)
    made: int = 0
    revoked: set[str] = field(default_factory=set)
    """Versions of which a revocation was confirmed."""
    confirmed: set[str] = field(default_factory=set)
    """Versions of which the publication was confirmed."""

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        with serving(self.base / "registry") as server:
            self.token = self.token or server.token("admin")
            config = self.base / "home/.config/skillhouse/config.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(CONFIG.format(url=server.url))
            yield server

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "skillhouse", *words],
            cwd=self.base / "project",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.base / "home"),
                "SKILLS_TOKEN": self.token,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def words(self, act: str, chance: random.Random) -> tuple[str, ...]:
        """Return a command; what it is about is known to `confirm`."""
        if act == "publish":
            # The same one once more where it is not known how the last time ended.
            if f"1.{self.made}.0" in self.confirmed or not self.made:
                self.made += 1
            version = f"1.{self.made}.0"
            skill = make_skill(self.base / "made/notes", f"Body {version}.", version=version)
            package = pack(skill)
            self.trees.add(package.tree.digest)
            assert self.versions.setdefault(version, package.digest) == package.digest
            return ("publish", str(skill), *AGREED)
        if act == "revoke":
            newest = chance.choice(sorted(self.confirmed - self.revoked) or ["1.1.0"])
            return ("registry", "revoke", f"notes@{newest}", "--reason", "test")
        return {
            "install": ("install", "notes", *AGREED),
            "update": ("update", *AGREED),
            "uninstall": ("uninstall", "notes"),
        }[act]

    def confirm(self, words: tuple[str, ...]) -> None:
        if words[0] == "publish":
            self.confirmed.add(f"1.{self.made}.0")
        elif words[:2] == ("registry", "revoke"):
            self.revoked.add(words[2].partition("@")[2])

    def check_registry(self, server: Server) -> None:
        """No version is lost, double, half there or another one."""
        # A publisher that is gone may have been heard to the end just now.
        before = published(server)
        answer = server.ask(f"/{index_path('default', 'notes')}")
        found = answer.json["versions"] if answer.status == 200 else []
        states: dict[str, str] = {one["version"]: one["state"] for one in found}
        assert len(states) == len(found), "a version is there twice"
        assert self.confirmed <= set(states), "a confirmed version is lost"
        assert all(states[version] == "revoked" for version in self.revoked)
        for one in found:
            assert one["digest"] == self.versions[one["version"]], "another archive"
            blob = (self.base / "registry" / blob_path(one["digest"])).read_bytes()
            assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == one["digest"]
        after = published(server)
        assert len(set(after)) == len(after), "a version was published twice"
        assert set(before) <= set(states) <= set(after)
        # Whatever is there can be counted on from now.
        self.confirmed |= set(states)
        self.revoked |= {version for version, state in states.items() if state == "revoked"}


def published(server: Server) -> list[str]:
    changes: list[dict[str, Any]] = server.ask("/changes?since=0&limit=1000").json["changes"]
    return [one["version"] for one in changes if one["kind"] == "publish"]


@pytest.mark.heavy
@pytest.mark.req("S002-108")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_killed_50_times_no_version_is_lost_double_or_half(tmp_path: Path, seed: int) -> None:
    places = make_places(tmp_path)
    scene, chance = Scene(tmp_path), random.Random(seed)
    seen: dict[str, int] = {}
    longest = 1.5
    kills = 0
    while kills < KILLS:
        with scene.server() as server:
            is_up = True
            while is_up and kills < KILLS:
                act = chance.choice(
                    ("publish", "publish", "revoke", "install", "update", "uninstall")
                )
                words = scene.words(act, chance)
                victim = "server" if chance.random() < 0.3 else "client"
                process = scene.start(*words)
                try:
                    _, said = process.communicate(timeout=chance.uniform(0.2, 1) * longest)
                    ended = "ended"
                    longest = max(0.1, longest * 0.9)
                except subprocess.TimeoutExpired:
                    (server.process if victim == "server" else process).kill()
                    ended = f"{victim} killed"
                    kills += 1
                    longest = min(5.0, longest * 1.1)
                    _, said = process.communicate()
                    is_up = victim != "server"
                if process.returncode == 0:
                    scene.confirm(words)
                elif ended == "ended":
                    expected = ("no skill", "no installed", "no version", "revoked", "already")
                    assert any(word in said for word in expected), said
                seen[f"{act} {ended}"] = seen.get(f"{act} {ended}", 0) + 1
                if is_up:
                    scene.check_registry(server)
            check(places.home, scene.trees, load_config(places))
    with scene.server() as server:
        scene.check_registry(server)
        # Everything goes on: the version that was begun last is there in the end.
        process = scene.start(*scene.words("publish", chance))
        assert process.communicate()[1] is not None
        assert process.returncode == 0
        scene.check_registry(server)
    print(json.dumps(seen))
    assert len([what for what in seen if what.endswith("killed")]) >= 6
