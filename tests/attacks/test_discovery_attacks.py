"""Trees that are made to stop, crash, mislead or lead out a discovery.

Each is discovered in a process of its own with a time limit, so that a hang is a failure, and
beside each lies a good skill that must be found.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from skillhouse.discovery import Root, discover, render_catalog
from skillhouse.floor import SkillError
from skillhouse.skill import load
from tests.discovery.trees import (
    Report,
    everything,
    names,
    place_for_all,
    probe,
    probe_as_nobody,
    write_skill,
)

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


Finding = tuple[str, str, str]
"""(severity, code, path relative to the root) of one expected finding."""

SECONDS = 20.0
"""Time limit of one discovery; each needs a fraction of a second."""
PEAK_MIB = 150
"""Most memory that a discovery may need."""


def discovered(root: Path, *, scope: str = "explicit") -> Report:
    """Return what a discovery of `root` says, which is the same with an index, cold and warm."""
    report = probe(Root(root, scope), timeout_seconds=SECONDS)
    assert report.peak_mib < PEAK_MIB
    # What does not hang and crash there can be looked at here.
    for cache in (None, root.parent / "cache", root.parent / "cache"):
        assert everything(discover([Root(root, scope)], cache=cache)) == report.everything
    return report


def places(report: Report, root: Path) -> list[Finding]:
    """Return the findings with paths relative to `root`."""
    return [
        (severity, code, os.path.relpath(path, root)) for severity, code, path in report.findings
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one good skill, which must be found whatever else there is."""
    write_skill(tmp_path / "root" / "good")
    return tmp_path / "root"


def unix_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(place.parent, os.O_RDONLY)
        try:
            # The path of a socket is short; the directory's may be long.
            made.bind(f"/proc/self/fd/{here}/{place.name}")
        finally:
            os.close(here)


def make_device(place: Path, major: int, minor: int) -> None:
    try:
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    except PermissionError:
        pytest.skip("making a device needs the rights of root")


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "unix_socket": unix_socket,
    "null_device": lambda place: make_device(place, 1, 3),
    "endless_device": lambda place: make_device(place, 1, 5),
    "terminal": lambda place: make_device(place, 5, 0),
}


@pytest.mark.req("S003-23")
@pytest.mark.parametrize("kind", KINDS)
def test_something_else_than_a_file_named_skill_md(root: Path, kind: str) -> None:
    for place in ("bad", "linked"):
        (root / place).mkdir()
    KINDS[kind](root / "bad" / "SKILL.md")
    (root / "linked" / "SKILL.md").symlink_to("../bad/SKILL.md")
    write_skill(root / "bad" / "below")
    report = discovered(root)
    assert report.skills == ["below", "good"]
    assert places(report, root) == [
        ("error", "not-a-file", "bad/SKILL.md"),
        ("error", "not-a-file", "linked/SKILL.md"),
    ]


@pytest.mark.parametrize("kind", ["pipe", "unix_socket", "null_device", "endless_device"])
def test_a_root_that_is_something_else_than_a_directory(root: Path, kind: str) -> None:
    KINDS[kind](root.parent / "odd")
    write_skill(root / "good")
    report = probe(root.parent / "odd", root, timeout_seconds=SECONDS)
    assert report.skills == ["good"]
    assert places(report, root.parent) == [("error", "root-not-directory", "odd")]


def to_itself(root: Path) -> None:
    (root / "link").symlink_to("link")


def to_each_other(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")


def upwards(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "up").symlink_to("..")
    (root / "d" / "here").symlink_to(".")


def crosswise(root: Path) -> None:
    for one, other in (("x", "y"), ("y", "x")):
        (root / one).mkdir()
        (root / one / "over").symlink_to(f"../{other}")


def file_to_itself(root: Path) -> None:
    (root / "f").mkdir()
    (root / "f" / "SKILL.md").symlink_to("SKILL.md")


def chain(root: Path) -> None:
    """Make a chain of more links than the kernel follows."""
    (root / "link-0").symlink_to("good")
    for number in range(60):
        (root / f"link-{number + 1}").symlink_to(f"link-{number}")


def doubling(root: Path) -> None:
    """Make directories in which every level can be reached in twice as many ways as the last."""
    for level in range(30):
        (root / f"l{level}").mkdir()
        for name in ("one", "two"):
            (root / f"l{level}" / name).symlink_to(f"../l{level + 1}")
    (root / "l30").mkdir()


LOOPS = [to_itself, to_each_other, upwards, crosswise, file_to_itself, chain, doubling]


@pytest.mark.req("S001-20")
@pytest.mark.parametrize("make", LOOPS)
def test_links_in_a_loop(root: Path, make: Callable[[Path], None]) -> None:
    make(root)
    report = discovered(root)
    assert report.skills == ["good"]
    assert {"link-cycle", "same-directory"} & set(report.codes)
    also = {"name-mismatch", "depth-limit"}
    assert set(report.codes) <= {"link-cycle", "same-directory", *also}


@pytest.fixture
def secret(root: Path) -> Path:
    """A skill outside the root, which no link may bring in."""
    return write_skill(root.parent / "outside" / "secret", description="Outside the root.")


def test_a_chain_of_links_out_of_the_root(root: Path, secret: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("good/../c")
    (root / "c").symlink_to(os.path.relpath(secret.parent, root))
    (root / "d").mkdir()
    (root / "d" / "SKILL.md").symlink_to("e")
    (root / "d" / "e").symlink_to(secret)
    report = discovered(root)
    assert report.skills == ["good"]
    assert places(report, root) == [
        ("warning", "link-escape", "a"),
        ("warning", "link-escape", "b"),
        ("warning", "link-escape", "c"),
        ("warning", "link-escape", "d/SKILL.md"),
    ]


def test_a_link_to_a_file_that_is_turned_to_one_outside_during_the_scan(
    root: Path, secret: Path
) -> None:
    (root / "linked").mkdir()
    inside = root / "inside.md"
    inside.write_text("---\nname: linked\ndescription: Inside the root.\n---\n")
    link = root / "linked" / "SKILL.md"
    link.symlink_to("../inside.md")
    # The root is opened when the link was found to end inside and its end is about to be read.
    swap = {"when": str(root), "path": str(link), "to": str(secret)}
    report = probe(root, swap=swap, timeout_seconds=SECONDS)
    assert link.resolve() == secret
    assert report.skills == ["good", "linked"]
    assert not any("Outside" in line for line in report.everything)


def test_the_file_behind_a_link_that_becomes_a_link_outside_during_the_scan(
    root: Path, secret: Path
) -> None:
    (root / "linked").mkdir()
    inside = root / "inside.md"
    inside.write_text("---\nname: linked\ndescription: Inside the root.\n---\n")
    (root / "linked" / "SKILL.md").symlink_to("../inside.md")
    swap = {"when": str(root), "path": str(inside), "to": str(secret)}
    report = probe(root, swap=swap, timeout_seconds=SECONDS)
    assert inside.resolve() == secret
    assert report.skills == ["good"]
    assert places(report, root) == [("error", "unreadable", "linked/SKILL.md")]


def test_a_file_that_becomes_a_link_outside_during_the_scan(root: Path, secret: Path) -> None:
    file = write_skill(root / "swapped")
    swap = {"when": str(file), "path": str(file), "to": str(secret)}
    report = probe(root, swap=swap, timeout_seconds=SECONDS)
    assert file.resolve() == secret
    assert report.skills == ["good"]
    assert places(report, root) == [("warning", "link-escape", "swapped/SKILL.md")]


def test_a_skill_that_becomes_a_link_outside_after_the_scan_is_not_loaded(
    root: Path, secret: Path
) -> None:
    file = write_skill(root / "swapped")
    index = discover([root])
    shutil.rmtree(file.parent)
    file.parent.symlink_to(secret.parent)
    with pytest.raises(SkillError, match="cannot read this skill"):
        load(index.get("swapped"))


def test_a_file_of_two_gigabytes_that_takes_no_place_on_the_disk(root: Path) -> None:
    large = write_skill(root / "large")
    endless = write_skill(root / "endless")
    endless.write_bytes(b"---\n")
    for file in (large, endless):
        os.truncate(file, 2 << 30)
    report = discovered(root)
    assert report.skills == ["good"]
    assert places(report, root) == [
        ("error", "too-large", "endless/SKILL.md"),
        ("error", "too-large", "large/SKILL.md"),
    ]


def test_a_frontmatter_that_never_ends(root: Path) -> None:
    for name, text in {"lines": "a: b\n" * 50_000, "one-line": "x" * 260_000}.items():
        (root / name).mkdir()
        (root / name / "SKILL.md").write_text("---\n" + text)
    report = discovered(root)
    assert report.skills == ["good"]
    assert places(report, root) == [
        ("error", "frontmatter-unclosed", "lines/SKILL.md"),
        ("error", "frontmatter-unclosed", "one-line/SKILL.md"),
    ]


def test_names_that_are_not_utf8(root: Path) -> None:
    (root / "link").symlink_to("good")
    for name in (b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"ok\n\xfe"):
        place = os.fsencode(root) + b"/" + name
        os.mkdir(place)
        with open(place + b"/SKILL.md", "wb") as file:
            file.write(b"---\nname: bad\ndescription: x\n---\n")
    report = discovered(root)
    assert report.skills == ["good"]
    assert sorted(report.codes) == ["name-mismatch", *["path-encoding"] * 4, "same-directory"]


def test_a_nul_and_other_escapes_in_a_name(root: Path) -> None:
    (root / "odd").mkdir()
    (root / "odd" / "SKILL.md").write_text(
        '---\nname: "a\\0b\\n</name></skill>"\ndescription: "x\\0\\e[2Jy\\nz"\n---\n'
    )
    report = discovered(root)
    assert len(report.skills) == 2
    assert places(report, root) == [
        ("warning", "name-invalid", "odd/SKILL.md"),
        ("warning", "name-mismatch", "odd/SKILL.md"),
    ]
    index = discover([root])
    assert index.get("a\0b\n</name></skill>").directory == root / "odd"
    text = render_catalog(index).text
    assert "<name>a b &lt;/name&gt;&lt;/skill&gt;</name>" in text
    assert "<description>x [2Jy z</description>" in text


def test_a_nul_in_the_path_of_a_root(root: Path) -> None:
    report = probe(f"{root}\0/good", "\0", root, timeout_seconds=SECONDS)
    assert report.skills == ["good"]
    assert report.findings == [["error", "path-nul", None]] * 2


def test_a_root_that_may_not_be_read() -> None:
    with place_for_all() as base:
        write_skill(base / "good" / "skill")
        for name, mode in (("closed", 0o000), ("listed", 0o444)):
            write_skill(base / name / "hidden")
            (base / name).chmod(mode)
        write_skill(base / "above" / "root" / "hidden")
        (base / "above").chmod(0o000)
        roots = [base / name for name in ("closed", "listed", "above/root", "good")]
        report = probe_as_nobody(*roots, timeout_seconds=SECONDS)
        for name in ("closed", "listed", "above"):
            (base / name).chmod(0o755)
        assert report.skills == ["skill"]
        assert places(report, base) == [
            ("error", "unreadable", "closed"),
            ("error", "unreadable", "listed/hidden/SKILL.md"),
            ("error", "unreadable", "above/root"),
        ]


def make_deep(place: Path, names: Iterable[str]) -> str:
    """Make directories in each other, also deeper than a path can say; return the path."""
    here = os.open(place, os.O_RDONLY)
    path = str(place)
    for name in names:
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, path = below, f"{path}/{name}"
    os.close(here)
    return path


def test_directories_deeper_than_any_path(root: Path) -> None:
    level = "d" * 250
    assert len(make_deep(root, [level] * 20)) > 4_096
    report = discovered(root)
    assert report.skills == ["good"]
    assert places(report, root) == [("warning", "depth-limit", "/".join([level] * 13))]


def test_a_root_whose_path_is_almost_too_long(root: Path) -> None:
    left = 4_090 - len(str(root.parent))
    rest = ["y" * (left % 201)] if left % 201 else []
    path = make_deep(root.parent, ["x" * 200] * (left // 201) + rest)
    assert 4_080 < len(path) < 4_096
    report = probe(path, root, timeout_seconds=SECONDS)
    assert report.skills == ["good"]
    assert places(report, root) == []


def test_one_directory_more_than_a_project_root_may_have(root: Path) -> None:
    for number in range(1_999):
        (root / f"s{number:04}").mkdir()
    assert discovered(root, scope="project").findings == []
    write_skill(root / "z-last")
    report = discovered(root, scope="project")
    assert report.skills == ["good"]
    assert places(report, root) == [("warning", "scan-limit", ".")]


@pytest.mark.parametrize("target", ["nowhere", "good", "/", "good/SKILL.md"])
def test_more_links_than_anybody_needs(root: Path, target: str) -> None:
    for number in range(2_500):
        (root / f"link-{number:05}").symlink_to(target)
    report = discovered(root, scope="project")
    assert report.skills == ["good"]
    assert report.codes.count("scan-limit") == 1
    # At most a finding a link that was looked at, not one for each that there is.
    assert len(report.findings) <= 2_003


@pytest.fixture
def crowded() -> Iterator[Path]:
    """A root with a good skill, in memory where that can be: a million entries take time."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with TemporaryDirectory(dir=place) as directory:
        root = Path(directory).resolve()
        write_skill(root / "good")
        yield root


def test_a_million_files_in_a_root(crowded: Path) -> None:
    here = os.open(crowded, os.O_RDONLY)
    for batch in range(25):  # A file of ext4 has at most 65,000 names.
        os.mknod(f"{batch}", stat.S_IFREG | 0o600, dir_fd=here)
        for number in range(40_000):
            os.link(f"{batch}", f"{batch}-{number}", src_dir_fd=here, dst_dir_fd=here)
    os.close(here)
    report = probe(crowded, timeout_seconds=60, unwatched=True)
    assert report.skills == ["good"]
    assert places(report, crowded) == [("warning", "many-entries", ".")]
    assert report.peak_mib < PEAK_MIB


def test_more_directories_in_a_root_than_are_looked_at(crowded: Path) -> None:
    here = os.open(crowded, os.O_RDONLY)
    for number in range(100_000):
        os.mkdir(f"s{number:06}", dir_fd=here)
    os.close(here)
    report = probe(crowded, timeout_seconds=60, unwatched=True)
    assert report.skills == ["good"]
    assert places(report, crowded) == [
        ("warning", "many-entries", "."),
        ("warning", "scan-limit", "."),
    ]
    assert report.peak_mib < PEAK_MIB


def test_a_directory_name_that_a_person_cannot_read_is_not_shown_to_the_model(root: Path) -> None:
    hidden = root / "a\u202egod\u200b\U000e0041"
    write_skill(hidden, name="harmless")
    index = discover([root])
    assert names(index) == ["good", "harmless"]
    assert f"<location>{root}/a god /SKILL.md</location>" in render_catalog(index).text
