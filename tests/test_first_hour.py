"""The command blocks of the README and of the first hour, run as a newcomer would run them.

Everything that a block needs is on its page: they run in order, in a fresh home, and no terminal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    # Installing needs a network; scripts/ and CI build and install the wheel.
    "README.md": ("uv tool install",),
    "docs/guides/first-hour.md": (),
}
FINDINGS = ("skillhouse doctor", "skillhouse validate ~/.agents/skills/broken")
"""Commands whose exit code 1 says that they found what the page speaks of."""


def blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for block in found if not any(word in block for word in PAGES[page])]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_the_page_works_in_a_fresh_home(page: str, tmp_path: Path) -> None:
    home, work, programs = (tmp_path / name for name in ("home", "work", "bin"))
    for directory in (home, work, programs):
        directory.mkdir()
    (programs / "skillhouse").symlink_to(Path(sys.executable).with_name("skillhouse"))
    environment = {"HOME": str(home), "PATH": f"{programs}:{os.defpath}", "LANG": "C.UTF-8"}
    found = blocks(page)
    assert len(found) > 1
    for block in found:
        script = block
        for command in FINDINGS:
            line = re.compile(rf"^{re.escape(command)}\b.*$", re.MULTILINE)
            script = line.sub(f"{command} || test $? = 1", script)
        done = subprocess.run(
            ["bash", "-e"],
            input=script,
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


def test_after_the_first_hour_the_skill_is_where_two_clients_look(tmp_path: Path) -> None:
    test_each_command_of_the_page_works_in_a_fresh_home("docs/guides/first-hour.md", tmp_path)
    for folder in (".agents", ".claude"):
        assert (tmp_path / "home" / folder / "skills/standup/SKILL.md").is_file()
    assert "git log *" in (tmp_path / "home/.config/skillhouse/config.toml").read_text()
