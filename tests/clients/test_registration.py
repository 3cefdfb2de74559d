"""Tests of writing our server into clients' configuration files."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit import AuditLog, read_records
from skillhouse.clients import (
    ClientConfigs,
    Standing,
    jsonc,
    register,
    toml_text,
    unattended_of,
)
from skillhouse.clients.allow_list import AllowList
from skillhouse.clients.client_table import ClientConfig, server_config, server_configs
from skillhouse.clients.config_file import ConfigFile, Entries
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.floor import ConfigError
from skillhouse.house import Locations
from tests.house.places import make_places

DOCS = Path(__file__).resolve().parents[2] / "docs"
ENTRY = {"command": "skillhouse", "args": ["mcp"]}


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return make_places(tmp_path, {"PATH": ""})


@pytest.fixture
def configs(places: Locations, tmp_path: Path) -> ClientConfigs:
    return ClientConfigs(
        places=places,
        project=places.start,
        state_directory=tmp_path / "state",
        audit=AuditLog(tmp_path / "audit.jsonl"),
    )


COMMENTED = '// top\n{\n\t"a": 1, // about a\n\t/* b\n is */ "b": [1, 2,], // about b\n'
# What is there, and what it is with our entry. Taking it out again gives what was there.
JSON_CASES = [
    ("{}", '{\n  "m": {\n    "s": 1\n  }\n}'),
    ('{"a": 1}', '{"a": 1, "m": {"s": 1}}'),
    ('{"m": {"x": 2}}', '{"m": {"x": 2, "s": 1}}'),
    ('{"m": {"x": 2},}', '{"m": {"x": 2, "s": 1},}'),
    (
        COMMENTED + "\t// the end\n}\n",
        COMMENTED + '\t"m": {\n\t\t"s": 1\n\t},\n\t// the end\n}\n',
    ),
    (
        '{\r\n    "m": {\r\n        "x": {} // "s": 2\r\n    }\r\n}\r\n',
        '{\r\n    "m": {\r\n        "x": {}, // "s": 2\r\n        "s": 1\r\n    }\r\n}\r\n',
    ),
    (
        '\ufeff{\n "m": { // none\n }\n}',
        '\ufeff{\n "m": {\n  "s": 1 // none\n }\n}',
    ),
    (
        '{\n  "a": 1 /* one\n  two */\n}',
        '{\n  "a": 1, /* one\n  two */\n  "m": {\n    "s": 1\n  }\n}',
    ),
    ('{"a": "// no comment, \\" {"}', '{"a": "// no comment, \\" {", "m": {"s": 1}}'),
]


@pytest.mark.parametrize(("before", "after"), JSON_CASES)
def test_an_entry_is_added_where_nothing_else_changes(before: str, after: str) -> None:
    assert jsonc.with_entry(before, "m", "s", 1) == after


@pytest.mark.parametrize(("before", "after"), JSON_CASES)
def test_taking_the_entry_out_gives_the_text_that_was_there(before: str, after: str) -> None:
    had_table = "m" in jsonc.parse(before).value
    back = jsonc.without_entry(after, "m", "s", with_table=not had_table)
    if "// none" in before:
        # The comment stood between the braces; it stays, on a line of its own or not.
        assert jsonc.parse(back).value == jsonc.parse(before).value
        assert "// none" in back
    else:
        # A comma that we put behind the last value is gone again.
        assert back == before


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "{'a': 1}",
        '{"a": 1, "a": 2}',
        '{"m": {"s": 1}}',
        '{"m": []}',
        '{"a": NaN}',
        '{"a": 1} trailing',
        '{"a" 1}',
        '{"a": 1 /* open }',
        '{"a": ' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"a":: 1}',
        '{,"a": 1}',
        '{"a": tru e}',
    ],
)
def test_what_is_no_plain_configuration_is_not_edited(text: str) -> None:
    with pytest.raises(NotEditableError):
        jsonc.with_entry(text, "m", "s", 1)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
GAPS = st.sampled_from(
    ["", " ", "\n", "\n  ", "\t", "\r\n", " // c\n", "/* d */", " /* e\n */ ", "// }\n"]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A document with comments and blanks between all tokens, and perhaps trailing commas."""

    def written(value: Any) -> str:
        gap = lambda: draw(GAPS)  # noqa: E731 - drawn anew at each place.
        if isinstance(value, dict):
            parts = [
                f"{gap()}{json.dumps(k)}{gap()}:{gap()}{written(v)}{gap()}"
                for k, v in value.items()
            ]
            comma = "," if draw(st.booleans()) and parts else ""
            return "{" + ",".join(parts) + comma + gap() + "}"
        if isinstance(value, list):
            parts = [f"{gap()}{written(item)}{gap()}" for item in value]
            comma = "," if draw(st.booleans()) and parts else ""
            return "[" + ",".join(parts) + comma + gap() + "]"
        return json.dumps(value)

    value = draw(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
    if draw(st.booleans()):
        value["m"] = draw(st.dictionaries(st.sampled_from(["x", "y", "}"]), VALUES, max_size=3))
    elif "m" in value:
        del value["m"]
    return draw(GAPS) + written(value) + draw(GAPS)


@pytest.mark.slow
@given(text=documents())
def test_adding_and_taking_out_changes_nothing_else_in_any_document(text: str) -> None:
    before = jsonc.parse(text)
    added = jsonc.with_entry(text, "m", "s", ENTRY)
    after = jsonc.parse(added)
    servers = before.value.get("m", {})
    assert after.value == {**before.value, "m": {**servers, "s": ENTRY}}
    assert [c.text for c in after.comments] == [c.text for c in before.comments]
    back = jsonc.parse(jsonc.without_entry(added, "m", "s", with_table="m" not in before.value))
    expected = before.value
    if "m" not in before.value and "m" in back.value:
        # A comment came to stand in the table that we made; both stay.
        expected = {**before.value, "m": {}}
    assert back.value == expected
    assert [c.text for c in back.comments] == [c.text for c in before.comments]


TOML = """# mine
model = "o9"  # best

[mcp_servers.other]
command = "x"

# about profiles
[profiles.a]
text = '''
[mcp_servers.skills]
'''
"""


def test_a_toml_table_is_added_at_the_end_and_taken_out_again() -> None:
    added = toml_text.with_entry(TOML, "mcp_servers", "skills", ENTRY)
    assert added == TOML + '\n[mcp_servers.skills]\ncommand = "skillhouse"\nargs = ["mcp"]\n'
    more = added + 'env = { A = "1" }\n[mcp_servers.skills.tools.x]\non = true\n\n# about b\n[b]\n'
    # In this text the name stands in a string too, which no line can be told by.
    with pytest.raises(NotEditableError):
        toml_text.without_entry(added, "mcp_servers", "skills")
    plain = TOML.replace("[mcp_servers.skills]", "nothing")
    added = toml_text.with_entry(plain, "mcp_servers", "skills", ENTRY)
    assert toml_text.without_entry(added, "mcp_servers", "skills") == plain
    more = more.replace("'''\n[mcp_servers.skills]", "'''\nnothing")
    assert toml_text.without_entry(more, "mcp_servers", "skills") == plain + "\n# about b\n[b]\n"


FRAGMENTS = st.sampled_from(
    [
        "[a]\nx = 1\n",
        "\n",
        "# [mcp_servers.skills]\n",
        "[mcp_servers.other]\ncommand = 'x' # y\n",
        '[mcp_servers.other2.env]\nA = "[b]"\n',
        "[[list]]\ny = [\n  1,\n]\n",
        "[b]\nt = '''\n[c]\n'''\n",
    ]
)


@given(
    before=st.lists(FRAGMENTS, max_size=5, unique=True),
    after=st.lists(FRAGMENTS, max_size=5, unique=True),
)
def test_a_toml_entry_goes_as_it_came_whatever_stands_around_it(
    before: list[str], after: list[str]
) -> None:
    text = "".join(before)
    added = toml_text.with_entry(text, "mcp_servers", "skills", ENTRY)
    assert toml_text.without_entry(added, "mcp_servers", "skills") == text
    rest = "".join(part for part in after if part not in before or part.startswith(("\n", "#")))
    gone = toml_text.without_entry(added + rest, "mcp_servers", "skills")
    assert gone == text + rest


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { other = { command = 'x' } }\n",
        "[mcp_servers]\nskills = { command = 'x' }\n",
        "mcp_servers = 1\n",
        "broken = \n",
        "[[mcp_servers]]\n",
    ],
)
def test_toml_that_cannot_take_a_table_is_not_edited(text: str) -> None:
    with pytest.raises(NotEditableError):
        toml_text.with_entry(text, "mcp_servers", "skills", ENTRY)


CONFIGS = [(config, where) for config in server_configs() for where in config.places]
OF_EVERY_CLIENT = pytest.mark.parametrize(
    ("config", "where"), CONFIGS, ids=[f"{config.client}-{where}" for config, where in CONFIGS]
)


@OF_EVERY_CLIENT
def test_install_and_uninstall_leave_nothing_behind(
    configs: ClientConfigs, places: Locations, config: ClientConfig, where: str, tmp_path: Path
) -> None:
    client = config.client
    before = tree(places)
    done = configs.install(client, where=where)
    assert (done.standing, done.action, done.done) == (Standing.MISSING, "install", True)
    assert configs.install(client, where=where).standing is Standing.INSTALLED
    file = Path(done.file)
    assert file.stat().st_mode & 0o777 == (0o600 if where == "user" else 0o644)
    assert "skillhouse" in file.read_text()
    gone = configs.uninstall(client, where=where)
    assert (gone.standing, gone.done) == (Standing.INSTALLED, True)
    assert tree(places) == before
    tools = [entry.record.tool for entry in read_records(tmp_path / "audit.jsonl")]
    assert tools == ["manage:mcp-uninstall", "manage:mcp-install"]


def tree(places: Locations) -> dict[str, tuple[int, bytes]]:
    """Return everything at home and in the project: the mode, and the bytes or where it leads."""
    return {
        str(path): (
            path.lstat().st_mode,
            os.fsencode(os.readlink(path))
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b"",
        )
        for base in (places.home, places.start)
        for path in sorted(base.rglob("*"))
    }


OTHER = '"x": {"command": "y"}'
# `TABLE` is the client's key; each text is one that some hand or program may have left.
JSON_TEXTS = [
    "",
    " \n\n",
    "\ufeff",
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"a": 1}',
    '{"b": 1, "a": {}}',
    '{\n\t"a": [1,\n2]\n}\n\n',
    '{\r\n    "a": 1\r\n}\r\n',
    '\ufeff{\n  "a": "\u00e9"\n}',
    '{"TABLE": {}}',
    '{"TABLE": {}, "z": null}',
    '{\n  "TABLE": {\n  }\n}\n',
    '{\r\n  "TABLE": {\r\n    OTHER\r\n  }\r\n}',
    '{"TABLE": {OTHER}}',
]
COMMENTED_TEXTS = [
    '// top\n{\n  // mine\n  "a": 1 // of a\n  /* last */\n}\n',
    "{ /* none */ }",
    '{\r\n  "TABLE": { // servers\r\n    OTHER // the one\r\n  }\r\n}\r\n',
    '{"TABLE": { /* none */ }}',
    "// nothing but this\n{}\n",
]
COMMA_TEXTS = ['{"a": 1,}', '{\n  "TABLE": {\n    OTHER,\n  },\n}\n']
TOML_TEXTS = [
    "",
    "\n\n",
    "# mine\n",
    "a = 1",
    "a = 1\r\n# end\r\n",
    "[t]\nb = 2 # two\n\n\n[u]\n",
    "[TABLE.x]\ncommand = 'y'\n",
    "[TABLE.x]\ncommand = 'y'\n\n[z]\n# end",
]


def texts_of(config: ClientConfig) -> list[str]:
    texts = list(JSON_TEXTS)
    texts += COMMENTED_TEXTS if config.comments else []
    texts += COMMA_TEXTS if config.trailing_commas else []
    texts = TOML_TEXTS if config.format == "toml" else texts
    return [text.replace("TABLE", config.table).replace("OTHER", OTHER) for text in texts]


@pytest.mark.slow
@OF_EVERY_CLIENT
def test_what_was_there_is_there_again_byte_by_byte(
    configs: ClientConfigs, places: Locations, config: ClientConfig, where: str
) -> None:
    file = config.files(places, places.start, where)[-1]
    file.parent.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts_of(config)):
        mode = (0o600, 0o644, 0o640)[number % 3]
        linked = places.home / f"dotfiles-{number}"
        for place in (file, linked):
            place.write_bytes(text.encode())
            place.chmod(mode)
            if place is linked:
                file.unlink()
                file.symlink_to(linked)
                if where == "project":
                    # A link out of the project is refused, and nothing changes.
                    before = tree(places)
                    assert "link leads out" in configs.install(config.client, where=where).reason
                    assert tree(places) == before
                    continue
            before = tree(places)
            done = configs.install(config.client, where=where)
            assert done.done, (text, done.reason)
            # Installing it for other tools replaces the entry, and is undone as well.
            assert configs.install(config.client, where=where, arguments=("mcp", "-x")).done
            assert tree(places) != before
            assert configs.uninstall(config.client, where=where).done
            assert tree(places) == before, text
        file.unlink()
        linked.unlink()


@pytest.mark.slow
@OF_EVERY_CLIENT
def test_two_entries_in_one_file_go_in_either_order(
    configs: ClientConfigs, places: Locations, config: ClientConfig, where: str
) -> None:
    for first, second in (("skills", "house"), ("house", "skills")):
        before = tree(places)
        assert configs.install(config.client, where=where).done
        assert configs.install(config.client, where=where, name="house").done
        assert configs.uninstall(config.client, where=where, name=first).done
        assert configs.uninstall(config.client, where=where, name=second).done
        assert tree(places) == before


def test_removing_skillhouse_sees_the_entry_of_every_client(
    configs: ClientConfigs, places: Locations
) -> None:
    before = tree(places)
    for config, where in CONFIGS:
        assert configs.install(config.client, where=where).done
    found = configs.removable()
    assert [(change.client, where) for change, where in found] == [
        (config.client, where) for config, where in CONFIGS
    ]
    for change, where in found:
        assert configs.uninstall(change.client, where=where, force=True).done
    assert tree(places) == before


def test_folders_that_two_clients_share_go_with_the_last(
    configs: ClientConfigs, places: Locations
) -> None:
    before = tree(places)
    for client in ("zed", "vscode"):
        assert configs.install(client).done
    for client in ("zed", "vscode"):
        assert configs.uninstall(client).done
    assert tree(places) == before


def test_what_a_person_wrote_meanwhile_stays(configs: ClientConfigs, places: Locations) -> None:
    file = places.home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text('{"a": 1}')
    configs.install("cursor")
    value = json.loads(file.read_text())
    file.write_text(json.dumps({"b": 2, **value}, indent=4))
    configs.uninstall("cursor")
    assert json.loads(file.read_text()) == {"b": 2, "a": 1}


def test_what_is_refused_since_the_file_changed_is_not_recorded(
    configs: ClientConfigs, places: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = places.home / ".claude.json"
    file.write_text("{}")
    back_up = ConfigFile.back_up

    def meanwhile(self: ConfigFile, directory: Path) -> Path | None:
        file.write_text('{"theirs": 1}')
        return back_up(self, directory)

    monkeypatch.setattr(ConfigFile, "back_up", meanwhile)
    change = configs.install("claude-code")
    assert (change.done, "changed meanwhile" in change.reason) == (False, True)
    assert Entries(tmp_path / "state").files() == ()


def test_an_entry_has_the_form_that_each_client_writes_itself(configs: ClientConfigs) -> None:
    forms = {
        config.client: json.loads(configs.install(config.client, dry_run=True).snippet)
        for config in server_configs()
        if config.format == "json"
    }
    found = {
        client: (table, list(value[table]["skills"]))
        for client, value in forms.items()
        for table in value
    }
    assert found == {
        "aider-desk": ("mcpServers", ["command", "args"]),
        "amp": ("amp.mcpServers", ["command", "args"]),
        "claude-code": ("mcpServers", ["type", "alwaysLoad", "command", "args"]),
        "copilot-cli": ("mcpServers", ["tools", "type", "command", "args"]),
        "copilot-vscode": ("servers", ["type", "command", "args"]),
        "gemini-cli": ("mcpServers", ["command", "args"]),
        "opencode-cli": ("mcp", ["type", "command", "enabled"]),
        "zed": ("context_servers", ["command", "args"]),
        "cursor": ("mcpServers", ["command", "args"]),
        "forgecode": ("mcpServers", ["command", "args"]),
        "kimi-code-cli": ("mcpServers", ["command", "args"]),
        "pochi": ("mcp", ["command", "args"]),
        "qwen-code": ("mcpServers", ["alwaysLoadTools", "command", "args"]),
        "windsurf": ("mcpServers", ["command", "args"]),
    }


def test_each_client_is_named_in_the_help_and_in_the_guide() -> None:
    names = {config.client for config in server_configs()}
    # The help of `mcp` is in there as it is printed.
    (text,) = re.findall(
        r"^Clients: ([^.]*)\.", (DOCS / "reference/commands.md").read_text(), re.MULTILINE
    )
    assert set(re.sub(r" \(or \w+\)", "", " ".join(text.split())).split(", ")) == names
    rows = (DOCS / "guides/export.md").read_text().partition("| the project's file |")[2]
    assert set(re.findall(r"^\| ([\w-]+)", rows.partition("\n\n")[0], re.MULTILINE)) == names


def test_on_a_mac_the_file_is_where_its_applications_keep_theirs(
    configs: ClientConfigs, places: Locations
) -> None:
    (places.home / "Library/Application Support").mkdir(parents=True)
    file = places.home / "Library/Application Support/Code/User/mcp.json"
    assert configs.install("vscode").file == str(file)


def test_a_client_whose_projects_have_no_file_says_so(configs: ClientConfigs) -> None:
    with pytest.raises(ConfigError, match="has no file of its own in a project"):
        configs.install("windsurf", where="project")
    assert "windsurf" in {change.client for change in configs.status()}


@pytest.mark.slow
def test_a_file_with_comments_keeps_them_and_is_backed_up_once(
    configs: ClientConfigs, places: Locations, tmp_path: Path
) -> None:
    file = places.home / ".gemini/settings.json"
    file.parent.mkdir()
    text = '{\n  // mine\n  "ui": {"theme": "x"}\n}\n'
    file.write_text(text)
    file.chmod(0o640)
    done = configs.install("gemini-cli")
    assert file.read_text().startswith('{\n  // mine\n  "ui": {"theme": "x"},\n  "mcpServers": {\n')
    assert file.stat().st_mode & 0o777 == 0o640
    assert Path(done.backup).read_text() == text
    assert Path(done.backup).is_relative_to(tmp_path / "state")
    configs.uninstall("gemini-cli")
    assert file.read_text() == text
    file.write_text("{}")
    assert Path(configs.install("gemini-cli").backup).read_text() == text


def test_a_dry_run_shows_the_difference_and_changes_nothing(
    configs: ClientConfigs, places: Locations, tmp_path: Path
) -> None:
    change = configs.install("codex", dry_run=True)
    assert (change.action, change.done) == ("install", False)
    assert "+[mcp_servers.skills]" in change.difference
    assert not (places.home / ".codex").exists()
    assert not (tmp_path / "audit.jsonl").exists()


def test_what_we_did_not_write_is_left_alone(configs: ClientConfigs, places: Locations) -> None:
    file = places.home / ".claude.json"
    for entry, standing in (
        ({"command": "other", "args": []}, Standing.FOREIGN),
        ("odd", Standing.FOREIGN),
        ({"command": "/usr/bin/skillhouse", "args": ["mcp", "-C", "/x"]}, Standing.BY_HAND),
    ):
        file.write_text(json.dumps({"mcpServers": {"skills": entry}}))
        text = file.read_text()
        for change in (
            configs.install("claude-code"),
            configs.install("claude-code", force=True),
            configs.uninstall("claude-code"),
        ):
            assert (change.standing, change.action, bool(change.reason)) == (standing, "", True)
        assert file.read_text() == text
    assert configs.install("claude-code", name="house").done
    assert set(json.loads(file.read_text())["mcpServers"]) == {"skills", "house"}


def test_an_entry_of_ours_that_somebody_changed_needs_force(
    configs: ClientConfigs, places: Locations
) -> None:
    configs.install("codex")
    file = places.home / ".codex/config.toml"
    file.write_text(file.read_text() + 'default_tools_approval_mode = "approve"\n')
    text = file.read_text()
    for change in (configs.install("codex"), configs.uninstall("codex")):
        assert (change.standing, change.action) == (Standing.CHANGED, "")
    assert file.read_text() == text
    assert configs.uninstall("codex", force=True).done
    assert not file.exists()


def test_an_entry_is_written_anew_when_it_would_be_another(
    configs: ClientConfigs, places: Locations
) -> None:
    configs.install("opencode")
    again = configs.install("opencode-cli", arguments=("mcp", "--agent", "b"))
    assert (again.standing, again.done) == (Standing.OUTDATED, True)
    file = places.home / ".config/opencode/opencode.json"
    assert json.loads(file.read_text())["mcp"]["skills"]["command"][-3:] == ["mcp", "--agent", "b"]
    configs.uninstall("opencode")
    assert not file.exists()


def test_of_several_files_the_one_with_the_entry_is_meant_else_the_first(
    configs: ClientConfigs, places: Locations
) -> None:
    folder = places.home / ".config/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text("{ // c\n}")
    assert configs.install("opencode").file == str(folder / "opencode.jsonc")
    configs.uninstall("opencode")
    (folder / "opencode.json").write_text('{"mcp": {"skills": {"command": ["x"]}}}')
    change = configs.install("opencode")
    assert (change.file, change.standing) == (str(folder / "opencode.json"), Standing.FOREIGN)


def test_a_file_that_the_client_itself_cannot_read_is_refused_with_the_entry_to_paste(
    configs: ClientConfigs, places: Locations
) -> None:
    (places.start / ".mcp.json").write_text("{ // comment\n}")
    change = configs.install("claude-code", where="project")
    assert (change.standing, "comments" in change.reason) == (Standing.UNREADABLE, True)
    words = [sys.executable, "-I", "-m", "skillhouse", "mcp"]
    assert json.loads(change.snippet) == {
        "mcpServers": {
            "skills": {
                "type": "stdio",
                "alwaysLoad": True,
                "command": words[0],
                "args": words[1:],
            }
        }
    }
    (places.home / ".gemini").mkdir()
    (places.home / ".gemini/settings.json").write_text('{"a": 1,}')
    assert "comma" in configs.install("gemini-cli").reason


def test_registering_adds_the_server_to_the_file_of_the_user(
    places: Locations, tmp_path: Path
) -> None:
    change = register(
        "codex",
        places=places,
        project=places.start,
        state_directory=tmp_path / "state",
        audit=AuditLog(tmp_path / "audit.jsonl"),
    )
    assert (change.standing, change.action, change.done) == (Standing.MISSING, "install", True)
    assert "[mcp_servers.skills]" in Path(change.file).read_text("utf-8")


def test_unknown_clients_and_bad_names_are_errors(configs: ClientConfigs) -> None:
    with pytest.raises(ConfigError, match="did you mean `codex`"):
        configs.install("codx")
    with pytest.raises(ConfigError, match="did you mean `cursor`"):
        configs.install("cursr")
    with pytest.raises(ConfigError, match="where it configures MCP servers is not known"):
        configs.install("kiro")
    for name in ("a b", "", "a.b", "x" * 65):
        with pytest.raises(ConfigError, match="a server's name"):
            configs.install("codex", name=name)


def test_variables_say_where_the_user_file_is(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"CODEX_HOME": str(tmp_path / "elsewhere"), "PATH": os.defpath})
    configs = ClientConfigs(
        places=places,
        project=places.start,
        state_directory=tmp_path / "state",
        audit=AuditLog(tmp_path / "audit.jsonl"),
    )
    assert configs.install("codex").file == str(tmp_path / "elsewhere/config.toml")
    states = [(found.client, found.standing) for found in configs.status()]
    assert ("codex", Standing.INSTALLED) in states


@pytest.mark.parametrize(
    ("client", "where", "expected"),
    [
        ("claude-code", "user", "quit Claude Code first"),
        ("claude-code", "project", ""),
        ("codex", "user", ""),
        ("codex", "project", "only where it trusts the project"),
        ("gemini-cli", "user", "folders that it trusts"),
        ("gemini-cli", "project", "folders that it trusts"),
        ("opencode-cli", "user", ""),
    ],
)
def test_a_note_is_about_the_file_that_was_changed(
    configs: ClientConfigs, client: str, where: str, expected: str
) -> None:
    for change in (
        configs.install(client, where=where),
        configs.uninstall(client, where=where),
    ):
        assert change.action
        assert (change.note == "") is (expected == "")
        assert expected in change.note


WRITES = [
    ("codex", '"approve"', ".codex/config.toml"),
    ("gemini-cli", '"trust": true', ".gemini/settings.json"),
    ("qwen-code", '"trust": true', ".qwen/settings.json"),
    ("claude-code", '"mcp__skills"', ".claude/settings.json"),
    ("kimi-code-cli", '"mcp__skills__*"', ".kimi-code/config.toml"),
    ("cursor", '"Mcp(skills:*)"', ".cursor/cli-config.json"),
]


@pytest.mark.parametrize(("client", "words", "file"), WRITES)
def test_what_unattended_work_needs_is_written_only_where_it_was_asked_for_and_goes_again(
    configs: ClientConfigs, places: Locations, client: str, words: str, file: str
) -> None:
    before = tree(places)
    configs.install(client)
    assert not configs.decides_alone(client)
    assert words not in text_of(places.home / file)
    made = configs.install(client, alone=True)
    assert all(one.done for one in (made, *made.also) if one.action)
    assert configs.decides_alone(client)
    assert text_of(places.home / file).count(words) == 1
    # Nothing is said of it again: it stays, and is not written twice.
    again = configs.install(client)
    assert (again.action, again.also) == ("", ())
    assert configs.decides_alone(client)
    configs.install(client, alone=False)
    assert not configs.decides_alone(client)
    assert words not in text_of(places.home / file)
    configs.install(client, alone=True)
    configs.uninstall(client)
    assert tree(places) == before


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({}, "home/.cursor/cli-config.json"),
        ({"XDG_CONFIG_HOME": "xdg"}, "xdg/cursor/cli-config.json"),
        ({"XDG_CONFIG_HOME": "xdg", "CURSOR_CONFIG_DIR": "own"}, "own/cli-config.json"),
    ],
)
def test_a_list_is_where_the_variables_of_its_client_say(
    tmp_path: Path, variables: dict[str, str], file: str
) -> None:
    rule = unattended_of("cursor")
    assert rule is not None
    there = {name: str(tmp_path / path) for name, path in variables.items()}
    places = Locations(start=tmp_path, home=tmp_path / "home", environment=there)
    assert AllowList(server_config("cursor"), rule, "skills").path(places) == tmp_path / file


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


LISTS = [
    ("claude-code", ".claude/settings.json", '{"permissions": {"allow": ["Bash(ls)"]}, "x": 1}\n'),
    ("claude-code", ".claude/settings.json", '{\n\t"permissions": {"deny": []}\n}'),
    ("claude-code", ".claude/settings.json", '{"x": {"permissions": 1}}'),
    (
        "kimi-code-cli",
        ".kimi-code/config.toml",
        '# mine\n[[permission.rules]]\ndecision = "deny"\npattern = "Bash" # no\n\n[x]\na = 1\n',
    ),
    ("kimi-code-cli", ".kimi-code/config.toml", 'a = 1\r\n[permission]\r\nallow = ["Read"]\r\n'),
]


@pytest.mark.parametrize(("client", "file", "text"), LISTS)
def test_a_list_of_what_is_allowed_keeps_all_else_byte_by_byte(
    configs: ClientConfigs, places: Locations, client: str, file: str, text: str
) -> None:
    path = places.home / file
    path.parent.mkdir()
    path.write_bytes(text.encode())
    path.chmod(0o640)
    configs.install(client, alone=True)
    assert configs.decides_alone(client)
    assert path.stat().st_mode & 0o777 == 0o640
    configs.uninstall(client)
    assert path.read_bytes() == text.encode()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_list_that_cannot_be_edited_is_left_with_the_line_to_add(
    configs: ClientConfigs, places: Locations
) -> None:
    path = places.home / ".claude/settings.json"
    path.parent.mkdir()
    for text in ('{"permissions": []}', '{"permissions": {"allow": {}}}', "{ // mine\n}", "["):
        path.write_text(text)
        made = configs.install("claude-code", alone=True)
        (also,) = made.also
        assert (also.action, also.done, also.standing) == ("", False, Standing.UNREADABLE)
        assert "add the line yourself" in also.reason
        assert "mcp__skills" in also.snippet
        assert path.read_text() == text
        assert not configs.decides_alone("claude-code")


def test_a_line_that_a_person_wrote_stays(configs: ClientConfigs, places: Locations) -> None:
    path = places.home / ".claude/settings.json"
    path.parent.mkdir()
    text = '{"permissions": {"allow": ["mcp__skills"]}}'
    path.write_text(text)
    configs.install("claude-code", alone=True)
    (also,) = configs.uninstall("claude-code").also
    assert (also.standing, also.reason) == (
        Standing.BY_HAND,
        "skillhouse did not write it; it stays",
    )
    assert path.read_text() == text


def test_a_project_decides_for_no_one_and_an_entry_of_others_opens_nothing(
    configs: ClientConfigs, places: Locations
) -> None:
    with pytest.raises(ConfigError, match="leave out --project"):
        configs.install("claude-code", where="project", alone=True)
    # Its name belongs to another server, which must not be called unasked.
    (places.home / ".claude.json").write_text('{"mcpServers": {"skills": {"command": "other"}}}')
    made = configs.install("claude-code", alone=True)
    assert (made.standing, made.also) == (Standing.FOREIGN, ())
    assert not (places.home / ".claude").exists()


def test_the_list_goes_with_all_of_skillhouse_and_alone_where_the_entry_is_gone(
    configs: ClientConfigs, places: Locations
) -> None:
    configs.install("claude-code", alone=True)
    ((change, where),) = configs.removable()
    assert (change.client, where, len(change.also)) == ("claude-code", "user", 1)
    (places.home / ".claude.json").unlink()
    ((change, where),) = configs.removable()
    assert (where, "mcp uninstall claude-code`" in change.reason) == ("", True)
    configs.uninstall("claude-code")
    assert configs.removable() == ()
    assert not (places.home / ".claude").exists()
