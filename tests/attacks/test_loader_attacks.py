"""Attacks on whatever reads a SKILL.md: odd files, odd bytes, odd YAML, and names that are twins.

Each first works on a reader of the kind that the published designs use: `Path.read_text`, a split
at `---`, `yaml.safe_load`, and a dictionary of names.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from skillhouse.discovery import Root, discover
from skillhouse.floor import PathError, confine, open_beneath
from skillhouse.skill import parse
from tests.discovery.trees import findings, names, place_for_all, probe, probe_as_nobody
from tests.discovery.trees import write_skill as write_file
from tests.tools.houses import house_at

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

HEAD = "---\nname: x\ndescription: d\n"


def naive_fields(text: str) -> Any:
    """Return what a reader of the published kind makes of a frontmatter."""
    return yaml.safe_load(text.split("---")[1])  # noqa: TID251 - the naive reader.


def naive_names(*roots: Path) -> dict[str, Path]:
    """Return skills by name as a dictionary holds them: a later one replaces an earlier."""
    return {
        naive_fields(file.read_text())["name"]: file
        for root in roots
        for file in sorted(root.glob("*/SKILL.md"))
    }


def codes(data: bytes) -> list[tuple[str, int | None]]:
    """Return what our parser finds, and that it gives no skill."""
    result = parse(data, directory="x")
    assert result.skill is None
    return [(found.code, found.line) for found in result.diagnostics]


@contextlib.contextmanager
def python(code: str, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        (sys.executable, "-c", code, *map(str, words)), stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def joined(base: Path, relative: str) -> str:
    return os.path.join(base, relative)


def decoded(base: Path, relative: str) -> str:
    return joined(base, unquote(unquote(relative)))


def below_references(base: Path, relative: str) -> str:
    if not relative.startswith("references/"):
        raise PermissionError(relative)
    return joined(base, relative)


def starts_with(base: Path, relative: str) -> str:
    """Compare as design 004 does (`startsWith`)."""
    path = os.path.realpath(base / relative)
    if not path.startswith(str(base)):
        raise PermissionError(relative)
    return path


def of_windows(base: Path, relative: str) -> str:
    if ".." in relative.split("/"):
        raise PermissionError(relative)
    path = relative.removeprefix("C:")
    return joined(base, path.replace("\\", "/"))


def as_c_text(base: Path, relative: str) -> str:
    if not relative.endswith(".md"):
        raise PermissionError(relative)
    return joined(base, relative.partition("\0")[0])


@pytest.mark.parametrize(
    ("naive", "relative"),
    [
        (joined, "../foobar/secret"),
        (joined, "references/../../foobar/secret"),
        (joined, "{base}/../foobar/secret"),
        (joined, "{out}"),
        (decoded, "..%2ffoobar%2fsecret"),
        (decoded, "..%252ffoobar%252fsecret"),
        (below_references, "references/../../foobar/secret"),
        (starts_with, "../foobar/secret"),
        (of_windows, "..\\foobar\\secret"),
        (of_windows, "C:{out}"),
        (as_c_text, "../foobar/secret\0.md"),
    ],
)
def test_1_to_7_a_path_in_disguise_reads_nothing(
    tmp_path: Path, naive: Callable[[Path, str], str], relative: str
) -> None:
    base = tmp_path / "foo"
    (base / "references").mkdir(parents=True)
    (tmp_path / "foobar").mkdir()
    (tmp_path / "foobar/secret").write_text("secret")
    told = relative.format(base=base, out=tmp_path / "foobar/secret")
    assert Path(naive(base, told)).read_text() == "secret"
    for mode in ("any", "asset"):
        with pytest.raises(PathError):
            confine(base, told, mode=mode)
    with pytest.raises(PathError):
        open_beneath(base, told)


def test_10_a_link_inside_is_followed_by_confine_and_by_nothing_that_opens(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("inside")
    (tmp_path / "link.md").symlink_to("notes.md")
    assert (tmp_path / "link.md").read_text() == "inside"
    assert confine(tmp_path, "link.md") == tmp_path / "notes.md"
    with pytest.raises(PathError, match="path-link"):
        open_beneath(tmp_path, "link.md")


def test_13_and_14_what_is_no_file_holds_no_reader_up(tmp_path: Path) -> None:
    for name in ("pipe", "directory"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe/SKILL.md")
    (tmp_path / "directory/SKILL.md").mkdir()
    reading = "import sys; open(sys.argv[1]).read()"
    with (
        python(reading, tmp_path / "pipe/SKILL.md") as naive,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        naive.wait(0.3)
    with pytest.raises(IsADirectoryError):
        (tmp_path / "directory/SKILL.md").read_text()
    report = probe(tmp_path, timeout_seconds=20)
    assert (report.skills, report.codes) == ([], ["not-a-file", "not-a-file"])


def test_15_a_file_that_may_not_be_read_costs_no_other_skill() -> None:
    with place_for_all() as base:
        write_file(base / "good")
        write_file(base / "closed").chmod(0)
        reading = "import os, sys; os.setuid(65534) if os.getuid() == 0 else 0; open(sys.argv[1])"
        with python(
            f"import sys\ntry:\n {reading}\nexcept OSError: sys.exit(7)", base / "closed/SKILL.md"
        ) as naive:
            assert naive.wait(20) == 7
        report = probe_as_nobody(base)
    assert report.skills == ["good"]
    assert report.findings == [["error", "unreadable", str(base / "closed/SKILL.md")]]


GROW = """
import sys
with open(sys.argv[1], "ab", buffering=0) as file:
    print("growing", flush=True)
    while file.tell() < 1 << 28:
        file.write(b"x" * 65536)
"""
"""Bounded, so that a reader without a bound ends with 256 MiB."""


def test_16_a_file_that_grows_while_it_is_read_has_a_bound(tmp_path: Path) -> None:
    file = write_file(tmp_path / "root/grows")
    write_file(tmp_path / "root/good")
    seen = file.stat().st_size
    with python(GROW, file) as growing:
        # What it was when it was looked at says nothing of what a read gives.
        growing.wait(60)
        assert len(file.read_bytes()) > seen
    file.write_bytes(HEAD.encode() + b"---\n")
    with python(GROW, file) as growing:
        assert growing.stdout is not None
        growing.stdout.readline()
        report = probe(tmp_path / "root", timeout_seconds=30)
    assert "good" in report.skills
    assert report.peak_mib < 150


def test_17_a_gigabyte_that_takes_no_place_is_refused_by_its_size(tmp_path: Path) -> None:
    file = write_file(tmp_path / "root/large")
    os.truncate(file, 1 << 30)
    assert file.stat().st_size == 1 << 30
    reading = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
    with python(
        f"{reading}try: open(sys.argv[1], 'rb').read()\nexcept MemoryError: sys.exit(7)", file
    ) as naive:
        assert naive.wait(60) == 7
    report = probe(tmp_path / "root")
    assert (report.skills, report.codes) == ([], ["too-large"])
    assert report.peak_mib < 150


def test_18_ten_thousand_skills_stay_within_the_limits_of_a_users_root(tmp_path: Path) -> None:
    for number in range(10_000):
        write_file(tmp_path / f"s{number:05}")
    assert len(naive_names(tmp_path)) == 10_000
    report = probe(Root(tmp_path, "user"), timeout_seconds=60)
    assert (len(report.skills), report.codes) == (10_000, [])
    report = probe(Root(tmp_path, "project"), timeout_seconds=60)
    assert (len(report.skills), report.codes) == (2_000, ["scan-limit"])


def test_19_four_thousand_directories_in_each_other(tmp_path: Path) -> None:
    write_file(tmp_path / "root/good")
    here = os.open(tmp_path / "root", os.O_RDONLY)
    for _ in range(4_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (tmp_path / "root" / ("n" * 255)).mkdir()
    with pytest.raises(OSError, match="File name too long"):
        os.listdir(tmp_path / "root" / "/".join("d" * 4_000))
    report = probe(tmp_path / "root", timeout_seconds=30)
    assert report.skills == ["good"]
    assert "depth-limit" in report.codes
    subprocess.run(("rm", "-rf", tmp_path / "root/d"), check=True)


@pytest.mark.parametrize(
    ("data", "failure", "expected"),
    [
        (f"{HEAD}---\n".encode() + b"\xff", UnicodeDecodeError, [("encoding", 5)]),
        (f"{HEAD}---\n".encode("utf-16"), UnicodeDecodeError, [("encoding", 1)]),
        (HEAD.encode(), None, [("frontmatter-unclosed", 1)]),
        (f"{HEAD}a:\n\tb: c\n---\n".encode(), yaml.YAMLError, [("yaml-error", 5)]),
        (f"{HEAD}a: !!binary aGk=\n---\n".encode(), None, [("yaml-tag", 4)]),
        (f"{HEAD}a: !!set {{x}}\n---\n".encode(), None, [("yaml-tag", 4)]),
        (f"{HEAD}description: e\n---\n".encode(), None, [("yaml-duplicate-key", 4)]),
        (f"{HEAD}a: &a [*a]\n---\n".encode(), None, [("yaml-alias", 4)]),
        (
            f"{HEAD}a: {'[' * 5_000}{']' * 5_000}\n---\n".encode(),
            RecursionError,
            [("yaml-depth", 4)],
        ),
        (f'{HEAD}a: "\\ud800"\n---\n'.encode(), None, [("yaml-error", 4)]),
    ],
    ids="bytes utf16 unclosed tab binary set twice recursive flow surrogate".split(),
)
def test_20_to_31_what_a_naive_reader_takes_or_dies_of_is_refused_with_its_line(
    data: bytes, failure: type[Exception] | None, expected: list[Any]
) -> None:
    if failure is None:
        # It takes it, for something that nobody meant.
        assert naive_fields(data.decode())["name"] == "x"
    else:
        with pytest.raises(failure):
            naive_fields(data.decode())
    assert codes(data) == expected


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_20_line_ends_and_marks_of_other_systems_have_one_meaning(end: str, mark: bytes) -> None:
    data = mark + f"{HEAD}---\nbody\n".replace("\n", end).encode()
    # The published expression asks for `---` and a line feed at the very beginning.
    assert not data.startswith(b"---\n")
    result = parse(data, directory="x")
    assert result.skill is not None
    assert (result.skill.name, result.skill.description) == ("x", "d")


@pytest.mark.parametrize("value", ["no", "2001-01-01", "017", "9" * 5_000, "null", "1.0"])
def test_28_and_29_every_scalar_stays_the_text_that_was_written(value: str) -> None:
    text = f"---\nname: {value}\ndescription: d\n---\n"
    if len(value) > 4_300:
        # An error that is none of the parser's, so nobody who calls it expects it.
        with pytest.raises(ValueError, match="digits"):
            naive_fields(text)
    else:
        assert not isinstance(naive_fields(text)["name"], str)
    result = parse(text.encode(), directory=value)
    found = [] if result.skill is None else [result.skill.frontmatter.fields["name"]]
    assert found in ([value], []), "as it was written, or refused"
    assert found or [d.code for d in result.diagnostics if d.severity == "error"]


def test_26_a_tag_that_calls_a_function_calls_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = f"{HEAD}a: !!python/object/apply:os.mkdir ['{made}']\n---\n"
    yaml.unsafe_load(text.split("---")[1])
    assert made.is_dir()
    made.rmdir()
    assert codes(text.encode()) == [("yaml-tag", 4)]
    assert not made.exists()


def test_31_a_fence_in_the_body_ends_nothing() -> None:
    text = f"{HEAD}---\nbody\n---\nname: other\n---\nrest\n"
    result = parse(text.encode(), directory="x")
    assert result.skill is not None
    assert result.skill.name == "x"
    # `rsplit`, as some designs cut, makes the second fence the end.
    assert "name: other" in text.rsplit("---", 1)[0]


def twins(root: Path) -> list[str]:
    found = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    found += ["pdf", "PDF", "pаypal", "paypal"]
    for number, name in enumerate(found):
        write_file(root / f"d{number}", name=name)
    return found


def test_21_twins_of_a_name_are_each_reported_and_neither_takes_the_others_place(
    tmp_path: Path,
) -> None:
    made = twins(tmp_path)
    folded = {unicodedata.normalize("NFC", name).casefold() for name in naive_names(tmp_path)}
    assert len(folded) < len(made), "a table of folded names loses some without a word"
    index = discover([tmp_path])
    assert sorted(names(index)) == sorted(made)
    said = {path for _, code, path in findings(index, tmp_path) if code == "name-invalid"}
    assert said == {f"d{number}/SKILL.md" for number in (0, 1, 3, 4)}
    for name in made:
        assert index.get(name).name == name


def test_22_lower_trust_never_silently_wins(tmp_path: Path) -> None:
    """A cloned project brings a skill by the name of one of the user's."""
    write_file(tmp_path / "home/.agents/skills/github", description="The user's own.")
    evil = write_file(tmp_path / "project/.agents/skills/github", description="Evil.")
    assert naive_names(tmp_path / "home/.agents/skills", evil.parents[1])["github"] == evil
    with house_at(tmp_path) as house:
        assert [skill.description for skill in house.index.skills if skill.name == "github"] == [
            "The user's own."
        ]
        assert "Evil" not in house.catalog().text
    index = discover(
        [Root(evil.parents[1], "project"), Root(tmp_path / "home/.agents/skills", "user")]
    )
    assert [skill.id for skill in index.shadowed] == ["user:github"]
    assert [found.code for found in index.diagnostics] == ["shadowed"]
