"""The skill that publishers of tests sign, and their words; it needs no library of signatures."""

from __future__ import annotations

from pathlib import Path

REGISTRY = "skills.example.com"
PASSWORD = "correct horse"
LOCKED = ("--password", "env:PUBLISHER_TEST")
"""Where commands of tests find the password of a publisher's key."""
AS_INSTALLED = (
    "user:pdf  as installed; the registry has no revocation list here, so none was asked\n"
)
"""What `verify` says of the skill where no list was taken over."""
SKILL = """---
name: pdf
description: Reads PDF files when asked to.
metadata:
  version: "1.2.0"
---
Read it.
"""


def make_skill(place: Path, name: str = "pdf") -> Path:
    """Return a skill of two files, one of them executable."""
    directory = place / name
    (directory / "scripts").mkdir(parents=True)
    (directory / "SKILL.md").write_text(SKILL.replace("name: pdf", f"name: {name}"))
    script = directory / "scripts" / "run.py"
    script.write_text("print(1)\n")
    script.chmod(0o755)
    return directory
