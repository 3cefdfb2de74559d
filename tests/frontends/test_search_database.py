"""`[search] database`: the index in PostgreSQL, reached by configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError, MissingExtraError
from skillhouse.house import Skillhouse, configured
from tests.frontends.conftest import Run
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow

CONFIG = '[search]\ndatabase = "env:SEARCH_PLACE"\n'


@pytest.fixture
def library(place: Path) -> Path:
    write_skill(place / "home/.agents/skills/kites", "Flies kites.", "Needs zephyrs.\n")
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
    return place


def test_every_search_asks_the_database(
    run: Run, library: Path, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_PLACE", postgres_server)
    value = json.loads(run("search", "zephyrs", "--json")[1])
    assert [hit["name"] for hit in value["hits"]] == ["kites"]
    assert value["fault"] is None
    assert "kites" in run("catalog", "--for", "zephyrs")[1].split("</skill>")[0]
    # Nothing of it is in files.
    assert not (library / "home/.cache/skillhouse/words").exists()
    with Skillhouse(configured(make_places(library, {"SEARCH_PLACE": postgres_server}))) as house:
        answer = house.call_sync("search_skills", {"query": "zephyrs"})
        assert answer.content.endswith("kites: Flies kites. (body: zephyrs)")


def test_without_the_database_files_are_searched_and_that_is_said(
    run: Run, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_PLACE", "postgresql://u:s3cret@127.0.0.1:9/x")
    code, out, err = run("search", "zephyrs")
    assert (code, "kites" in out) == (0, True)
    assert "the search database cannot be used: " in err
    said = " ".join(run("doctor")[1].split())
    assert "the search database cannot be used: " in said
    assert "; files are searched" in said
    assert "s3cret" not in out + err
    value = json.loads(run("search", "zephyrs", "--json")[1])
    assert "the search database cannot be used: " in value["fault"]
    assert [hit["name"] for hit in value["hits"]] == ["kites"]


def test_what_is_missing_is_named(run: Run, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("search", "zephyrs")
    assert (code, "the search database in the variable `SEARCH_PLACE`" in err) == (2, True)
    assert "search is not possible: " in " ".join(run("doctor")[1].split())
    monkeypatch.setenv("SEARCH_PLACE", "host=/nowhere")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        Skillhouse(configured(make_places(library, {"SEARCH_PLACE": "x"}))) as house,
        pytest.raises(MissingExtraError, match="the optional part `postgres`"),
    ):
        house.search("zephyrs")


def test_an_address_in_the_file_itself_is_refused_and_not_repeated(library: Path) -> None:
    config = library / "home/.config/skillhouse/config.toml"
    config.write_text('[search]\ndatabase = "postgresql://u:s3cret@h/x"\n')
    with pytest.raises(ConfigError) as caught:
        configured(make_places(library))
    assert "expected `file:PATH` or `env:NAME` in `database`" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_no_command_gets_the_variable_of_the_address(library: Path) -> None:
    config = library / "home/.config/skillhouse/config.toml"
    config.write_text(f'exec_environment = ["SEARCH_PLACE"]\n{CONFIG}')
    with pytest.raises(ConfigError, match="SEARCH_PLACE"):
        configured(make_places(library))
