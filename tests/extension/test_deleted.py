"""The core goes on without each extension of ours: deleted from a copy of the installed package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import skillhouse
from skillhouse.frontends.cli.verbs import VERBS
from tests.house.coded import tool, write_code
from tests.house.places import write_skill

pytestmark = [pytest.mark.slow, pytest.mark.heavy]  # It starts processes without bytecode.

ROOT = Path(__file__).resolve().parents[2]
DELETED: Mapping[str, tuple[str, ...]] = {
    "server": ("extensions/server", "frontends/api_client"),
    "registry": ("extensions/registry",),
    "cells": ("extensions/cells",),
    "chat": ("extensions/chat",),
    "channels": ("extensions/channels",),
    "installs": ("extensions/installs",),
    "meaning": ("extensions/meaning", "extensions/postgres"),
    "signer": (),
}
"""The folders of each below the package; the signer is another package, which is not there."""
OTHERS = (
    "adapters",
    *(f"skillhouse.{one.replace('/', '.')}" for folders in DELETED.values() for one in folders),
    "__main__",
    "compile_cell",
    "probe_cell",
    "own_tmp",
)
"""Modules that are not imported: of extensions, of other programs, and those that run alone."""
VERBS_OF = {verb: module.partition(":")[2] for verb, (module, _) in VERBS.items() if ":" in module}
RUNS: tuple[tuple[str, ...], ...] = (
    ("list", "--json"),
    ("catalog",),
    ("search", "weather", "--json"),
    ("show", "weather"),
    ("load", "weather"),
    ("tools",),
    ("call", "read", "--args", '{"path": "a.txt"}'),
    ("call", "exec", "--args", '{"command": "true"}'),
    ("doctor", "--json", "--client", "codex"),
    ("rehearse", "what is the weather"),
    ("policy", "explain", "exec", "ls"),
    ("approvals", "list", "--json"),
    ("audit", "list", "--json"),
    ("audit", "verify"),
    ("keys", "list", "--json"),
    ("tokens", "list", "--json"),
    ("config", "show"),
    ("validate", ".agents/skills/weather"),
    ("profiles", "list"),
    ("mcp", "status"),
    ("sandbox",),
    ("reload",),
    ("trust", "--show"),
    ("stop", "--reason", "a test"),
    ("completions", "bash"),
    ("self", "remove", "--dry-run"),
)
"""Verbs of the core with arguments by which they do something, whatever they answer."""


class Copy:
    """A copy of the package as it is installed, without one extension, and a place to run it in."""

    def __init__(self, base: Path, name: str) -> None:
        self.name = name
        self.source = base / "site"
        shutil.copytree(
            Path(skillhouse.__file__).parent,
            self.source / "skillhouse",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for folder in DELETED[name]:
            shutil.rmtree(self.source / "skillhouse" / folder)
        # The packages of ours that are installed editable are on no path of this process.
        paths = [self.source, *([] if name == "signer" else [ROOT / "signer/src"])]
        ours = [one for one in sys.path if one.endswith("site-packages")]
        self._start = (
            f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}; sys.path += {ours!r}; "
        )
        self.place = base / "project"
        (self.place / ".git").mkdir(parents=True)
        (base / "home").mkdir()
        (self.place / "a.txt").write_text("text\n")
        write_skill(base / "home/.agents/skills/weather", "Says what the weather is.")
        write_skill(self.place / ".agents/skills/weather")
        kept = {"PATH": os.environ["PATH"], "HOME": str(base / "home"), "COLUMNS": "80"}
        self._environment = kept

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        code = f"{self._start}from skillhouse.frontends.cli import main; sys.exit(main({words!r}))"
        return self.python(code)

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (sys.executable, "-I", "-S", "-c", code),
            cwd=self.place,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    @property
    def start(self) -> str:
        return self._start


@pytest.fixture(scope="module", params=DELETED)
def copy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp(request.param), request.param)


def test_every_module_of_the_core_is_imported(copy: Copy) -> None:
    """All of one process: what is left of the package has no import of what is gone."""
    code = (
        f"{copy.start}import importlib, pathlib\n"
        f"base = pathlib.Path({str(copy.source)!r})\n"
        f"skipped = {OTHERS!r}\n"
        "for file in sorted(base.rglob('*.py')):\n"
        "    name = '.'.join(file.relative_to(base).with_suffix('').parts)\n"
        "    name = name.removesuffix('.__init__')\n"
        "    if any(one in name for one in skipped): continue\n"
        "    if 'inside' in name: continue\n"
        "    module = importlib.import_module(name)\n"
        "    for one in getattr(module, '__all__', ()): getattr(module, one)\n"
        "print('done')\n"
    )
    done = copy.python(code)
    assert done.stdout == "done\n", done.stderr[-2_000:]


def test_every_verb_explains_itself_or_names_what_brings_it(copy: Copy) -> None:
    code = (
        f"{copy.start}import contextlib, io, json\n"
        "from skillhouse.frontends.cli import main\n"
        "from skillhouse.frontends.cli.verbs import VERBS\n"
        "found = {}\n"
        "for verb in VERBS:\n"
        "    out, err = io.StringIO(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        try: code = main([verb, '--help'])\n"
        "        except SystemExit as error: code = error.code\n"
        "    found[verb] = [code, err.getvalue()]\n"
        "print(json.dumps(found))\n"
    )
    done = copy.python(code)
    found = json.loads(done.stdout)
    missing = {verb for verb, (code, _) in found.items() if code}
    assert missing == {verb for verb, one in VERBS_OF.items() if one == copy.name}
    for verb in missing:
        code, said = found[verb]
        assert code == 3
        assert re.search(r"needs the optional part `\w+` .*; run ", said), said


def test_each_verb_of_the_core_runs(copy: Copy) -> None:
    code = (
        f"{copy.start}import contextlib, io, json\n"
        "from skillhouse.frontends.cli import main\n"
        "found = []\n"
        f"for words in {RUNS!r}:\n"
        "    out, err = io.StringIO(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        code = main(words)\n"
        "    found.append([' '.join(words), code, err.getvalue()])\n"
        "print(json.dumps(found))\n"
    )
    done = copy.python(code)
    assert done.stdout, done.stderr
    for words, code, said in json.loads(done.stdout):
        # 70 is a fault of ours, and 3 with the words about a part is one that is missing.
        assert code in (0, 1), (words, code, said)
        assert "optional part" not in said, (words, said)


def test_help_lists_all_verbs(copy: Copy) -> None:
    said = copy.run("help", "--all").stdout
    assert set(re.findall(r"^  (\w+)  +\S", said, re.MULTILINE)) == set(VERBS)


def test_without_the_signer_its_verbs_and_its_tool_name_what_brings_it(
    tmp_path: Path,
) -> None:
    copy = Copy(tmp_path, "signer")
    state = tmp_path / "home/.local/state/skillhouse"
    state.mkdir(parents=True, mode=0o700)
    (state / "keys.json").write_text("{}")
    (state / "keys.json").chmod(0o600)

    made = copy.run("keys", "new", "main")
    assert (made.returncode, "optional part `signer`" in made.stderr) == (3, True), made.stderr
    called = copy.run("call", "sign", "--args", "{}")
    assert "optional part `signer`" in called.stderr
    assert "keys of transactions are not listed" in copy.run("keys", "list").stderr
    # Keys that cannot be ended are not taken for ended.
    stopped = copy.run("stop", "--reason", "x")
    assert "session keys" in stopped.stderr + stopped.stdout


def test_without_what_runs_code_a_tool_of_a_skill_names_what_brings_it(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "cells")
    write_code(tmp_path / "home/.agents/skills/coin", "tools = {}", tool("price"))
    settings = tmp_path / "home/.config/skillhouse/config.toml"
    settings.parent.mkdir(parents=True)
    rule = '[[rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n'
    settings.write_text(f"[skill_code]\nenabled = true\n{rule}")

    assert "coin" in copy.run("tools").stdout
    called = copy.run("call", "coin__price", "--args", "{}")
    assert called.returncode == 1, called
    assert "optional part `all`" in called.stdout + called.stderr
