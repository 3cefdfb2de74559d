"""An unforeseen exception: one line, a report without secrets, exit code 70."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from skillhouse.floor import InternalFaultError
from skillhouse.presentation.fault_report import (
    FRAMES_MAX,
    KEPT_MAX,
    known_secrets,
    report_text,
    write_report,
)
from tests.frontends.conftest import Run
from tests.harness import ran

TOKEN = "ghp_0123456789abcdefABCDEF"


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `list` end in an exception whose text has a secret of each kind."""

    def fail(*_: object) -> None:
        local = "value-of-a-local-variable"
        assert local
        try:
            raise KeyError(f"first {TOKEN}")
        except KeyError as error:
            text = f"second {os.environ['MY_API_KEY']} {sys.argv} typed-on-the-line\n\x1b[31m"
            raise ValueError(text) from error

    monkeypatch.setenv("MY_API_KEY", "a-secret-of-the-environment")
    monkeypatch.setattr("skillhouse.frontends.cli.list_verb.house_of", fail)


def reports(place: Path) -> list[Path]:
    return sorted((place / "home/.local/state/skillhouse/faults").glob("*"))


@pytest.mark.usefixtures("broken")
def test_one_line_names_a_report_that_only_its_owner_reads(run: Run, place: Path) -> None:
    code, out, err = run("list", "typed-on-the-line")
    (report,) = reports(place)
    assert (code, out) == (70, "")
    assert err.count("\n") == 1
    assert "`list` failed by a fault of skillhouse (ValueError)" in err
    assert f"`{report}`" in err
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.parent.stat().st_mode) == 0o700


@pytest.mark.usefixtures("broken")
def test_a_report_has_what_is_needed_and_no_secret(run: Run, place: Path) -> None:
    run("list", "typed-on-the-line")
    text = reports(place)[0].read_text()
    for line in (
        "version: 0.1.0",
        "verb: list",
        "platform: ",
        "ValueError: second [REDACTED]",
        "caused by: KeyError: 'first [REDACTED]'",
        "skillhouse/frontends/cli/__init__.py:",
    ):
        assert line in text
    for secret in (
        TOKEN,
        "a-secret-of-the-environment",
        "typed-on-the-line",
        "value-of-a-local-variable",
        "MY_API_KEY",
        "\x1b",
    ):
        assert secret not in text


@pytest.mark.usefixtures("broken")
def test_json_prints_an_error_object(run: Run) -> None:
    code, out, _ = run("list", "--json")
    found = json.loads(out)["error"]
    assert (code, found["code"], found["exit_code"]) == (70, "internal-fault", 70)
    assert "`list` failed by a fault of skillhouse" in found["message"]


@pytest.mark.usefixtures("broken")
def test_a_state_directory_that_cannot_be_written_leaves_the_temporary_one(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "home/.local").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    assert run("list")[0] == 70
    (report,) = (place / f"skillhouse-faults-{os.getuid()}").iterdir()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


@pytest.mark.usefixtures("broken")
def test_without_any_place_the_fault_is_still_said(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "home/.local").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(place / "home/.local"))
    code, _, err = run("list")
    assert code == 70
    assert "its report could not be written" in err


def test_a_directory_of_others_takes_no_report(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert write_report("text", "one", [tmp_path / "link", tmp_path / "open"]) is None
    assert not list(real.iterdir())


def test_the_newest_reports_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT_MAX + 5):
        write_report("text", f"{number:03}", [tmp_path])
    (tmp_path / "other.txt").write_text("not ours")
    names = sorted(path.name[-7:-4] for path in tmp_path.glob("fault-*"))
    assert names == [f"{number:03}" for number in range(5, KEPT_MAX + 5)]


def test_a_deep_traceback_and_an_exception_without_a_text_have_a_report() -> None:
    def deep(left: int) -> None:
        if left == 0:
            raise OddError
        deep(left - 1)

    try:
        deep(500)
    except OddError as error:
        text = report_text(InternalFaultError(error), verb="list", known=known_secrets((), {}))
    assert "(its text cannot be had: RuntimeError)" in text
    assert len(text.splitlines()) < FRAMES_MAX + 20
    assert "more)" in text


def test_what_no_log_takes_is_one_line_and_no_traceback(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python writes a log record without a handler to stderr, with its traceback."""

    def log(*_: object) -> None:
        def ended() -> None:
            raise ValueError("in a thread")

        logger = logging.getLogger("tests.unheard")
        logger.handlers, logger.propagate = [], False
        try:
            raise ValueError(f"logged {TOKEN}")
        except ValueError:
            logger.exception("calling %s\nonce", TOKEN)
        thread = threading.Thread(target=ended)
        thread.start()
        thread.join()
        raise SystemExit(0)

    monkeypatch.setattr("skillhouse.frontends.cli.list_verb.house_of", log)
    with pytest.raises(SystemExit):
        run("list")
    assert len(reports(place)) == 2


def test_a_process_ends_with_70_and_without_a_traceback(place: Path) -> None:
    """The whole process, as a person starts it: also what fails before a verb is found."""
    program = (
        "import sys; from skillhouse.frontends import cli\n"
        "def parser_of(verb): raise LookupError(verb)\n"
        "cli.parser_of = parser_of\n"
        "sys.argv = ['skillhouse', 'list', '--json']\n"
        "sys.exit(cli.main())"
    )
    done = ran([sys.executable, "-c", program])
    assert done.returncode == 70
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "internal-fault"
    assert len(reports(place)) == 1
