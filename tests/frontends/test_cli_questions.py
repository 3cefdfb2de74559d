"""Every verb that asks: without a terminal it refuses, and only a clear yes changes anything."""

from __future__ import annotations

import ast
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skillhouse.extensions.chat import chat_verb
from skillhouse.frontends.cli import person, question
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.cli.verbs import VERBS
from skillhouse_signer import key_verbs
from tests.frontends import test_cli_outdated, test_cli_publish
from tests.frontends.conftest import Run
from tests.frontends.shells import typed
from tests.frontends.test_cli_repositories import configure
from tests.house.places import write_skill
from tests.registry import sources
from tests.registry.publisher_skill import make_skill
from tests.registry.rooted import RootedRegistry

server = test_cli_publish.server
CLI = Path(question.__file__).parent
OF_EXTENSIONS = (
    Path(chat_verb.__file__),
    Path(key_verbs.__file__),
)
"""Verbs of extensions of ours that ask."""
ASKS = {
    "ask",
    "answered",
    "confirmed",
    "all_or_each",
    "typed",
    "tick",
    "TerminalChannel",
    "SignerProcess",
}
ASKS |= {"open_private"}
"""Functions that ask a person, or get a password from one."""
ASKS |= {"password_for", "ask_password", "new_password"}
OWN = {"question.py", "publisher_secrets.py"}
"""Files that define these; `tick_rows.py` and `person.py` are looked at like the others."""
STATE = "home/.local/state/skillhouse"
WORDLESS = {"": 1, "n": 1, "no": 1, "garbage \x01\t": 1, "yes please": 1, "\x04": 1}
"""Answers that are no yes, each with its exit code; the last is the end of the input."""
FREE = {"\x04": 2}
"""For a question whose answer is a text, or a choice: only silence is no answer."""
PIPED = (b"", b"n\n", b"\xff\x00 garbage\n" * 5)


@dataclass(frozen=True)
class Asking:
    """One command that asks; what it is called with may depend on what was prepared."""

    site: str
    """The file and the function that asks."""
    words: tuple[str, ...]
    asks: str
    """What is on the screen when it waits for an answer; empty if it cannot be asked at one."""
    prepare: Callable[[Run, Path], object] = lambda run, place: None
    answers: Mapping[str, int] = field(default_factory=lambda: WORDLESS)
    refused: int = 2
    """Its exit code without a terminal."""
    says: str = "cannot ask without a terminal; "
    is_password: bool = False
    is_call: bool = False
    """Whether it asks about a call, for whose answer others are waited for, too."""
    needs: str = ""
    """A fixture that has to be there."""

    @property
    def is_real(self) -> bool:
        """Whether it asks at the terminal of its process, whatever stdin is."""
        return self.is_password or self.is_call

    def command(self, run: Run, place: Path) -> tuple[str, ...]:
        """Return the words, with what was prepared in the place of `{}`."""
        made = str(self.prepare(run, place))
        return tuple(word.replace("{}", made) for word in self.words)


def user_skill(run: Run, place: Path) -> Path:
    return write_skill(place / "home/.agents/skills/notes")


def project_skill(run: Run, place: Path) -> Path:
    return write_skill(place / "project/.agents/skills/notes")


def other_project(run: Run, place: Path) -> Path:
    write_skill(place / "other/.agents/skills/notes")
    return place / "other"


def deleted_skill(run: Run, place: Path) -> None:
    user_skill(run, place)
    assert run("delete", "notes", "--yes")[0] == 0


def broken_skill(run: Run, place: Path) -> Path:
    file = place / "home/.agents/skills/one/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: one\ndescription: > Reads.\n---\n")
    return file.parent


def source(run: Run, place: Path) -> Path:
    return make_skill(place / "from")


def two_sources(run: Run, place: Path) -> Path:
    make_skill(place / "from", "one")
    return make_skill(place / "from", "two").parent


def moved_skill(run: Run, place: Path) -> None:
    """Install a skill, and move it at its source."""
    origin = place / "from"
    sources.make_skill(origin / "skills/notes")
    sources.make_repository(origin)
    agreed = test_cli_outdated.AGREED
    assert run("install", f"{origin.as_uri()}@main", "--skill", "notes", *agreed)[0] == 0
    test_cli_outdated.move(origin)


def rewritten_skill(run: Run, place: Path) -> None:
    """Install a skill, and give its source another history with the same files."""
    origin = place / "from"
    sources.make_skill(origin / "skills/notes")
    sources.make_repository(origin)
    agreed = test_cli_outdated.AGREED
    assert run("install", f"{origin.as_uri()}@main", "--skill", "notes", *agreed)[0] == 0
    sources.git(origin, "commit", "--quiet", "--amend", "-m", "Another one.")


def root_of_repository(run: Run, place: Path) -> Path:
    """Name a repository that has a root; return the file of that."""
    made = RootedRegistry(place / "served")
    made.close()
    configure(place, ("team", made.directory.as_uri(), True))
    return made.directory / "metadata/1.root.json"


def open_question(run: Run, place: Path) -> str:
    return str(json.loads(run("call", *WRITE, "--json")[1])["approval_id"])


def exported(run: Run, place: Path) -> None:
    user_skill(run, place)
    assert run("export", "notes", "--to", "claude-code")[0] == 0


def registered(run: Run, place: Path) -> None:
    assert run("mcp", "install", "codex", "--tools=all")[0] == 0


def taken(run: Run, place: Path) -> None:
    """Another server has the name, so that the answer changes nothing."""
    del run
    (place / "home/.gemini").mkdir()
    text = '{"mcpServers": {"skills": {"command": "other"}}}'
    (place / "home/.gemini/settings.json").write_text(text)


def stopped(run: Run, place: Path) -> None:
    assert run("stop")[0] == 0


WRITE = ("write", "--args", '{"path": "a.txt", "content": "text"}')
PASSWORDS = {"": 1, "n": 1, "\x04": 1}
TICKS = {**FREE, "": 2, "n": 2, "0": 2, "3": 2, "1 x": 2}
TOOLS = {**FREE, "n\n\x04": 2, "garbage\n\x04": 2}

LOCK = "home/.local/state/skillhouse/installs/lock"
"""An empty file that is held while installed skills are looked at."""
EACH = {"\n".join([word] * 9): 1 for word in ("n", "garbage", "\x04")}
"""Answers to a verb that asks about each of several things."""

ASKING = (
    Asking("project_trust._trust", ("trust",), "(y, n)", project_skill),
    Asking("project_trust._trust", ("trust", "{}"), "(y, n)", other_project),
    Asking("delete._move", ("delete", "notes"), "(y, n)", user_skill),
    Asking("delete._empty", ("delete", "--empty"), "(y, n)", deleted_skill),
    Asking("self_removal._settle_one", ("self", "remove"), "(y, n)", exported, answers=EACH),
    Asking(
        "update._follows",
        ("update",),
        "(y, n)",
        moved_skill,
        answers=dict.fromkeys(WORDLESS, 0),
    ),
    Asking(
        "update._take_place",
        ("update",),
        "Type `rewritten`",
        rewritten_skill,
        answers=dict.fromkeys(WORDLESS, 0),
        refused=0,
        says="another repository is there now",
    ),
    Asking(
        "install._looks_in_public",
        ("install", "--search", "pdf"),
        "(y, n)",
        refused=1,
        says="no repository",
    ),
    Asking("clients.fix_files", ("doctor", "--client=codex", "--fix"), "(y, n)", broken_skill),
    Asking("validate_fix.fix", ("validate", "{}", "--fix"), "(y, n)", broken_skill),
    Asking("policy._init", ("policy", "init"), "(y, n)"),
    Asking("configuration.write_rule", ("policy", "allow", "exec", "pwd"), "(y, n)"),
    # Without a terminal it lists and adds nothing; tests/frontends/test_cli_policy_suggest.py asks.
    Asking("policy_suggest._asked", ("policy", "suggest"), "", refused=0, says=""),
    # Of a state that machines share; tests/frontends/test_cli_audit.py asks there.
    Asking("audit._accept", ("audit", "accept", "core-b"), "", says="the state is in a file"),
    Asking("hooks._run", ("hooks", "install", "claude-code"), "(y, n)"),
    Asking("manage._asked", ("new",), "hyphens):", answers={**FREE, "My Notes\nN!\n\t": 2}),
    Asking("manage._asked", ("new", "x"), "use it:", answers={**FREE, "": 2}),
    Asking("manage._resume", ("resume",), "Type `resume`", stopped),
    Asking(
        "kept_state._move",
        ("state", "move", "--to", "postgresql://127.0.0.1:1/none"),
        "(y, n)",
        stopped,
    ),
    Asking(
        "install_answers.InstallAnswers._is_agreed", ("install", "{}"), "Type `unsigned`", source
    ),
    Asking("install._chosen", ("install", "{}"), "Which ones?", two_sources, answers=TICKS),
    Asking("tick_rows._by_numbers", ("install", "{}"), "Which ones?", two_sources, answers=FREE),
    Asking("publish._is_agreed", ("publish", "{}"), "Type `unsigned`", source, needs="server"),
    Asking(
        "client_files._Tools._asked",
        ("mcp", "install", "codex", "--no-decide-alone"),
        "tools [all]:",
        answers=TOOLS,
    ),
    Asking(
        "mcp_clients.decided_alone",
        ("mcp", "install", "gemini-cli", "--tools=all", "--no-hooks"),
        "decide alone?",
        taken,
        answers=dict.fromkeys(WORDLESS, 1),
        refused=1,
        says="",
    ),
    Asking(
        "hooks.wanted_hooks",
        ("mcp", "install", "codex", "--tools=all"),
        "(y, n)",
        # It asks whether to do more, and without a terminal it does no more.
        registered,
        answers=dict.fromkeys(WORDLESS, 0),
        refused=0,
        says="",
    ),
    Asking("approvals._wants", ("approvals", "approve", "{}"), "Type `approve`", open_question),
    Asking("approvals._change_devices", ("approvals", "pair", "phone"), "Type `pair`"),
    Asking(
        "publisher_keys.remove_publisher_key",
        ("keys", "remove", "acme"),
        "Type `acme`",
        needs="publisher",
    ),
    Asking(
        "publisher_verbs._agreed_root",
        ("keys", "trust", "{}", "--repository", "team"),
        "(y, n)",
        root_of_repository,
    ),
    # What no one can answer here waits for an answer elsewhere (decision 0112).
    Asking(
        "calls._call_and_print",
        ("call", *WRITE),
        "Allow?",
        # After more denials than these the tool is refused for a while.
        answers={"yes please": 1, "\x04": 1},
        refused=1,
        says="not approved yet",
        is_call=True,
    ),
    Asking("calls._invoke", ("invoke", "notes"), "", user_skill, refused=0, says="", is_call=True),
    Asking("chat_verb._run", ("chat",), "", says="a chat needs a terminal"),
    *(
        Asking(
            site,
            tuple(words.split()),
            asks,
            answers=PASSWORDS,
            is_password=True,
            needs="publisher" if asks == "password of `" else "",
        )
        for site, words, asks in (
            ("key_verbs._change", "keys new main", "new password"),
            ("key_verbs._change", "keys import main", "private key"),
            ("publisher_verbs._new", "keys new acme --for skills", "new password"),
            ("publisher_verbs._request", "keys request acme", "password of `"),
            ("publisher_verbs._issue", "keys issue acme.csr --by root", "password of `"),
            (
                "publisher_verbs._revoke",
                "keys revoke developer-acme.crt --by root",
                "password of `",
            ),
            ("skill_signatures._sign", "sign pdf", "password of `"),
            ("bundle._push", "bundle push . file:///tmp/none/team", "password of `"),
        )
    ),
)


def sites() -> set[str]:
    """Return each function of the command line that asks, as `file.Class.function`."""
    found = set()
    for file in (*CLI.glob("*.py"), *OF_EXTENSIONS):
        if file.name not in OWN:
            tree = ast.parse(file.read_bytes())
            for name, node in functions(tree, file.stem):
                calls = {
                    one.func.id
                    for one in ast.walk(node)
                    if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
                }
                if calls & ASKS:
                    found.add(name)
    return found


def functions(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{name}.{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", node


def test_every_function_that_asks_is_tried_here() -> None:
    assert sites() == {one.site for one in ASKING}
    assert {one.words[0] for one in ASKING} <= {*VERBS, "chat", "keys"}


def kept(place: Path) -> dict[str, object]:
    """Return what must not change: files, links and rows, but for caches and the log of calls."""
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir() or name.startswith(("home/.cache/", f"{STATE}/audit", "served", LOCK)):
            continue
        elif path.suffix == ".sqlite3":
            with closing(sqlite3.connect(path)) as database:
                tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                for (table,) in tables.fetchall():
                    if rows := database.execute(f'SELECT * FROM "{table}"').fetchall():
                        found[f"{name} {table}"] = rows
        elif not path.name.endswith(("-wal", "-shm")):
            found[name] = path.read_bytes()
    return found


def changed(place: Path, before: Mapping[str, object], asking: Asking) -> list[str]:
    after = kept(place)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    # A call that no one approved leaves its question there, and counts as denied.
    return [name for name in names if not (asking.is_call and name.startswith(STATE))]


@pytest.fixture
def prepared(
    request: pytest.FixtureRequest, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Asking, tuple[str, ...]]:
    """Prepare one command, and return it with its words."""
    monkeypatch.setattr(person, "TERMINAL", place / "no-terminal")
    monkeypatch.setenv("TERM", "dumb")
    asking: Asking = request.param
    if asking.needs:
        request.getfixturevalue(asking.needs)
    return asking, asking.command(run, place)


def each(found: Sequence[Asking]) -> pytest.MarkDecorator:
    ids = ["-".join((one.site, *one.words[:2])) for one in found]
    return pytest.mark.parametrize("prepared", found, ids=ids, indirect=True)


@pytest.mark.slow
@each(ASKING)
def test_without_a_terminal_it_refuses_and_changes_nothing(
    prepared: tuple[Asking, tuple[str, ...]], place: Path
) -> None:
    asking, words = prepared
    before = kept(place)
    program = [sys.executable, "-m", "skillhouse", *words]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *program]
    tries = [(program, data) for data in PIPED] if asking.is_real else [(program, b"y\n")]
    for command, data in [*tries, (closed, b"")]:
        done = subprocess.run(
            command, input=data, capture_output=True, start_new_session=True, check=False
        )
        said = (done.stdout + done.stderr).decode()
        assert (done.returncode, asking.says in said) == (asking.refused, True), said
        assert "Traceback" not in said
        assert changed(place, before, asking) == []


@pytest.mark.slow
@each([one for one in ASKING if not one.is_real])
def test_a_pipe_is_not_read_for_an_answer(
    prepared: tuple[Asking, tuple[str, ...]],
    run: Run,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking, words = prepared
    before = kept(place)
    for data in PIPED:
        read, write = os.pipe()
        os.write(write, data)
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as stdin, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", stdin)
            code, out, err = run(*words)
        assert (code, asking.says in out + err) == (asking.refused, True), err
        assert changed(place, before, asking) == []


@pytest.mark.slow
@each([one for one in ASKING if one.asks and not one.is_password])
def test_at_a_terminal_only_a_clear_yes_changes_anything(
    prepared: tuple[Asking, tuple[str, ...]], typing: Run, place: Path
) -> None:
    asking, words = prepared
    before = kept(place)
    for answer, expected in asking.answers.items():
        code, _, said = typing(answer, *words)
        assert asking.asks in said
        assert (code, changed(place, before, asking)) == (expected, []), said


@pytest.mark.slow
@each([one for one in ASKING if one.is_password])
def test_no_password_at_a_terminal_changes_nothing(
    prepared: tuple[Asking, tuple[str, ...]], place: Path
) -> None:
    asking, words = prepared
    before = kept(place)
    for answer, expected in asking.answers.items():
        code, said = typed(words, [(asking.asks, answer)], place / "home", Path.cwd())
        assert (code, "Traceback" in said) == (expected, False), said
        assert changed(place, before, asking) == []


@pytest.mark.slow
def test_with_json_what_is_shown_after_the_question_is_not_asked_about(
    typing: Run, run: Run, place: Path
) -> None:
    project_skill(run, place)
    faulty = str(broken_skill(run, place))
    before = kept(place)
    for words in (
        ("trust",),
        ("policy", "init"),
        ("policy", "allow", "exec", "pwd"),
        ("validate", faulty, "--fix"),
    ):
        code, out, _ = typing("y", *words, "--json")
        assert (code, json.loads(out)["error"]["message"]) == (2, "cannot ask with --json")
        assert run(*words, "--json")[0] == 2
    assert {name: kept(place)[name] for name in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_stream_ends_no_verb(run: Run, place: Path, streams: str) -> None:
    file = place / "home/.agents/skills/notes/SKILL.md"
    user_skill(run, place)
    before = file.read_bytes()
    for words, expected in (
        (("list",), 0),
        (("trust",), 2),
        (("--version",), 0),
        (("show", "nothing"), 1),
        (("list", "--json"), 0),
        (("mcp",), 0),
        (("chat", "--print"), 2),
        (("new", "x", "--description", "x", "--body", "-"), 0),
    ):
        program = [sys.executable, "-m", "skillhouse", *words]
        command = ["sh", "-c", f'exec "$@" {streams}', "sh", *program]
        done = subprocess.run(
            command, input=b"", capture_output=True, start_new_session=True, check=False
        )
        said = (done.stdout + done.stderr).decode()
        assert ("Traceback" in said, done.returncode) == (False, expected), (words, said)
    # What another file was opened as is not what is written to.
    assert file.read_bytes() == before
    assert run("doctor", "--client", "codex")[0] == 0


def test_an_answer_that_is_no_text_and_a_terminal_that_is_gone_are_no_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for data in (b"\xff\xfey\n", b"y", b""):
        read, write = os.pipe()
        os.write(write, data)
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as stdin, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", stdin)
            patched.setattr(question, "can_ask", lambda: True)
            asked = Terminal(io.StringIO(), io.StringIO(), {})
            assert question.ask("Well? ", asked, instead="use --yes") is None
    stream = io.StringIO()
    stream.close()
    assert not question.is_terminal(stream)
    assert not question.is_terminal(None)
