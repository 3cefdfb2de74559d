"""`./x lint` fails on each kind of decay and says what to do (scripts/bars.py, lint, words)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import bars, lint, walk, words

from tests.harness import ran

ROOT = Path(__file__).resolve().parents[1]
LOWER = "./x lint --lower-bars"
RAISE = "raise the bar by hand in scripts/bars.toml, in a commit that says why"
SIX = "".join(f"    print({number} * argument)\n" for number in range(6))
DECISIONS = "".join(f"    if argument == {number}:\n        return\n" for number in range(20))


class Place:
    """A package of three files with its bars, set to what it has."""

    def __init__(self, base: Path) -> None:
        self.root, self.bars = base / "tree", base / "bars.toml"
        self.package = self.root / "src" / "skillhouse" / "store"
        self.write("../__init__.py", "")
        self.write("__init__.py", "from skillhouse.store.table import Table as Table\n")
        self.write("table.py", "class Table:\n    def read(self) -> None: ...\n")
        self.write("key.py", "class Key:\n    def read(self) -> None: ...\n")
        assert self.run("--set").returncode == 0

    def write(self, name: str, text: str) -> None:
        """Write a file of the package."""
        file = self.package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Compare the package with its bars, as lint does."""
        # What a tree imports is read from the package on the path, hence a process.
        command = [sys.executable, "-m", "scripts.bars", "--no-walks", *options]
        places = ["--tree", str(self.root), "--bars", str(self.bars)]
        return ran([*command, *places], cwd=ROOT)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def grow(place: Place) -> None:
    place.write("key.py", "x = 1\n" * 100)


def offer(place: Place) -> None:
    names = ("table import Table as Table", "key import Key as Key")
    place.write("__init__.py", "".join(f"from skillhouse.store.{name}\n" for name in names))


def repeat_a_name(place: Place) -> None:
    place.write("key.py", "class Table:\n    pass\n")


def name_by_a_participle(place: Place) -> None:
    (place.package / "key.py").rename(place.package / "keying.py")


def import_in_a_circle(place: Place) -> None:
    place.write("key.py", "import skillhouse.store.table\n")
    place.write(
        "table.py",
        """\
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            import skillhouse.store.key
        """,
    )


def decide_much(place: Place) -> None:
    place.write("key.py", f"class Key:\n  def judge(self, argument):\n{DECISIONS}")


def copy_lines(place: Place) -> None:
    place.write("key.py", f"def one(argument):\n{SIX}")
    place.write("table.py", f"def two(argument, /):\n    # Again.\n{SIX.replace('(', '( ')}")


DECAYS: list[tuple[Callable[[Place], None], str]] = [
    (lambda place: place.write("row.py", "x = 1\n"), "modules: store: 4 files, the bar is 3"),
    (grow, "lines: store: 103 lines, the bar is 100"),
    (offer, "names: store: 2 public names of the package, the bar is 1"),
    (repeat_a_name, "classes: Table: 2 classes of this name, the bar is 0"),
    (
        name_by_a_participle,
        "participles: store/keying.py: 1 module whose name ends in -ing or -ed, the bar is 0",
    ),
    (
        import_in_a_circle,
        (
            "cycles: skillhouse.store.key skillhouse.store.table: "
            "2 files that import each other in a circle, the bar is 0"
        ),
    ),
    (
        decide_much,
        (
            "complexity: store/key.py Key.judge: "
            "21 decisions in a function, of which a new one may have 20, the bar is 0"
        ),
    ),
    (
        copy_lines,
        (
            "duplicates: store/key.py store/table.py: 6 lines that are there twice "
            "(`./x py -m scripts.duplicates` shows them), the bar is 0"
        ),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("decay", "found"), DECAYS, ids=list(bars.MEASURES))
def test_each_decay_fails_and_says_what_to_do(
    place: Place, decay: Callable[[Place], None], found: str
) -> None:
    assert place.run().returncode == 0
    decay(place)
    done = place.run()
    message = f"{found}: {bars.MEASURES[found.partition(':')[0]].advice}"
    assert (done.returncode, done.stderr) == (1, "")
    *lines, last = done.stdout.splitlines()
    assert message in lines
    assert RAISE in last
    # Lowering raises nothing, and so the decay is still one.
    assert message in place.run("--lower").stdout.splitlines()
    assert place.run("--set").returncode == 0


@pytest.mark.slow
def test_what_got_better_fails_until_its_bar_is_lower(place: Place) -> None:
    repeat_a_name(place)
    assert place.run("--set").returncode == 0
    place.write("key.py", "class Key:\n    pass\n")
    done = place.run()
    expected = f"classes: Table: 0 classes of this name, the bar is 2: lower the bar: {LOWER}\n"
    assert (done.returncode, done.stdout) == (1, expected)
    assert place.run("--lower").returncode == 0
    assert "Table" not in place.bars.read_text(encoding="utf-8")
    repeat_a_name(place)
    assert place.run().returncode == 1


@pytest.mark.slow
def test_a_file_of_bars_that_is_gone_is_a_failure(place: Place) -> None:
    place.bars.unlink()
    done = place.run()
    assert (done.returncode, done.stderr) == (
        1,
        f"expected bars in {place.bars}: ./x lint --set-bars\n",
    )


def test_a_walk_may_be_off_by_its_tolerance_and_no_more() -> None:
    known = {"tolerance": {"walks": 4}, "walks": {"list": 64}}
    for count in (60, 64, 68):
        values = {"walks": {"list": count}}
        assert bars.faults(values, known) == []
        assert bars.lowered(values, known) == known
    [above] = bars.faults({"walks": {"list": 69}}, known)
    assert above.startswith("walks: list: 69 files entered")
    assert above.endswith("or load it only when it is needed")
    assert bars.lowered({"walks": {"list": 69}}, known) == known
    [below] = bars.faults({"walks": {"list": 59}}, known)
    assert below.endswith(LOWER)
    assert bars.lowered({"walks": {"list": 59}}, known)["walks"] == {"list": 59}


def test_a_kind_that_is_taken_out_of_the_file_has_bars_of_nothing() -> None:
    values = {"classes": {"Table": 2}}
    [fault] = bars.faults(values, {})
    assert fault.startswith("classes: Table: 2 classes of this name, the bar is 0")
    assert bars.lowered(values, {}) == {"classes": {"Table": 0}}


@pytest.mark.slow
def test_a_file_more_that_list_enters_is_counted_and_above_the_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "src" / "skillhouse"
    copy = ["cp", "-a", str(ROOT / "src" / "skillhouse"), str(package)]
    package.parent.mkdir()
    subprocess.run(copy, check=True)
    before = walk.files_of(walk.walked("list", tmp_path))
    (package / "extra.py").write_text("def entered() -> None: ...\n", encoding="utf-8")
    verbs = package / "frontends" / "cli" / "__init__.py"
    text = verbs.read_text(encoding="utf-8")
    head = "def main("
    assert head in text
    text = text.replace(head, f"import skillhouse.extra\n\n\n{head}", 1)
    body = text.index(":\n", text.index(head)) + 2
    call = "    skillhouse.extra.entered()\n"
    verbs.write_text(text[:body] + call + text[body:], encoding="utf-8")
    assert walk.files_of(walk.walked("list", tmp_path)) - before == {"skillhouse/extra.py"}
    # The same by what lint runs, with this walk alone.
    monkeypatch.setattr(bars, "MEASURES", {})
    monkeypatch.setattr(walk, "WALKS", {"list": walk.WALKS["list"]})
    file = tmp_path / "bars.toml"
    monkeypatch.setattr(sys, "argv", ["bars", "--tree", str(tmp_path), "--bars", str(file)])
    count = bars.walked(bars.Tree(tmp_path), {})[0]["list"]
    for bar, code in ((count, 0), (count - 1, 1)):
        file.write_text(f"[walks]\nlist = {bar}\n", encoding="utf-8")
        assert bars.main() == code
    said = f"walks: list: {count} {bars.WALKS.unit}, the bar is {count - 1}: {bars.WALKS.advice}"
    *_, line, last = capsys.readouterr().out.splitlines()
    assert line == said
    assert RAISE in last


def test_the_bars_have_every_kind_and_lint_compares_them() -> None:
    assert list(bars.read(bars.FILE)) == [bars.TOLERANCE, *bars.MEASURES, "walks"]
    set_of = {name: command[1:] for name, command in lint.commands().items()}
    assert (set_of["bars"], set_of["words"]) == (["-m", "scripts.bars"], ["-m", "scripts.words"])
    assert set(bars.read(bars.FILE)["walks"]) == set(walk.WALKS)


@pytest.mark.parametrize("name", [None, *lint.commands()])
def test_lint_fails_where_one_check_does_and_runs_those_after_it(
    name: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    codes = {one: int(one == name) for one in lint.commands()}
    commands = {
        one: [sys.executable, "-c", f"print('{one} is done'); raise SystemExit({code})"]
        for one, code in codes.items()
    }
    monkeypatch.setattr(lint, "commands", lambda: commands)
    monkeypatch.setattr(lint, "tree_findings", list)
    monkeypatch.setattr(sys, "argv", ["lint"])
    assert lint.main() == (0 if name is None else 1)
    out, err = capfd.readouterr()
    assert out == ("" if name is None else f"{name} is done\n")
    assert [line[3:] for line in err.splitlines()[:-1]] == ["tree", *commands]
    assert err.splitlines()[-1] == f"lint: {'all is well' if name is None else f'failed: {name}'}"


def test_lint_fails_where_a_file_is_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lint, "commands", dict)
    monkeypatch.setattr(lint, "tree_findings", lambda: ["src/long.py: expected at most 600 lines"])
    monkeypatch.setattr(sys, "argv", ["lint"])
    assert lint.main() == 1
    assert capsys.readouterr() == (
        "src/long.py: expected at most 600 lines\n",
        "== tree\nlint: failed: tree\n",
    )


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("x = 1\n" * 400, None),
        ("x = 1\n" * 401, "expected at most 400 lines of code, got 401: split it by idea"),
        ("# why\n" * 200 + "x = 1\n" * 400, None),
        (
            "# why\n" * 201 + "x = 1\n" * 400,
            "expected at most 600 lines, got 601: split it by idea",
        ),
    ],
    ids=["code", "too much code", "lines", "too many lines"],
)
def test_a_file_has_at_most_600_lines_of_which_400_are_code(
    tmp_path: Path, text: str, finding: str | None
) -> None:
    file = tmp_path / "src" / "long.py"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    expected = [] if finding is None else [f"src/long.py: {finding}"]
    assert lint.tree_findings(tmp_path) == expected


def test_a_name_with_a_refused_word_is_found_as_a_text_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = "to" + "ld"
    file = tmp_path / "notes.py"
    file.write_text(f"def read_{refused}(polies: int) -> None:\n    x = polies\n", encoding="utf-8")
    assert words.main([str(file)]) == 1
    message = f"{file}:1: {refused}: the name `read_{refused}`: say what it holds or does\n"
    assert capsys.readouterr().out == message
    named = file.rename(tmp_path / f"{refused}.py")
    named.write_text("", encoding="utf-8")
    assert words.main([str(named)]) == 1
    named.rename(tmp_path / "said.py")
    assert words.main([str(tmp_path)]) == 0


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A sandbox hides some; that is no missing checkout."""
    subprocess.run(("git", "init", "-q", tmp_path), check=True)
    # Reading it fails for the superuser too.
    (tmp_path / "hidden").symlink_to("/proc/self/mem")
    (tmp_path / "read").write_text("plain")
    assert lint.tree_findings(tmp_path) == ["hidden: cannot be read: Input/output error"]
