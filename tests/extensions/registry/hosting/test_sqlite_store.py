"""Tests of the SQLite engine: what only it has, files and other processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.extensions.registry.hosting.test_release_store_contract import add

from skillhouse.extensions.registry.hosting import HostingError, ListQuery, SqliteReleases
from skillhouse.extensions.registry.hosting.release_store import Actor
from skillhouse.floor import StateError

ADD = """
import sys
from pathlib import Path
from skillhouse.extensions.registry.hosting import HostingError, SqliteReleases
from tests.extensions.registry.hosting.test_release_store_contract import add
store = SqliteReleases(Path(sys.argv[1]))
for number in range(20):
    try:
        add(store, version=f"1.0.{number}", digest="sha256:" + sys.argv[2] * 64)
        print(number)
    except HostingError as error:
        assert error.code == "version-exists"
"""


def without_actors(database: sqlite3.Connection) -> None:
    """Take away what versions 3 and 4 added."""
    for column in ("token", "claims", "address"):
        database.execute(f"ALTER TABLE change DROP COLUMN {column}")
    database.execute("ALTER TABLE token DROP COLUMN claims")
    database.execute("DROP TABLE used_once")
    database.execute("ALTER TABLE version DROP COLUMN attestations")


def test_two_processes_share_a_file(tmp_path: Path):
    file = tmp_path / "registry.sqlite3"
    store = SqliteReleases(file)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, str(file), mark], stdout=subprocess.PIPE, text=True
        )
        for mark in "ab"
    ]
    printed = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    # Each number was taken once, by one of both.
    assert sorted(int(one) for lines in printed for one in lines) == list(range(20))
    found = store.releases("default", "pdf")
    assert found is not None
    assert found.latest == "1.0.19"
    store.close()


def test_all_is_there_after_a_start(tmp_path: Path):
    file = tmp_path / "registry.sqlite3"
    store = SqliteReleases(file)
    given = add(store)
    store.close()
    again = SqliteReleases(file)
    assert again.archive(given.digest) == given
    assert [one.name for one in again.find(ListQuery(text="files")).skills] == ["pdf"]
    again.close()


def test_a_file_of_others_is_refused_and_left_alone(tmp_path: Path):
    file = tmp_path / "registry.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE own (a)")
    os.chmod(file, 0o600)
    before = file.read_bytes()
    with pytest.raises(StateError):
        SqliteReleases(file)
    assert file.read_bytes() == before


def test_a_refusal_keeps_no_reader(tmp_path: Path):
    store = SqliteReleases(tmp_path / "registry.sqlite3")
    add(store)
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with pytest.raises(HostingError):
            store.find(ListQuery(cursor="nonsense"))
    assert len(os.listdir("/proc/self/fd")) <= opened + 3
    store.close()


@pytest.mark.parametrize("text", ["数据", "合并文件", "データ", "데이터", "ใบแจ้งหนี้", "ឯកសារ"])
def test_words_of_languages_without_blanks_are_found(tmp_path: Path, text: str):
    store = SqliteReleases(tmp_path / "registry.sqlite3")
    add(store, skill="wanted", description=f"用来处理{text}的工具")
    add(store, skill="other", description="Nothing of it.")
    assert [one.name for one in store.find(ListQuery(text=text)).skills] == ["wanted"]
    store.close()


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("ใบแจ้งหนี้", "ตรวจสอบใบแจ้งหนี้ทุกเดือน"),
        ("ใบแจ้งหนี้", "ตรวจสอบ\u200bใบ\u200bแจ้งหนี้"),
        ("ใบ\u200bแจ้งหนี้", "ตรวจสอบใบแจ้งหนี้ทุกเดือน"),
        ("วิกฤต PDF", "แก้PDFยามวิกฤต"),
        ("ວຽກ", "ຈັດວຽກປະຈຳວັນ"),
        ("चालान", "हर महीने चालान जाँचता है"),
        ("گزارش", "هر ماه گزارش می‌نویسد"),
    ],
)
def test_words_with_vowel_signs_and_without_blanks_are_found(
    tmp_path: Path, text: str, description: str
):
    store = SqliteReleases(tmp_path / "registry.sqlite3")
    add(store, skill="wanted", description=description)
    add(store, skill="other", description="ตรวจอากาศ वाचन نوشتن ວັນ")
    assert [one.name for one in store.find(ListQuery(text=text)).skills] == ["wanted"]
    store.close()


def test_an_index_of_before_is_made_again(tmp_path: Path):
    file = tmp_path / "registry.sqlite3"
    store = SqliteReleases(file)
    add(store, skill="wanted", description="ตรวจสอบใบแจ้งหนี้ทุกเดือน")
    add(store, skill="other", description="Nothing of it.")
    store.close()
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE skill_text SET about = 'ตรวจสอบใบแจ้งหนี้ทุกเดือน' WHERE rowid = 1")
        without_actors(database)
        database.execute("PRAGMA user_version = 1")
        database.commit()
    again = SqliteReleases(file)
    assert [one.name for one in again.find(ListQuery(text="ใบแจ้งหนี้")).skills] == ["wanted"]
    assert [one.name for one in again.find(ListQuery(text="nothing")).skills] == ["other"]
    again.close()


def test_a_database_of_before_says_of_its_changes_that_no_actor_is_known(tmp_path: Path):
    file = tmp_path / "registry.sqlite3"
    store = SqliteReleases(file)
    add(store, skill="older")
    store.close()
    with closing(sqlite3.connect(file)) as database:
        without_actors(database)
        database.execute("PRAGMA user_version = 2")
        database.commit()
    again = SqliteReleases(file)
    add(again, skill="newer", actor=Actor("3f2a9c81d0b4", "", "192.0.2.7"))
    older, newer = again.changes(0, 10)
    assert (older.name, older.actor) == ("older", Actor())
    assert (newer.name, newer.actor) == ("newer", Actor("3f2a9c81d0b4", "", "192.0.2.7"))
    again.close()


def test_skills_with_translated_words_follow_those_with_the_words_of_the_text(tmp_path: Path):
    store = SqliteReleases(tmp_path / "registry.sqlite3")
    add(store, skill="english", description="Merges files.")
    add(store, skill="chinese", description="合并文件。")
    found = store.find(ListQuery(text="合并", also=("合并", "merge", "merging"))).skills
    assert [one.name for one in found] == ["chinese", "english"]
    store.close()


def test_a_word_that_most_skills_have_is_found_without_ranking_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("skillhouse.extensions.registry.hosting.sqlite_search.RANKED_MAX", 3)
    store = SqliteReleases(tmp_path / "registry.sqlite3")
    for letter in "abcdef":
        add(store, skill=letter * 3, description="Common words.")
    add(store, skill="common", description="Says it in its name.")
    add(store, skill="rare", description="Common and rare.")

    def names(text: str) -> list[str]:
        return [one.name for one in store.find(ListQuery(text=text)).skills]

    assert names("common")[:2] == ["common", "rare"]
    assert len(names("common")) == 8
    assert names("rare absent") == ["rare"]
    assert names("common absent") == []
    store.close()
