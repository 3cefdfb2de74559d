"""Entry points are read from the site directories of this interpreter, and from nowhere else."""

from __future__ import annotations

import site
from pathlib import Path

import pytest

from skillhouse.extension import EntryPoint, find_entry_points, site_directories

GROUP = "skillhouse.extensions"


def _distribution(directory: Path, name: str, text: str) -> None:
    about = directory / f"{name}.dist-info"
    about.mkdir(parents=True)
    (about / "entry_points.txt").write_text(text)


def test_the_lines_of_the_group_are_found_and_no_others(tmp_path: Path) -> None:
    _distribution(
        tmp_path,
        "tides-1.2",
        "[console_scripts]\ntide = tides:main\n[skillhouse.extensions]\n# a comment\n"
        "tides = tides.extension:EXTENSION [extra]\n\n[other]\nx = y:z\n",
    )
    _distribution(tmp_path, "plain-1.0", "[console_scripts]\nplain = plain:main\n")
    (tmp_path / "without-1.0.dist-info").mkdir()

    assert find_entry_points(GROUP, [str(tmp_path), str(tmp_path / "missing")]) == (
        EntryPoint(
            name="tides",
            module="tides.extension",
            attribute="EXTENSION",
            distribution="tides-1.2",
        ),
    )


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("../../x = a:b", "expected a name of a-z, 0-9 and single hyphens"),
        ("Tides = a:b", "expected a name of a-z, 0-9 and single hyphens"),
        ("\x1b[2J = a:b", "expected a name of a-z, 0-9 and single hyphens"),
        (f"{'a' * 41} = a:b", "expected a name of a-z, 0-9 and single hyphens"),
        ("tides = a", "expected `module:attribute`"),
        ("tides = a.b:c.d", "expected `module:attribute`"),
        ("tides = ..a:b", "expected `module:attribute`"),
        ("tides = a;import os:b", "expected `module:attribute`"),
    ],
)
def test_a_line_that_cannot_be_used_is_a_fault(tmp_path: Path, line: str, fault: str) -> None:
    _distribution(tmp_path, "odd-1.0", f"[skillhouse.extensions]\n{line}\n")

    (found,) = find_entry_points(GROUP, [str(tmp_path)])
    assert (found.fault, found.module) == (fault, "")


def test_a_file_that_is_too_long_or_a_pipe_is_passed_over(tmp_path: Path) -> None:
    _distribution(tmp_path, "long-1.0", f"[skillhouse.extensions]\nx = a:b\n{'#' * 70_000}")

    assert find_entry_points(GROUP, [str(tmp_path)]) == ()


def test_a_distribution_counts_in_the_first_directory(tmp_path: Path) -> None:
    for at, version in (("first", "2.0"), ("second", "1.0")):
        text = f"[skillhouse.extensions]\ntides = tides:{at.upper()}\n"
        _distribution(tmp_path / at, f"tides-{version}", text)

    found = find_entry_points(GROUP, [str(tmp_path / "first"), str(tmp_path / "second")])
    assert [one.attribute for one in found] == ["FIRST"]


def test_only_site_directories_of_the_path_are_looked_at(tmp_path: Path) -> None:
    own = site.getsitepackages()[0]
    others = ["", ".", "relative", str(tmp_path), str(Path.cwd())]

    assert site_directories({}, [*others, own]) == (own,)
    assert site_directories({}, others) == ()
    # What the variable repeats is the environment that runs us all the same.
    assert site_directories({"PYTHONPATH": own}, [own]) == (own,)


def test_the_users_directory_is_not_taken_from_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path))

    assert site_directories({}, [str(tmp_path)]) == (str(tmp_path),)
    assert site_directories({"PYTHONUSERBASE": "x"}, [str(tmp_path)]) == ()
    assert site_directories({"PYTHONPATH": str(tmp_path)}, [str(tmp_path)]) == ()
