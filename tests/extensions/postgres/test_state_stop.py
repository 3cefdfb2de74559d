"""Stops of a state on a server: what lifts them on which machine, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest
from tests.extensions.postgres.state_servers import new_database, served
from tests.postgres import cluster
from tests.tiers.engine import policy_of

from skillhouse.floor import StateError
from skillhouse.store import STATE_FILE, forget_state
from skillhouse.tiers import TierEngine
from skillhouse.tiers.emergency_stop import READY, STOPPED, StopNotice
from skillhouse.tiers.tier_engine import TERMINAL
from skillhouse.tools.tier_gate import LOOK_SECONDS, TierGate

pytestmark = [pytest.mark.slow, pytest.mark.file_state]

Machine = Callable[..., TierEngine]


@pytest.fixture
def machine(tmp_path: Path, state_url: str) -> Iterator[Machine]:
    """Give machines by their name; each has a directory of its own and the same state."""
    with ExitStack() as stack:
        made: set[str] = set()

        def engine(
            name: str, on_resume: Callable[[StopNotice], object] | None = None
        ) -> TierEngine:
            if name not in made:
                stack.enter_context(served(tmp_path / name, state_url))
                made.add(name)
            steps = () if on_resume is None else (("a step", on_resume),)
            return TierEngine(policy_of(), tmp_path / name / STATE_FILE, on_resume=steps)

        yield engine


def file_of(engine: TierEngine) -> str:
    (name,) = [one.name for one in engine.stop_directory.iterdir() if one.is_file()]
    return name


def rows(url: str, statement: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())


def test_a_resume_at_one_server_lifts_the_file_of_another(machine: Machine) -> None:
    first, second = machine("a"), machine("b")
    assert first.stop("anna", "a drill").is_new
    assert second.stopped_reason == "a drill (by anna)"
    assert second.resume("mika", TERMINAL)
    assert file_of(first) == STOPPED
    # At its next call, also of a process that was not there when it was lifted.
    assert machine("a").begin("") == ""
    assert (first.stopped_reason, file_of(first), file_of(second)) == ("", READY, READY)


def test_a_call_after_a_resume_elsewhere_is_not_ended_for_that_stop(machine: Machine) -> None:
    first, second = machine("a"), machine("b")
    first.stop("anna", "a drill")
    assert second.resume("mika", TERMINAL)
    gate = TierGate(first)

    async def called(*, forgets: bool) -> str:
        if forgets:
            await gate.forget_lifted()
        with gate.running() as running:
            # What it decides on takes long, and who looks for a stop meanwhile asks no database.
            await anyio.sleep(3 * LOOK_SECONDS)
        return running.reason

    assert anyio.run(partial(called, forgets=False)) == "a drill (by anna)"
    assert file_of(first) == STOPPED
    assert anyio.run(partial(called, forgets=True)) == ""
    assert file_of(first) == READY


def test_a_server_that_was_away_during_the_resume_goes_on_when_it_is_back(
    machine: Machine, tmp_path: Path, state_url: str
) -> None:
    first, second = machine("a"), machine("b")
    first.stop("anna", "a drill")
    away = tmp_path / "a" / STATE_FILE
    forget_state(away)
    assert second.resume("mika", TERMINAL)
    with served(tmp_path / "a", state_url.replace("/state_", "/none_")):
        assert first.begin("", only_reads=True) == "everything is stopped: a drill (by anna)"
        assert file_of(first) == STOPPED
    with served(tmp_path / "a", state_url):
        assert first.begin("") == ""


def test_a_stop_given_without_the_state_is_lifted_on_its_machine_alone(
    machine: Machine, tmp_path: Path, state_url: str
) -> None:
    first, second = machine("a"), machine("b")
    assert first.stopped_reason == second.stopped_reason == ""
    forget_state(tmp_path / "a" / STATE_FILE)
    with served(tmp_path / "a", state_url.replace("/state_", "/none_")):
        report = first.stop("anna", "no state")
    assert [name for name, _ in report.failed] == ["write to the database"]
    with served(tmp_path / "a", state_url):
        # Another stop comes and goes, and lifts nothing but itself.
        second.stop("noa", "another")
        assert second.resume("mika", TERMINAL)
        assert (first.stopped_reason, second.stopped_reason) == ("no state (by anna)", "")
        assert first.resume("mika", TERMINAL)
        assert (first.stopped_reason, file_of(first)) == ("", READY)


@pytest.mark.parametrize(
    "forged",
    [
        "DELETE FROM tier_stop; DELETE FROM stop_given",
        "UPDATE stop_given SET id = 'x'; DELETE FROM tier_stop",
        "DELETE FROM tier_stop; UPDATE stop_given SET lifted_ms = -1",
        "DELETE FROM stop_given; DELETE FROM tier_stop; INSERT INTO stop_given VALUES "  # noqa: ISC004
        "('0123456789abcdef0123456789abcdef', 1, 'a', 'b', 9)",
    ],
)
def test_rows_that_are_deleted_or_forged_lift_no_stop_that_a_server_has_seen(
    machine: Machine, state_url: str, forged: str
) -> None:
    first, second, third = (machine(name) for name in "abc")
    first.stop("anna", "an attack")
    assert second.stopped_reason
    rows(state_url, forged)
    # Naively: the row alone is the stop. It is so for who never saw it.
    assert third.stopped_reason == ""
    for seen in (first, second):
        assert seen.stopped_reason == "an attack (by anna)"
        assert seen.begin("").startswith("everything is stopped")
    # Whoever may lift it lifts it for both.
    assert second.resume("mika", TERMINAL)
    assert (first.stopped_reason, second.stopped_reason) == ("", "")


def test_a_stop_that_comes_while_another_is_lifted_goes_on_to_hold(machine: Machine) -> None:
    first, other = machine("a"), machine("b")
    first.stop("anna", "one")
    assert other.stopped_reason == "one (by anna)"
    lifting = machine("c", lambda _: first.stop("noa", "two"))
    assert lifting.resume("mika", TERMINAL)
    # Its file at `a` names both, so that the first one's row does not lift it.
    assert [one.stopped_reason for one in (first, other, lifting)] == [
        "one (by anna)",
        "two (by noa)",
        "two (by noa)",
    ]
    assert machine("c").resume("mika", TERMINAL)
    assert [one.stopped_reason for one in (first, other, lifting)] == ["", "", ""]


def test_a_stop_of_before_does_not_lift_the_next_one_whose_identity_had_no_space(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machine("a"), machine("b")
    first.stop("anna", "one")
    second.resume("mika", TERMINAL)
    assert first.stopped_reason == ""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("skillhouse.tiers.emergency_stop.StopMark._write", full)
        first.stop("anna", "two")
    assert second.resume("mika", TERMINAL)
    # Nothing says which stop the file is of: it holds until it is lifted there.
    assert first.stopped_reason == f"the file `{first.stop_directory / STOPPED}` says so"
    assert first.resume("mika", TERMINAL)
    assert first.stopped_reason == ""


def test_what_a_row_says_is_a_text_and_no_identity(machine: Machine, state_url: str) -> None:
    engine = machine("a")
    assert engine.stopped_reason == ""
    rows(
        state_url,
        "INSERT INTO tier_stop VALUES (1, 1, '<b>x</b>', '../../\"}'); "
        "INSERT INTO stop_given VALUES ('../../x', 1, 'a', 'b', 0)",
    )
    assert engine.stopped_reason == '../../"} (by <b>x</b>)'
    kept = json.loads((engine.stop_directory / STOPPED).read_bytes())
    assert kept == {"by": "<b>x</b>", "reason": '../../"}'}


def test_a_lost_database_keeps_a_stop_of_another_machine(tmp_path: Path) -> None:
    with cluster() as server:
        url = new_database(server)
        with served(tmp_path / "a", url), served(tmp_path / "b", url):
            first = TierEngine(policy_of(), tmp_path / "a" / STATE_FILE)
            second = TierEngine(policy_of(), tmp_path / "b" / STATE_FILE)
            first.stop("anna", "a drill")
            assert second.stopped_reason
            with psycopg.connect(server, autocommit=True) as connection:
                name = url.rpartition("/")[2].partition("?")[0]
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            assert second.stop_state() == ("a drill (by anna)", "")
            with pytest.raises(StateError):
                second.resume("mika", TERMINAL)
