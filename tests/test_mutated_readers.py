"""Each reader of a stranger's bytes gives a value or one of our errors, whatever the bytes.

The seeds are valid documents; `MUTATION_SEED=N` makes other mutations than those of every run.
"""

from __future__ import annotations

import base64
import json
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from skillhouse.clients import config_file
from skillhouse.clients.client_table import ClientConfig, server_configs
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.floor import SkillhouseError
from skillhouse.floor.documents import json_value, toml_table
from skillhouse.house import load_config
from skillhouse.house.config.repositories import published_repositories
from skillhouse.house.conversation import agent_skills
from skillhouse.registry import pack, read_lock
from skillhouse.registry.facts import read_facts
from skillhouse.registry.other_locks import decode_other_lock
from skillhouse.registry.releases import decode_repository, decode_skill
from skillhouse.registry.revocations import LIST_TYPE, list_number
from skillhouse.registry.signature_bundle import read_bundle, read_statement
from skillhouse.remote.source import RemoteSource, read_listing
from skillhouse.skill import read_archive, read_manifest, validate
from skillhouse.skill.profile import read_profile
from skillhouse.tiers.tier_file import read_tier_policy
from tests.frontends.mutated_documents import (
    CLAUDE,
    CODEX,
    CONFIG,
    OTHER_LOCK,
    POLICY,
    SETTINGS,
)
from tests.house.places import make_places
from tests.mutations import Mutations
from tests.seed_skills import BODY, FRONTMATTERS, PACKAGE, PYPROJECT, SIGNATURE

SEED = int(os.environ.get("MUTATION_SEED", "20261126"))
SECONDS_MAX = 20

Reader = Callable[[bytes, Path], object]


def of_file(read: Callable[[Path], object], name: str) -> Reader:
    """Return a reader of a file as one of bytes."""

    def reader(data: bytes, place: Path) -> object:
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return read(file)

    return reader


def config_of(data: bytes, place: Path) -> object:
    places = make_places(place)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_bytes(data)
    return load_config(places)


def edited(config: ClientConfig) -> Reader:
    """Return what reads, extends and mends a client's file."""

    def reader(data: bytes, _: Path) -> object:
        try:
            text = data.decode()
            value = config_file.parsed(config, text)
            servers = value.get(config.table)
            for name, entry in servers.items() if isinstance(servers, dict) else ():
                config.words(entry)
                config_file.without_entry(config, text, name)
                config_file.with_values(config, text, name, {"command": "x"})
            return config_file.with_entry(config, text, "new", config.entry(["a", "b"]))
        except (NotEditableError, UnicodeDecodeError):
            return None

    return reader


RELEASES = json.dumps(
    {
        "name": "pdf",
        "namespace": "default",
        "skill": "pdf",
        "description": "Reads PDF.",
        "latest": "1.0.0",
        "versions": [
            {
                "version": "1.0.0",
                "digest": f"sha256:{'0' * 64}",
                "tree_digest": f"skilltree1:{'0' * 64}",
                "size": 10,
                "published_at": "2026-01-01T00:00:00Z",
                "signature": {"publisher": "acme", "cert_sha256": "0" * 64},
            }
        ],
        "channels": {"latest": "1.0.0"},
    },
    indent=1,
).encode()
REPOSITORY = b'{"api": 1, "name": "skills.example.com"}'
INDEX = json.dumps(
    {
        "$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json",
        "skills": [
            {
                "name": "pdf",
                "type": "archive",
                "url": "https://x.invalid/pdf.zip",
                "digest": f"sha256:{'0' * 64}",
                "description": "x",
            }
        ],
    },
    indent=1,
).encode()
OPENCODE_INDEX = json.dumps(
    {"skills": [{"name": "pdf", "description": "x", "files": ["SKILL.md", "a/b.md"]}]}
).encode()
LOCK = json.dumps(
    {
        "lockfile_version": 1,
        "skills": {
            "pdf": {
                "version": "1.0.0",
                "requested": "pdf",
                "repository": "https://x.invalid",
                "resolved": "https://x.invalid/pdf.tar.gz",
                "inside": "",
                "digest": f"sha256:{'0' * 64}",
                "tree_digest": f"skilltree1:{'0' * 64}",
                "size": 10,
                "signature": {"publisher": "acme", "cert_sha256": "0" * 64},
                "install": {"mode": "copy", "path": "a/pdf"},
                "pinned": False,
                "previous": None,
            }
        },
    },
    indent=1,
).encode()
PROFILE = b'title = "Mine"\nsymlinks = "follow"\nroots = [{scope = "user", path = "~/x"}]\n'
PUBLISHED = b"skills:\n  repositories:\n    - name: one\n      url: https://x.invalid\n"
REVOCATIONS = json.dumps(
    {
        "version": 1,
        "number": 1,
        "registry": "x",
        "issued_at": "2026-01-01T00:00:00Z",
        "expires_at": "2027-01-01T00:00:00Z",
        "entries": [{"certificate": "0" * 64, "reason": "lost"}],
    }
).encode()
STATEMENT = json.dumps(
    {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://model_signing/signature/v1.0",
        "subject": [{"name": "pdf", "digest": {"sha256": "0" * 64}}],
        "predicate": {
            "skill": {"name": "pdf", "version": "1", "modes": {"a": 420}, "sizes": {"a": 1}},
            "resources": [{"name": "a", "digest": "0" * 64, "algorithm": "sha256"}],
        },
    }
).encode()


def in_bundle(data: bytes, _: Path) -> object:
    """Read a list of revocations that any key signed."""
    bundle = json.loads(SIGNATURE)
    envelope = bundle["dsseEnvelope"]
    envelope["payload"], envelope["payloadType"] = base64.b64encode(data).decode(), LIST_TYPE
    return list_number(json.dumps(bundle).encode())


@dataclass(frozen=True, slots=True)
class Case:
    """A reader, a document that it reads, and what this is."""

    reader: Reader
    seed: bytes
    kind: str


READERS = {
    "JSON": Case(lambda data, _: json_value(data), SIGNATURE, "json"),
    "TOML": Case(lambda data, _: toml_table(data), CONFIG.encode(), "toml"),
    "lock": Case(of_file(read_lock, "skills.lock"), LOCK, "json"),
    "lock of others": Case(decode_other_lock, (OTHER_LOCK % 0).encode(), "json"),
    "skill of a registry": Case(
        lambda data, _: decode_skill(data, namespace="default", skill="pdf"), RELEASES, "json"
    ),
    "registry": Case(lambda data, _: decode_repository(data), REPOSITORY, "json"),
    "bundle": Case(
        lambda data, _: read_bundle(data, "application/vnd.in-toto+json"), SIGNATURE, "json"
    ),
    "statement": Case(lambda data, _: read_statement(data), STATEMENT, "json"),
    "revocations": Case(in_bundle, REVOCATIONS, "json"),
    "index": Case(
        lambda data, _: read_listing(
            RemoteSource(url="https://x.invalid"), data, "https://x.invalid/i"
        ),
        INDEX,
        "json",
    ),
    "index of opencode": Case(
        lambda data, _: read_listing(
            RemoteSource(url="https://x.invalid", kind="opencode"), data, "https://x.invalid/i"
        ),
        OPENCODE_INDEX,
        "json",
    ),
    "configuration": Case(config_of, CONFIG.encode(), "toml"),
    "published configuration": Case(
        of_file(published_repositories, "config.yaml"), PUBLISHED, "text"
    ),
    "policy": Case(
        lambda data, place: read_tier_policy(data, place / "policy.yml"), POLICY.encode(), "text"
    ),
    "profile": Case(of_file(read_profile, "mine.toml"), PROFILE, "toml"),
    "agent": Case(
        of_file(agent_skills, "agent.md"),
        b"---\nname: agent\ndescription: x\nskills: a, b\n---\nx\n",
        "text",
    ),
    "package.json": Case(
        of_file(lambda file: read_manifest(file.parent), "package.json"), PACKAGE, "json"
    ),
    "pyproject.toml": Case(
        of_file(lambda file: read_manifest(file.parent), "pyproject.toml"), PYPROJECT, "toml"
    ),
    **{
        f"SKILL.md {number}": Case(
            of_file(lambda file: (validate(file.parent), facts(file)), "skill/SKILL.md"),
            b"---\n" + each + b"---\n" + BODY,
            "text",
        )
        for number, each in enumerate(FRONTMATTERS)
    },
    **{
        f"file of {config.client}": Case(
            edited(config),
            (CODEX if config.format == "toml" else CLAUDE if config.nested else SETTINGS).encode(),
            config.format,
        )
        for config in server_configs()
    },
    "archive": Case(lambda data, _: [one.read() for one in read_archive(data)], b"", "text"),
}


def facts(file: Path) -> object:
    return read_facts(file.parent, file.parent.name)


def faults(name: str, seeds: range, place: Path) -> list[str]:
    """Return what a reader did that is no answer."""
    case = READERS[name]
    seed_bytes = case.seed
    if name == "archive":
        skill = place / "packed"
        skill.mkdir()
        (skill / "SKILL.md").write_bytes(b"---\nname: packed\ndescription: x\n---\nx\n")
        seed_bytes = pack(skill).archive
    found = []
    for seed in seeds:
        mutations = Mutations(seed)
        data = mutations.mutated(seed_bytes, case.kind)
        if name.startswith("SKILL.md") and mutations.random.random() < 0.5:
            data = mutations.frontmatter(seed_bytes)
        began = time.monotonic()
        try:
            case.reader(data, place)
        except SkillhouseError:
            pass
        except Exception:  # noqa: BLE001 - each of them is what is looked for.
            found.append(f"{name}, seed {seed}: {traceback.format_exc(limit=-8)}")
        if time.monotonic() - began > SECONDS_MAX:
            found.append(f"{name}, seed {seed}: over {SECONDS_MAX} seconds")
    return found


@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_mutated_bytes_answers(tmp_path: Path, name: str) -> None:
    found = faults(name, range(SEED, SEED + 40), tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_five_hundred_mutations_answers(tmp_path: Path, name: str) -> None:
    found = faults(name, range(SEED + 1_000, SEED + 1_500), tmp_path)
    assert not found, "\n".join(found)
