"""What it costs to check the signature of a skill.

`./x bench registry [--files N] [--rounds N]` signs a skill of N files and checks it often, with the
reading of its files, as an install does, and without. The page cache is warm.

`./x bench registry --server [--versions N]` measures a package server with N versions.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from _measure import markdown_table
from _registry_server import server_rows
from skillhouse.floor import read_tree
from skillhouse.registry import (
    AnchorStore,
    PublisherCheck,
    SkillIdentity,
    TrustAnchors,
    issue,
    new_request,
    new_root,
    publisher_name,
    sign_tree,
    signed_skill,
    verify_signature,
    write_bundle,
)
from skillhouse.registry.trust import TRUSTED_DIRECTORY

REGISTRY = "skills.example.com"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the check of signatures.")
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--server", action="store_true", help="the package server instead")
    parser.add_argument("--versions", type=int, default=100_000, help="that the server has")
    options = parser.parse_args()
    if options.server:
        print(server_rows(options.versions, 10 * options.rounds // 3))
        return
    with tempfile.TemporaryDirectory() as place:
        rows = measured(Path(place), options.files, options.rounds)
    print(
        markdown_table(
            ("check of a signed skill", "files", "median, ms", "p99, ms", "CPU, ms"), rows
        )
    )


def measured(place: Path, files: int, rounds: int) -> list[tuple[str, ...]]:
    skill = place / "pdf"
    skill.mkdir()
    header = "---\nname: pdf\ndescription: Reads PDF files.\n---\n"
    (skill / "SKILL.md").write_text(header + "Read it.\n" * 400)
    for number in range(files - 1):
        (skill / f"page-{number:03}.md").write_text(f"{number} words\n" * 400)
    now = datetime.now(UTC)
    root_key = ec.generate_private_key(ec.SECP384R1())
    root = new_root(root_key, REGISTRY, now)
    key = ec.generate_private_key(ec.SECP256R1())
    name = publisher_name(REGISTRY, "acme")
    chain = issue(new_request(key, name), name, issuer=[root], key=root_key, now=now)
    identity = SkillIdentity(name="pdf", repository=REGISTRY)
    tree = read_tree(skill)
    signature = write_bundle(sign_tree(tree, identity, key=key, chain=chain, now=now))
    (skill / "skill.sig").write_bytes(signature)
    AnchorStore(place / TRUSTED_DIRECTORY).add_root(root)
    check, anchors = PublisherCheck(place), TrustAnchors(roots=(root,))
    cases: dict[str, Callable[[], object]] = {
        "the signature alone, files read before": lambda: verify_signature(
            tree, signature, identity, anchors=anchors, now=now
        ),
        "as `verify ./DIR`: files, roots and SKILL.md read too": lambda: signed_skill(skill, check),
        "as at load: files read, roots too": lambda: check.publisher_of(skill, read_tree(skill)),
    }
    rows: list[tuple[str, ...]] = []
    for text, work in cases.items():
        work()
        times = sorted(_timed(work, time.perf_counter) for _ in range(rounds))
        median, high = statistics.median(times), times[len(times) * 99 // 100]
        used = statistics.median(_timed(work, time.thread_time) for _ in range(rounds))
        found = (median, high, used)
        rows.append((text, str(files), *(f"{seconds * 1e3:.2f}" for seconds in found)))
    return rows


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    before = clock()
    work()
    return clock() - before


if __name__ == "__main__":
    main()
