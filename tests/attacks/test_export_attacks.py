"""Skills, folders and files that are made to be copied, overwritten, deleted or led elsewhere.

A naive exporter copies with `shutil.copytree`, clears the target with `shutil.rmtree` first, and
rewrites a client's configuration with `json.load` and `json.dump`, as installers of skills do.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.audit import AuditLog
from skillhouse.clients import (
    Action,
    ClientConfigs,
    Exporter,
    ExportError,
    ExportRequest,
    ExportState,
    Form,
    Item,
    difference,
    export,
)
from skillhouse.clients.folders import FolderHandle, resolved
from skillhouse.clients.trees import copy_tree
from skillhouse.floor import make_private
from skillhouse.floor.trees import TREE_MAX_FILES
from skillhouse.house import Skillhouse, configured, export_source
from skillhouse.skill import load_profile
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow

SECRET = "token-owl42"


class Place:
    """A home with a secret, a house, and a project of somebody else."""

    def __init__(self, base: Path) -> None:
        self.places = make_places(base)
        self.home, self.project = self.places.home, self.places.start
        self.secret = self.home / ".ssh/id"
        self.secret.parent.mkdir()
        self.secret.write_text(SECRET)
        self.source = write_skill(self.home / ".config/skillhouse/skills/notes", "Takes notes.")
        self.house = Skillhouse(configured(self.places))

    def export(self, name: str = "notes", client: str = "codex", **more: object) -> Item:
        self.house.refresh()
        request = ExportRequest(references=(name,), clients=(client,), **more)  # type: ignore[arg-type]
        (item,) = export(export_source(self.house), request)
        return item

    def remove(self, name: str = "notes", **more: object) -> Item:
        request = ExportRequest(references=(name,), **more)  # type: ignore[arg-type]
        (item,) = Exporter(export_source(self.house)).remove(request)
        return item


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    with made.house:
        yield made


def naive_export(source: Path, target: Path) -> None:
    """Do as installers do: clear the place, then copy."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, dirs_exist_ok=True)


def everything_below(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.rglob("*") if path.is_file())


def test_a_link_in_a_skill_does_not_bring_what_it_leads_to(place: Place, tmp_path: Path) -> None:
    (place.source / "assets").mkdir()
    (place.source / "assets/logo.md").symlink_to(place.secret)
    naive_export(place.source, tmp_path / "naive")
    assert SECRET in everything_below(tmp_path / "naive")
    item = place.export()
    assert (item.state, "a symbolic link in a skill" in item.reason) == (ExportState.REFUSED, True)
    assert not (place.home / ".agents").exists()


def test_a_directory_that_is_a_link_is_not_walked(place: Place, tmp_path: Path) -> None:
    (place.source / "references").symlink_to(place.secret.parent)
    naive_export(place.source, tmp_path / "naive")
    assert SECRET in everything_below(tmp_path / "naive")
    assert place.export().state is ExportState.REFUSED


def test_a_file_swapped_for_a_link_while_it_is_copied_is_not_followed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = place.source / "a.md"
    victim.write_text("fine")
    into = tmp_path / "into"
    into.mkdir()
    handle = os.open(into, os.O_RDONLY)
    found = os.stat

    def swapped(path: str, **more: Any) -> os.stat_result:
        info = found(path, **more)
        if path == "a.md":
            victim.unlink()
            victim.symlink_to(place.secret)
        return info

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", swapped)
        with pytest.raises(ExportError, match="cannot be copied"):
            copy_tree(place.source, handle)
    os.close(handle)
    assert SECRET not in everything_below(into)


def test_a_huge_skill_is_refused_before_it_is_written(place: Place) -> None:
    for number in range(TREE_MAX_FILES):
        (place.source / f"{number}.md").write_text("x")
    item = place.export()
    assert (item.state, "more than 1000 files" in item.reason) == (ExportState.REFUSED, True)
    for number in range(TREE_MAX_FILES):
        (place.source / f"{number}.md").unlink()
    with open(place.source / "big", "wb") as file:
        file.truncate(50_000_001)
    assert "50000000 bytes" in place.export().reason
    assert not (place.home / ".agents").exists()


def test_special_files_and_depth_are_refused(place: Place) -> None:
    os.mkfifo(place.source / "pipe")
    assert "special file" in place.export().reason
    (place.source / "pipe").unlink()
    place.source.joinpath(*["d"] * 40).mkdir(parents=True)
    assert "deeper than 16" in place.export().reason


def test_set_id_and_write_bits_do_not_travel(place: Place) -> None:
    (place.source / "run.sh").write_text("x")
    (place.source / "run.sh").chmod(0o6777)
    assert place.export().done
    copy = place.home / ".agents/skills/notes/run.sh"
    assert copy.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "name",
    ["../../../evil", "a/b", "..", ".hidden", "a\\b", "x\u202ey", "nul\x07l", "c:d", "a" * 300],
)
def test_a_hostile_name_is_never_a_path(place: Place, name: str) -> None:
    directory = place.home / ".config/skillhouse/skills/odd"
    directory.mkdir()
    text = f"---\nname: {json.dumps(name)}\ndescription: Odd.\n---\nBody.\n"
    (directory / "SKILL.md").write_text(text)
    before = sorted(path for path in place.home.rglob("*") if "evil" in path.name)
    naive = os.path.normpath("/skills/../../../evil")
    assert not naive.startswith("/skills/")
    place.house.refresh()
    for item in export(
        export_source(place.house), ExportRequest(everything=True, clients=("codex",))
    ):
        assert item.skill == "user:notes" or item.state is ExportState.REFUSED, item
    folder = place.home / ".agents/skills"
    assert os.listdir(folder) == ["notes"]
    assert sorted(path for path in place.home.rglob("*") if "evil" in path.name) == before


def test_a_foreign_folder_of_the_same_name_survives(place: Place, tmp_path: Path) -> None:
    mine = write_skill(tmp_path / "naive/notes", "Years of work.")
    naive_export(place.source, mine)
    assert "Years of work." not in everything_below(mine)
    mine = write_skill(place.home / ".agents/skills/notes", "Years of work.")
    for force in (False, True):
        assert place.export(force=force).action is Action.NONE
    assert "Years of work." in everything_below(mine)


def test_a_foreign_file_or_dangling_link_of_the_same_name_survives(place: Place) -> None:
    folder = place.home / ".agents/skills"
    folder.mkdir(parents=True)
    (folder / "notes").write_text("a file")
    assert place.export(force=True).state is ExportState.FOREIGN
    (folder / "notes").unlink()
    (folder / "notes").symlink_to(place.home / "nowhere")
    assert place.export(force=True).state is ExportState.FOREIGN
    assert not (place.home / "nowhere").exists()


def test_a_projects_folder_that_leads_out_is_not_written_through(place: Place) -> None:
    """A repository that somebody cloned can hold `.claude/skills -> ~/.ssh`."""
    (place.project / ".claude").mkdir()
    (place.project / ".claude/skills").symlink_to(place.secret.parent)
    naive_export(place.source, place.project / ".claude/skills/notes")
    assert (place.secret.parent / "notes").is_dir()
    shutil.rmtree(place.secret.parent / "notes")
    item = place.export(client="claude-code", where="project")
    assert (item.state, "a link leads out of the project" in item.reason) == (
        ExportState.REFUSED,
        True,
    )
    assert os.listdir(place.secret.parent) == ["id"]


def test_a_folder_of_home_may_be_a_link_that_stays_at_home(place: Place, tmp_path: Path) -> None:
    (place.home / "dotfiles/skills").mkdir(parents=True)
    (place.home / ".agents").mkdir()
    (place.home / ".agents/skills").symlink_to(place.home / "dotfiles/skills")
    assert place.export().done
    assert os.listdir(place.home / "dotfiles") == ["skills"]
    assert place.remove().done
    assert (place.home / ".agents/skills").is_symlink()
    (place.home / ".agents/skills").unlink()
    (place.home / ".agents/skills").symlink_to(tmp_path)
    assert "a link leads out of home" in place.export().reason


def test_a_folder_swapped_for_a_link_after_it_was_looked_at_is_not_followed(place: Place) -> None:
    (place.home / ".agents/skills").mkdir(parents=True)
    path = str(place.home / ".agents/skills")
    folder = resolved(path, place.places, place.project, where="user")
    (place.home / ".agents/skills").rmdir()
    (place.home / ".agents/skills").symlink_to(place.secret.parent)
    with pytest.raises(ExportError) as caught:
        FolderHandle(folder, create=True)
    assert caught.value.code == "path-link"
    (place.home / ".agents/skills").unlink()
    (place.home / ".agents").rmdir()
    (place.home / ".agents").symlink_to(place.secret.parent)
    with pytest.raises(ExportError):
        FolderHandle(folder, create=True)
    assert os.listdir(place.secret.parent) == ["id"]


def test_what_comes_between_the_look_and_the_swap_is_put_back(place: Place) -> None:
    path = str(place.home / ".agents/skills")
    folder = resolved(path, place.places, place.project, where="user")
    with FolderHandle(folder, create=True) as hands:
        mine = write_skill(place.home / ".agents/skills/notes", "Came meanwhile.")
        with hands.staging() as staged:
            staged.copy(place.source)
            with pytest.raises(ExportError) as caught:
                staged.put("notes", replaces=())
    assert caught.value.code == "changed-there"
    assert "Came meanwhile." in everything_below(mine)
    assert os.listdir(place.home / ".agents") == ["skills"]


def test_removal_does_not_follow_a_target_swapped_for_a_link(place: Place) -> None:
    assert place.export().done
    copy = place.home / ".agents/skills/notes"
    precious = place.home / "precious"
    copy.rename(precious)
    copy.symlink_to(precious)
    assert place.remove().action is Action.NONE
    item = place.remove(force=True)
    assert (item.action, item.done) == (Action.REMOVE, True)
    assert not copy.is_symlink()
    assert (precious / "SKILL.md").exists()


def test_removal_does_not_follow_a_folder_that_moved(place: Place) -> None:
    assert place.export().done
    (place.home / ".agents").rename(place.home / "moved")
    (place.home / ".agents").symlink_to(place.home / "moved")
    item = place.remove(force=True)
    assert item.action is Action.NONE
    assert (place.home / "moved/skills/notes/SKILL.md").exists()


def test_a_link_lets_no_project_into_every_project(place: Place) -> None:
    """What a pull brings would be read everywhere, without the look that trust asks for."""
    write_skill(place.project / ".skillhouse/skills/deploy")
    place.house.project_trust.trust()
    item = place.export("deploy", form=Form.LINK)
    assert (item.state, "not linked" in item.reason) == (ExportState.REFUSED, True)


def test_without_a_log_nothing_is_written(place: Place) -> None:
    make_private(place.house.config.state_directory)
    place.house.audit_log.path.mkdir()
    with pytest.raises(Exception, match="log"):
        place.export()
    assert not (place.home / ".agents").exists()


def test_a_difference_follows_no_link_and_is_bounded(place: Place) -> None:
    foreign = write_skill(place.home / ".agents/skills/notes")
    (foreign / "run.md").symlink_to(place.secret)
    (foreign / "long.md").write_text("x\n" * 100_000)
    lines = difference(foreign, place.source)
    assert SECRET not in "\n".join(lines)
    assert len(lines) <= 2_001
    assert len(difference(foreign / "SKILL.md", place.source)) == 1


def naive_install(file: Path) -> None:
    """Do as installers do: read, change, write."""
    config = json.loads(file.read_text()) if file.exists() else {}
    config.setdefault("mcpServers", {})["skills"] = {"command": "skillhouse", "args": ["mcp"]}
    file.write_text(json.dumps(config, indent=2))


@pytest.fixture
def configs(place: Place, tmp_path: Path) -> ClientConfigs:
    return ClientConfigs(
        places=place.places,
        project=place.project,
        state_directory=tmp_path / "state",
        audit=AuditLog(tmp_path / "audit.jsonl"),
    )


def test_a_projects_configuration_that_is_a_link_out_is_not_written(
    place: Place, configs: ClientConfigs
) -> None:
    victim = place.home / ".claude.json"
    victim.write_text("{}")
    (place.project / ".mcp.json").symlink_to(victim)
    naive_install(place.project / ".mcp.json")
    assert "skills" in victim.read_text()
    victim.write_text("{}")
    change = configs.install("claude-code", where="project")
    assert (change.done, "a link leads out" in change.reason) == (False, True)
    assert victim.read_text() == "{}"


def test_a_users_configuration_may_be_a_link_that_stays_at_home(
    place: Place, configs: ClientConfigs, tmp_path: Path
) -> None:
    (place.home / "dotfiles").mkdir()
    real = place.home / "dotfiles/claude.json"
    real.write_text('{"a": 1}')
    (place.home / ".claude.json").symlink_to(real)
    assert configs.install("claude-code").done
    assert (place.home / ".claude.json").is_symlink()
    assert "skills" in real.read_text()
    assert configs.uninstall("claude-code").done
    assert real.read_text() == '{"a": 1}'
    (place.home / ".claude.json").unlink()
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (place.home / ".claude.json").symlink_to(outside)
    assert "a link leads out" in configs.install("claude-code").reason
    assert outside.read_text() == "{}"


def test_a_configuration_with_other_names_or_of_others_is_not_replaced(
    place: Place, configs: ClientConfigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.home / ".claude.json"
    file.write_text("{}")
    os.link(file, place.home / "twin.json")
    assert "hard links" in configs.install("claude-code").reason
    (place.home / "twin.json").unlink()
    with monkeypatch.context() as patch:
        uid = os.geteuid()
        patch.setattr(os, "geteuid", lambda: uid + 1)
        assert "another user" in configs.install("claude-code").reason
    file.unlink()
    os.mkfifo(file)
    assert "regular file" in configs.install("claude-code").reason


def test_a_configuration_that_the_client_writes_meanwhile_is_not_lost(
    place: Place, configs: ClientConfigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.home / ".claude.json"
    file.write_text('{"a": 1}')
    fsync = os.fsync

    def client_writes(handle: int) -> None:
        fsync(handle)
        file.write_text('{"a": 2, "login": "kept"}')

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", client_writes)
        change = configs.install("claude-code")
    assert (change.done, "try again" in change.reason) == (False, True)
    assert file.read_text() == '{"a": 2, "login": "kept"}'
    assert [path.name for path in place.home.iterdir() if "claude.json" in path.name] == [
        ".claude.json"
    ]


def test_a_configuration_of_hostile_shape_is_refused_and_stays(
    place: Place, configs: ClientConfigs
) -> None:
    file = place.home / ".claude.json"
    for text in (
        b'{"mcpServers": {"skills": {}, "skills": {"command": "x"}}}',
        b'{"mcpServers": [1]}',
        b"\xff\xfe",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": 1' + b"0" * 10_000 + b"}",
    ):
        file.write_bytes(text)
        change = configs.install("claude-code")
        assert (change.action, bool(change.reason)) == ("", True)
        assert file.read_bytes() == text
    with open(file, "wb") as opened:
        opened.truncate(17 * 1024 * 1024)
    assert "at most" in configs.install("claude-code").reason


def test_a_program_in_the_current_directory_is_not_taken_for_ours(
    place: Place, configs: ClientConfigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = place.project / "skillhouse"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(place.project)
    places = make_places(place.home.parent, {"PATH": "."})
    found = ClientConfigs(
        places=places,
        project=place.project,
        state_directory=place.home / "state",
        audit=AuditLog(place.home / "audit.jsonl"),
    ).install("claude-code", dry_run=True)
    assert shutil.which("skillhouse", path=".") is not None
    assert "-m" in found.snippet
    assert load_profile("claude-code").client
