"""Tests of tools/script_dependencies.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.tools.script_dependencies import FILES_MAX, files_beside, is_in_place_of_standard


def beside(root: Path, script: str, *argv: str) -> list[str]:
    path = root / script
    words = argv or ("python3", script)
    found = files_beside(str(path), path.read_bytes(), str(root), words)
    return [one.removeprefix(f"{root}/") for one in found]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "d/x.py": "import argparse, helper\nfrom pkg import part\nfrom pkg.deep import thing\n",
        "d/helper.py": "import second\n",
        "d/second.py": "",
        "d/pkg/__init__.py": "",
        "d/pkg/part.py": "from . import other\n",
        "d/pkg/other.py": "",
        "d/unused.py": "",
        "m/__main__.py": "from m import a\n",
        "m/a.py": "",
        "x.mjs": "import a from './lib/a.mjs'\nconst b = require('./b')\nimport('../out.js')\n",
        "lib/a.mjs": "export default 1\n",
        "b.js": "",
        "run.sh": 'set -e\n. ./env.sh\nsource "$(dirname $0)/lib.sh"\n',
        "env.sh": "",
        "lib.sh": "",
        "package.json": '{"scripts": {"build": "tsc && node build.js", "prebuild": "bash pre.sh"}}',
        "build.js": "require('./lib/c.cjs')\n",
        "lib/c.cjs": "",
        "pre.sh": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_a_script_loads_by_name_is_found(root: Path) -> None:
    assert set(beside(root, "d/x.py")) == {
        *("d/helper.py", "d/pkg/__init__.py", "d/pkg/part.py"),
    }
    assert set(beside(root, "m/__main__.py", "python3", "-m", "m")) == {"m/a.py"}
    assert set(beside(root, "x.mjs")) == {"lib/a.mjs", "b.js"}
    assert set(beside(root, "run.sh")) == {"env.sh", "lib.sh"}
    assert set(beside(root, "package.json", "npm", "run", "build")) == {
        *("build.js", "pre.sh", "lib/c.cjs"),
    }
    assert beside(root, "package.json", "npm", "run", "test") == []


@pytest.mark.parametrize("name", ["argparse.py", "gettext.py", "json/__init__.py", "re.pyc"])
def test_a_file_in_the_place_of_a_standard_module_is_found(root: Path, name: str) -> None:
    file = root / "d" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('evil')\n")
    assert f"d/{name}" in beside(root, "d/x.py")
    assert is_in_place_of_standard(str(file), str(root / "d/x.py"))


def test_a_script_that_is_no_python_and_very_many_modules_cost_little(root: Path) -> None:
    (root / "bad.py").write_text("import (")
    assert beside(root, "bad.py") == []
    names = [f"mod{at}" for at in range(100)]
    for name in names:
        (root / f"{name}.py").write_text("")
    (root / "many.py").write_text(f"import {', '.join(names)}\n")
    assert len(beside(root, "many.py")) == FILES_MAX
