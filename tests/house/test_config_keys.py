"""Tests of house/config/config_keys: what follows from the fields of a configuration's values."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from scripts import config_reference
from scripts.profile_reference import described

import skillhouse
from skillhouse.floor import ConfigError
from skillhouse.house import load_config
from skillhouse.house.config.config_keys import project_keys, values_of, variables
from tests.harness import ran
from tests.house.places import make_places

ROOT = Path(__file__).resolve().parents[2]
SETTING = '''
    colour: Annotated[str | None, BY_VARIABLE] = None
    """What everything is painted with."""
'''
USED = '''
    colour: str = "red"
    """The colour of everything."""
'''
INNER = '''
    depth: Literal["low", "high"] = "low"
    """How far a search goes."""
'''
PROGRAM = """
import json, os, sys
from pathlib import Path
from scripts import config_reference
import skillhouse
from skillhouse.floor import ConfigError, Locations
from skillhouse.house import Skillhouse, configured

found = {}
home = Path(sys.argv[1])
file = home / ".config/skillhouse/config.toml"
file.parent.mkdir(parents=True, mode=0o700)

def read(text, **variables):
    file.write_text(text)
    places = Locations(start=home, home=home, environment=variables)
    try:
        return configured(places)
    except ConfigError as error:
        return error

found["file"] = read('colour = "blue"').colour
found["default"] = read("").colour
found["variable"] = read('colour = "blue"', SKILLHOUSE_COLOUR="green").colour
found["misspelled"] = read('color = "blue"').suggestion
found["wrong"] = str(read("colour = 3"))
found["near variable"] = read("", SKILLHOUSE_COLOR="green").suggestion
found["inner"] = read('[search]\\ndepth = "high"').search.depth
found["inner misspelled"] = read("[search]\\ndept = 1").suggestion
found["inner wrong"] = str(read('[search]\\ndepth = "hig"'))
with Skillhouse(read(""), colour="pink") as house:
    found["keyword"] = house.config.colour
found["page"] = [line for line in config_reference.page().splitlines() if "colour" in line
                 or "search.depth" in line]
found["typed keyword"] = "    colour: str\\n" in config_reference.keywords()
documents = config_reference.documents({})
found["tried"] = [documents["colour"], documents["search.depth"]]
print(json.dumps(found))
"""


def package_with(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Return a directory with the package, whose config_values.py has something more."""
    source, made = Path(skillhouse.__file__).parent, tmp_path / "source" / "skillhouse"
    for part in ("", "house", "house/config"):
        (made / part).mkdir(parents=True, exist_ok=True)
        for entry in (source / part).iterdir():
            if entry.name not in ("house", "config", "__pycache__", "config_values.py"):
                (made / part / entry.name).symlink_to(entry)
    text = (source / "house/config/config_values.py").read_text(encoding="utf-8")
    for after, added in changes:
        assert text.count(after) == 1
        text = text.replace(after, after + added)
    (made / "house/config/config_values.py").write_text(text, encoding="utf-8")
    return made.parent


@pytest.mark.slow
def test_a_key_is_stated_in_two_places_and_one_of_a_table_in_one(tmp_path: Path) -> None:
    package = package_with(
        tmp_path,
        (
            '"""The values that a file, the environment or flags may set; None is not set."""\n',
            SETTING,
        ),
        ('    """How search works; no project says so."""\n', INNER),
        ('    UNCOMPARED: ClassVar = frozenset({"source"})\n', USED),
    )
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    done = ran(
        [sys.executable, "-c", PROGRAM, str(home)],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 0, done.stderr
    file = home / ".config/skillhouse/config.toml"
    assert json.loads(done.stdout) == {
        "file": "blue",
        "default": "red",
        "variable": "green",
        "misspelled": "colour",
        "wrong": "line 1: wrong value: `colour` must be text in quotes, got 3 - at `$.colour` in "
        f"`{file}`",
        "near variable": "SKILLHOUSE_COLOUR",
        "inner": "high",
        "inner misspelled": "depth",
        "inner wrong": "line 2: wrong value: `depth` is one of low, high, got 'hig' - at "
        f"`$.search.depth` in `{file}`; did you mean `high`",
        "keyword": "pink",
        "page": [
            "| `colour` | `SKILLHOUSE_COLOUR` |  | What everything is painted with |",
            '| `search.depth` | `low`, `high` | `"low"` | How far a search goes |',
        ],
        "typed keyword": True,
        "tried": ['colour = "sample"', '[search]\ndepth = "high"'],
    }


def test_every_key_has_a_text_for_its_reference() -> None:
    bare = [
        key.name
        for key in config_reference.all_keys()
        if not dict(described(key.shape))[key.field] and not key.name.endswith(".repositories")
    ]
    assert bare == []


def test_a_project_and_the_environment_set_these_keys_and_no_other() -> None:
    # Each of a project's is judged as untrusted: a new one is a decision, and not a default.
    assert project_keys() == {"catalog_budget_tokens", "rules"}
    assert variables() == {
        "profile": str,
        "catalog_budget_tokens": int,
        "yaml_fast_path": bool,
        "cache": bool,
        "cache_directory": str,
        "state_directory": str,
        "server_name": str,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('policy = "carefull"\n', "`policy` is one of careful, developer, locked, got 'carefull'"),
        ('[search]\nencoder = "us"\n', "`encoder` is one of auto, none, use, granite, use+granite"),
        ('[agents.a.skill]\n"*" = "no"\n', "`skill` is one of allow, ask, deny, got 'no'"),
        ('[[net.secrets]]\nnam = "A"\n', "unknown net.secrets key `nam`"),
        ('[[skills.repositories]]\nnam = "A"\n', "unknown skills.repositories key `nam`"),
        ('[[remotes]]\nurll = "https://a.example"\n', "unknown remotes key `urll`"),
        ("[agents.a]\nrule = []\n", "unknown agent key `rule`"),
        ("[[agents.a.rules]]\naktion = 1\n", "unknown rule key `aktion`"),
        ("[sandbox]\nsecond = 1\n", "unknown sandbox key `second`"),
        ('[sections]\na = "b"\n', "unknown key `sections`"),
    ],
)
def test_what_a_key_takes_follows_from_its_type(tmp_path: Path, text: str, message: str) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(places)
    assert message in str(caught.value)


def test_a_key_of_any_text_has_no_list_of_values() -> None:
    assert [values_of([key]) for key in ("profile", "roots", "unknown", "agents")] == [()] * 4
    assert values_of(["skill_code", "levels"]) == ("read", "write", "sign")
