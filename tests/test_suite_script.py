"""The parts of the suite: what each runs, how portions are cut, and that no failure is lost."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from scripts import suite_tracer
from scripts.suite import Portion, dearest, main, portions_of, share_of
from scripts.suite_record import FileRecord, Record, reaching
from scripts.suite_tracer import Unit, folded, later

from tests.harness import ran

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "test_passes.py": "def test_one(): pass\n\ndef test_two(): pass\n",
    "test_fails.py": "def test_bad(): assert 1 == 2\n",
    "test_dies.py": "import os\n\ndef test_dies(): os._exit(9)\n",
    "test_waits.py": "import time\n\ndef test_waits(): time.sleep(60)\n",
    "test_broken.py": "import nothing_of_this_name\n",
    "test_slow.py": "import pytest\n\npytestmark = pytest.mark.slow\n\ndef test_s(): pass\n",
    "test_heavy.py": "import pytest\n\npytestmark = pytest.mark.heavy\n\ndef test_h(): pass\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a project with the scripts of this one and no tests yet."""
    (tmp_path / "scripts").mkdir()
    for name in ("suite", "suite_plugin", "suite_record"):
        shutil.copy(ROOT / f"scripts/{name}.py", tmp_path / "scripts")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/ci_skips.toml").write_text("skip = []\n", encoding="utf-8")
    (tmp_path / "src/skillhouse").mkdir(parents=True)
    marks = "markers =\n  slow: s\n  heavy: h\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{marks}", encoding="utf-8")
    return tmp_path


def suite(tree: Path, files: tuple[str, ...], *arguments: str) -> tuple[int, str]:
    """Return the exit code and output of the suite over some of the files."""
    for name in files:
        (tree / "tests" / name).write_text(FILES[name], encoding="utf-8")
    command = [sys.executable, "-m", "scripts.suite", *arguments]
    done = ran(command, cwd=tree)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_failure_and_an_error_of_collection_are_counted_shown_and_repeated(tree: Path):
    code, said = suite(tree, ("test_passes.py", "test_fails.py", "test_broken.py"))
    assert code == 2
    assert "assert 1 == 2" in said
    assert "FAILED tests/test_fails.py::test_bad" in said
    assert "2 passed, 2 failed, 0 skipped" in said.splitlines()
    (tree / "tests/test_broken.py").unlink()
    assert (tree / ".x/failed-tests.txt").read_text().splitlines() == [
        "tests/test_broken.py",
        "tests/test_fails.py::test_bad",
    ]
    (tree / "tests/test_broken.py").write_text("def test_now(): pass\n", encoding="utf-8")
    (tree / "tests/test_fails.py").write_text("def test_bad(): pass\n", encoding="utf-8")
    code, said = suite(tree, (), "failed")
    assert (code, "2 passed, 0 failed" in said) == (0, True)


@pytest.mark.slow
def test_a_failure_with_a_name_that_no_file_could_have_is_repeated(tree: Path):
    names = "[1], ids=['a' * 300]"
    row = f"import pytest\n\n@pytest.mark.parametrize('word', {names})\ndef test_bad(word): "
    file = tree / "tests/test_fails.py"
    file.write_text(f"{row}assert 1 == 2\n", encoding="utf-8")
    assert suite(tree, ())[0] == 1
    file.write_text(f"{row}pass\n", encoding="utf-8")
    code, said = suite(tree, (), "failed")
    assert (code, "1 passed, 0 failed" in said) == (0, True), said


@pytest.mark.slow
def test_a_process_that_dies_fails_the_run(tree: Path):
    code, said = suite(tree, ("test_passes.py", "test_dies.py"))
    assert code == 2
    assert "ended with exit code 9" in said


def test_reports_are_read_whole_while_they_are_written(tmp_path: Path):
    reports = tmp_path / "0.jsonl"
    rows = [[f"test_{n}", "passed"] for n in range(500)]

    def write() -> None:
        with reports.open("wb", buffering=0) as file:
            for byte in "".join(json.dumps(row) + "\n" for row in rows).encode():
                file.write(bytes([byte]))

    portion = Portion(files=[], number=0, reports=reports, log=tmp_path / "0.log")
    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        portion.take()
    portion.take()
    assert list(portion.outcomes) == [node for node, _ in rows]


@pytest.mark.slow
def test_each_file_is_read_once_and_no_row_of_what_is_left_out(tree: Path):
    # Of the files that it is given, pytest would read the folder of each again.
    (tree / "tests/conftest.py").write_text(
        "import pathlib\n\ndef note(line):\n"
        "    with pathlib.Path(__file__).with_name('read').open('a') as file:\n"
        "        print(line, file=file)\n\n"
        "def pytest_collect_file(file_path):\n    note(file_path.name)\n\n"
        "def pytest_generate_tests(metafunc):\n    note(metafunc.function.__name__)\n"
    )
    record = {"files": {}, "not_fast": ["tests/test_passes.py::test_one"]}
    (tree / "tests/suite.json").write_text(json.dumps(record))
    code, said = suite(tree, ("test_passes.py", "test_fails.py", "test_slow.py"), "fast")
    assert (code, "1 passed, 1 failed, 0 skipped" in said) == (1, True)
    read = (tree / "tests/read").read_text().split()
    assert sorted(read) == ["test_bad", "test_fails.py", "test_passes.py", "test_two"]


@pytest.mark.slow
def test_each_part_runs_its_marks_and_a_share_runs_once(tree: Path):
    files = ("test_passes.py", "test_slow.py", "test_heavy.py")
    assert "2 passed, 0 failed" in suite(tree, files, "fast")[1]
    assert "3 passed, 0 failed" in suite(tree, files)[1]
    assert "4 passed, 0 failed" in suite(tree, files, "all")[1]
    shares = [suite(tree, files, "all", share, "--list")[1].split() for share in ("1/2", "2/2")]
    assert sorted(itertools.chain(*shares)) == sorted(f"tests/{name}" for name in files)


@pytest.mark.slow
def test_what_can_wait_runs_with_all_and_attacks_in_ci_too(tree: Path):
    attacks = "tests/attacks/test_rows.py"
    record = {
        "later": ["tests/test_passes.py::test_two"],
        "left_by_ci": ["tests/test_slow.py", f"{attacks}::test_two"],
    }
    (tree / "tests/suite.json").write_text(json.dumps(record), encoding="utf-8")
    (tree / "tests/attacks").mkdir()
    (tree / attacks).write_text(FILES["test_passes.py"], encoding="utf-8")
    (tree / "tests/attacks/test_dear.py").write_text(FILES["test_heavy.py"], encoding="utf-8")
    files = ("test_passes.py", "test_slow.py")
    assert "2 passed, 0 failed" in suite(tree, files)[1]
    assert "4 passed, 0 failed" in suite(tree, files, "ci")[1]
    assert "6 passed, 0 failed" in suite(tree, files, "all")[1]


@pytest.mark.slow
def test_portions_are_cut_by_the_seconds_of_a_run_that_were_kept(tree: Path):
    suite(tree, ("test_passes.py", "test_slow.py"), "--keep-seconds")
    kept = json.loads((tree / "tests/suite_seconds.json").read_text(encoding="utf-8"))
    assert list(kept["default"]) == ["tests/test_passes.py", "tests/test_slow.py"]
    kept["default"]["tests/test_slow.py"] = 30.0
    record = Record(by_file={}, later=frozenset(), seconds=kept)
    assert record.cost("tests/test_slow.py", "default") > 30
    assert record.cost("tests/test_slow.py", "all") < 1
    assert record.cost("tests/test_new.py", "default") < 1


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_too(tree: Path):
    (tree / "tests/test_waits.py").write_text(FILES["test_waits.py"], encoding="utf-8")
    command = [sys.executable, "-m", "scripts.suite"]
    process = subprocess.Popen(
        command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    with process:
        time_out = time.monotonic() + 60
        while not children_of(process.pid) and time.monotonic() < time_out:
            time.sleep(0.05)
        [child] = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    # Whoever inherits it may be slow to take its exit status.
    while Path(f"/proc/{child}").exists() and time.monotonic() < time_out:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("options", [["--list"], ["--processes", "2"]])
def test_a_part_behind_an_option_is_refused(options: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"the part goes first: \./x test changed"):
        main([*options, "changed"])


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", ["", "1"])
def test_what_a_run_writes_into_memory_is_gone_with_it(on_disk: str) -> None:
    file = Path(f"/tmp/skillhouse-suite-{os.getpid()}")
    code = f"from scripts.suite import has_tmp_in_memory as f; print(f()); open('{file}', 'x')"
    environment = {"PATH": os.environ["PATH"], "SKILLHOUSE_TEST_ON_DISK": on_disk}
    done = ran([sys.executable, "-c", code], cwd=ROOT, env=environment)
    is_left = file.exists()
    file.unlink(missing_ok=True)
    # Elsewhere than here there may be no memory for it, or no right to mount.
    assert (done.stdout, is_left) in (
        [("False\n", True)] if on_disk else [("False\n", True), ("True\n", False)]
    ), done.stderr


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(number) for number in text.split()]


def test_portions_are_neighbours_of_about_one_cost_and_nothing_is_lost():
    files = [str(number) for number in range(40)]
    costs = [float(1 + number % 7) for number in range(40)]
    for count in (1, 2, 3, 12, 50):
        cut = portions_of(files, costs, (1,) * count)
        assert list(itertools.chain(*cut)) == files
        assert len(cut) <= count
    for sizes in ((1, 1, 1), (4, 2, 1), (1, 4)):
        cut = portions_of(files, costs, sizes)
        assert list(itertools.chain(*cut)) == files
        for one, size in zip(cut, sizes, strict=True):
            wanted = sum(costs) * size / sum(sizes)
            assert abs(sum(costs[int(file)] for file in one) - wanted) <= max(costs)
    assert share_of(files, costs, "1/1") == files


def test_the_choice_keeps_what_alone_reaches_lines_and_what_is_cheap():
    found = {
        "tests/a.py::test_fast": Unit(mark="fast", seconds=1, lines={"a.py": 0b1}),
        "tests/a.py::test_dear": Unit(mark="slow", seconds=50, lines={"a.py": 0b11}),
        "tests/b.py::test_only": Unit(mark="slow", seconds=5, lines={"b.py": 0b1111}),
        "tests/b.py::test_cheap": Unit(mark="slow", seconds=1, lines={"a.py": 0b1}),
        "tests/c.py::test_heavy": Unit(mark="heavy", seconds=99, lines={"a.py": 0b100}),
    }
    # Six lines are reached by all that is not heavy, seven by everything.
    assert later(found, {}, (), seconds=8, share=0.6) == ["tests/a.py::test_dear"]
    assert later(found, {}, (), seconds=8, share=0.8) == ["tests/b.py::test_cheap"]
    left = later(found, {}, (), seconds=6, share=0.6)
    assert left == ["tests/a.py::test_dear", "tests/b.py::test_cheap"]
    # What is not in the fast part is chosen as what is marked, though it has no mark.
    dear = ["tests/a.py::test_fast"]
    waiting = [*left, "tests/b.py::test_only"]
    assert later(found, {}, (), seconds=0, share=0) == sorted(waiting)
    assert later(found, {}, dear, seconds=0, share=0) == sorted([*waiting, *dear])
    assert later(found, {}, dear, seconds=6, share=0.5) == left
    assert folded(["tests/b.py::test_only", "tests/b.py::test_cheap"], found) == ["tests/b.py"]
    assert folded(["tests/a.py::test_dear"], found) == ["tests/a.py::test_dear"]
    assert suite_tracer.count({"a": 7}) == 3
    assert suite_tracer.not_fast(found, seconds=1) == []
    assert suite_tracer.not_fast(found, seconds=0.5) == ["tests/a.py::test_fast"]


def test_a_change_is_said_with_what_each_of_its_files_costs() -> None:
    costs = {"tests/test_a.py": ("a.py", 600.0), "tests/test_b.py": ("b.py", 90.0)}
    record = Record(
        by_file={
            name: FileRecord(fast=seconds, slow=0, heavy=0, sources=frozenset({source}))
            for name, (source, seconds) in {**costs, "tests/test_c.py": ("c.py", 5.0)}.items()
        },
        later=frozenset(),
    )
    changed = [f"src/skillhouse/{name}.py" for name in "bca"]
    assert dearest(changed, record, list(record.by_file)) == [
        "src/skillhouse/a.py by itself: 1 files, 10 minutes of CPU",
        "src/skillhouse/b.py by itself: 1 files, 2 minutes of CPU",
    ]


def test_the_fast_part_is_chosen_from_its_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    record = tmp_path / "suite.json"
    kept = ["tests/a.py::test_left_before"]
    before = '{\n "later": [],\n "not_fast": ' + json.dumps(kept, indent=2) + ',\n "files": {}\n}\n'
    record.write_text(before, encoding="utf-8")
    monkeypatch.setattr(suite_tracer, "PLACE", record)
    monkeypatch.setattr(suite_tracer, "_is_there", lambda _: True)
    costs = tmp_path / "costs.tsv"
    rows = [("9", "tests/b.py::test_dear"), ("1", "tests/a.py::test_one[x]")]
    rows += [("0.1", "tests/a.py::test_two"), ("0.2", "tests/a.py::test_two[y]")]
    costs.write_text("".join(f"{cpu}\t{cpu}\t{node}\n" for cpu, node in rows), encoding="utf-8")
    files = ["tests/a.py", "tests/b.py", "tests/c.py"]
    suite_tracer.choose_fast(costs, files, seconds=1.0)
    now = json.loads(record.read_text(encoding="utf-8"))
    # A file of which nothing is left, or nothing ran, stands for its tests.
    tests = ["tests/a.py::test_left_before", "tests/a.py::test_one"]
    assert now["not_fast"] == [*tests, "tests/b.py", "tests/c.py"]
    # Those of another part say nothing of this one.
    with pytest.raises(SystemExit, match="run that first"):
        suite_tracer.choose_fast(costs, ["tests/a.py"], seconds=1.0)
    assert not Record(by_file={}, later=frozenset(), not_fast=frozenset(now["not_fast"])).has_any(
        "tests/b.py", "fast"
    )


def test_a_change_concerns_what_enters_it_names_it_or_is_new():
    def one(*sources: str) -> FileRecord:
        return FileRecord(fast=0, slow=0, heavy=0, sources=frozenset(sources))

    record = Record(
        by_file={
            "tests/floor/test_digest.py": one("floor/digest.py"),
            "tests/skill/test_head.py": one("skill/head.py", "floor/digest.py"),
            "tests/guides/test_guides.py": one("skill/head.py"),
        },
        later=frozenset(),
    )
    everything = [*sorted(record.by_file), "tests/unrecorded/test_new.py"]

    def concerned(*changed: str) -> list[str]:
        return reaching(changed, record, everything)

    new = "tests/unrecorded/test_new.py"
    assert concerned() == []
    assert concerned("src/skillhouse/floor/digest.py") == [
        "tests/floor/test_digest.py",
        "tests/skill/test_head.py",
        new,
    ]
    assert concerned("tests/skill/test_head.py") == ["tests/skill/test_head.py", new]
    assert concerned("docs/guides/install.md") == ["tests/guides/test_guides.py", new]
    assert concerned("tests/skill/conftest.py") == ["tests/skill/test_head.py", new]
    assert concerned("pyproject.toml") == everything
    # A module that no record knows: by those that name it, and by its mirrored folder.
    assert "tests/floor/test_digest.py" in concerned("src/skillhouse/floor/not_recorded.py")


def test_the_record_of_this_tree_names_files_that_are_there():
    record = Record.read()
    assert [file for file in record.by_file if not (ROOT / file).exists()] == []
    assert [name for name in record.later if not (ROOT / name.partition("::")[0]).exists()] == []
    # What is new since the last recording runs in each part; of a tenth that costs too much.
    missing = [file for file in record.files() if file not in record.by_file]
    assert len(missing) < len(record.files()) / 10, "./x py -m scripts.suite_tracer"
