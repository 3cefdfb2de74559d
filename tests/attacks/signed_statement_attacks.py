"""Attacks on what a signature says: the files, the skill, and a developer who cheats."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from skillhouse.floor import structs
from skillhouse.registry import write_bundle
from tests.attacks.signed_case import Case, attack, attacks, by_restated, restated
from tests.registry.pki import IDENTITY, NOW, signed, with_payload
from tests.registry.publisher_skill import make_skill

# The files.


@attack("files", naively=True)
def _added_file_in_a_git_directory(case: Case) -> None:
    (case.directory / ".git").mkdir()
    (case.directory / ".git" / "config").write_text("[core]")


# Which skill.


@attack("identity", naively=False)
def _signature_of_another_skill(case: Case) -> None:
    other = make_skill(case.directory.parent / "other", "csv")
    identity = structs.replace(IDENTITY, name="csv")
    case.signature = write_bundle(signed(other, case.world.developer, identity=identity))


@attack("identity", naively=True)
def _signature_of_another_version(case: Case) -> None:
    identity = structs.replace(IDENTITY, version="1.1.0")
    case.signature = case.world.signature(identity=identity)


@attack("identity", naively=True)
def _signature_for_another_repository(case: Case) -> None:
    case.expected = structs.replace(IDENTITY, repository="other.example.com")


@attack("identity", naively=True)
def _signed_for_a_repository_that_the_key_is_not_of(case: Case) -> None:
    identity = structs.replace(IDENTITY, repository="other.example.com")
    case.signature = case.world.signature(identity=identity)
    case.expected = structs.replace(IDENTITY, repository="")


@attack("identity", naively=True)
def _renamed_skill(case: Case) -> None:
    case.expected = structs.replace(IDENTITY, name="pdf-2")


@attack("identity", naively=True)
def _signed_in_the_future(case: Case) -> None:
    case.signature = case.world.signature(now=NOW + timedelta(hours=1))


# What is signed, by a developer who cheats.


@attack("statement", naively=True)
def _more_paths_left_out(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        value["predicate"]["serialization"]["ignore_paths"].append("scripts")
        value["predicate"]["resources"].pop()

    restated(case, change)


@attack("statement", naively=True)
def _duplicate_keys_in_the_statement(case: Case) -> None:
    bundle = case.world.bundle()
    payload = bundle.payload.replace(b'"subject":', b'"subject":[],"subject":', 1)
    case.signature = write_bundle(with_payload(bundle, payload, case.world.developer.key))


attacks(
    "files",
    naively=False,
    changed_file=lambda case: (case.directory / "SKILL.md").write_text("other"),
    removed_file=lambda case: (case.directory / "scripts" / "run.py").unlink(),
    renamed_file=lambda case: (case.directory / "scripts" / "run.py").rename(
        case.directory / "scripts" / "walk.py"
    ),
)
attacks(
    "files",
    naively=True,
    added_file=lambda case: (case.directory / "scripts" / "more.py").write_text("import os"),
    executable_flag_set=lambda case: (case.directory / "SKILL.md").chmod(0o755),
    executable_flag_cleared=lambda case: (case.directory / "scripts" / "run.py").chmod(0o644),
    a_second_signature_file_deeper=lambda case: (
        case.directory / "scripts" / "skill.sig"
    ).write_text("{}"),
)
by_restated(
    "statement",
    naively=True,
    file_without_mode=lambda value: value["predicate"]["skill"]["modes"].popitem(),
    without_identity=lambda value: value["predicate"].pop("skill"),
    subject_of_another_name=lambda value: value["subject"][0].update(name="csv"),
    digest_that_is_not_of_the_files=lambda v: v["predicate"]["skill"].update(
        tree_digest="skilltree1:" + "0" * 64
    ),
    file_listed_twice=lambda value: value["predicate"]["resources"].append(
        value["predicate"]["resources"][0]
    ),
    another_kind_of_statement=lambda value: value.update(
        predicateType="https://slsa.dev/provenance/v1"
    ),
    weaker_hash_of_files=lambda v: v["predicate"]["serialization"].update(hash_type="sha1"),
)
