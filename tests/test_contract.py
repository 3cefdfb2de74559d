"""The public contract is what tests/data/contract.json lists: nothing of it is lost or changed.

What is new is no fault; `./x py -m scripts.contract --write` adds it to the list, and refuses while
anything is lost. The list was made from the commit before the tree was renamed, through public
names, the installed command, MCP, HTTP and files only. What other tests hold is not repeated here:

- signatures of the functions, word for word: tests/test_house.py
- texts of catalogs and loaded skills in every style: tests/golden
- what each design and client finds, lists, loads and answers: tests/profiles
- how paths, names, rules, commands and digests are judged: tests/vectors
- the chain of the log and what `verify` finds: tests/audit
- RPC between core and executor: tests/sandbox
- the exit code after Ctrl-C: tests/frontends/test_cli.py
- forms of the pages and of devices' answers: tests/frontends/http_pages/test_approval_pages.py
"""

from __future__ import annotations

import functools
import json
import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts.contract import SECTIONS, flat, lost

ROOT = Path(__file__).resolve().parents[1]
LISTED: dict[str, Any] = json.loads((ROOT / "tests/data/contract.json").read_text(encoding="utf-8"))

# Left out of the fast part: it starts processes.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("section", LISTED)
def test_nothing_of_the_public_contract_is_lost_or_changed(section):
    command = [sys.executable, "-m", "scripts.contract", section]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_section_is_listed_and_a_change_of_any_leaf_is_found():
    assert set(LISTED) == set(SECTIONS)
    leaves = flat(LISTED)
    assert lost(LISTED, LISTED) == []
    assert len(lost(LISTED, {})) == len(leaves)
    for path, value in list(leaves.items())[::50]:
        changed = json.loads(json.dumps(LISTED))
        *outer, last = [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]
        functools.reduce(operator.getitem, outer, changed)[last] = [value]
        assert [line.partition(": listed")[0] for line in lost(LISTED, changed)] == [path]
