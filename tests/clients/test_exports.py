"""Tests of writing skills into the folders of other clients, and of taking them back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.audit import read_records
from skillhouse.clients import (
    Action,
    Exporter,
    ExportError,
    ExportRequest,
    ExportState,
    Form,
    Item,
    client_profile,
    compare,
    difference,
    export,
    known_clients,
)
from skillhouse.clients import LensState as Seen
from skillhouse.clients.export_state import Record, Records
from skillhouse.clients.folders import ClientRoots
from skillhouse.discovery import discover
from skillhouse.floor import ConfigError, UnknownSkillError, tree_digest
from skillhouse.floor.structs import replace
from skillhouse.house import Locations, Skillhouse, configured, export_source
from skillhouse.skill import profile_names
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow

FOUR = ("claude-code", "codex", "gemini-cli", "opencode")


class Place:
    """A home with a house in it."""

    def __init__(self, base: Path) -> None:
        self.places: Locations = make_places(base)
        self.home = self.places.home
        self.project = self.places.start
        self.source = write_skill(self.home / ".config/skillhouse/skills/notes", "Takes notes.")
        self.houses: list[Skillhouse] = []

    @property
    def house(self) -> Skillhouse:
        """A house that has looked anew."""
        self.houses.append(Skillhouse(configured(self.places)))
        return self.houses[-1]

    def export(
        self, *references: str, clients: tuple[str, ...] = FOUR, **more: object
    ) -> list[Item]:
        request = ExportRequest(references=references, clients=clients)
        return list(export(export_source(self.house), replace(request, **more)))  # type: ignore[arg-type]

    def remove(self, *references: str, **more: object) -> list[Item]:
        request = ExportRequest(references=references)
        return list(Exporter(export_source(self.house)).remove(replace(request, **more)))  # type: ignore[arg-type]

    def sync(self, **more: object) -> list[Item]:
        return list(Exporter(export_source(self.house)).sync(replace(ExportRequest(), **more)))  # type: ignore[arg-type]

    def status(self) -> dict[str, ExportState]:
        """Return the state of each target, relative to home."""
        return {
            os.path.relpath(item.target, self.home): item.state
            for item in Exporter(export_source(self.house)).status()
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for house in made.houses:
        house.close()


def facts(items: list[Item], home: Path) -> list[tuple[str, str, str]]:
    return [
        (item.state.value, item.action.value, os.path.relpath(item.target, home)) for item in items
    ]


def test_one_copy_serves_the_clients_that_share_a_folder(place: Place, tmp_path: Path) -> None:
    (place.source / "run.sh").write_text("echo hi\n")
    (place.source / "run.sh").chmod(0o750)
    (place.source / "references").mkdir()
    (place.source / "references/a.md").write_text("A.\n")
    items = place.export("notes")
    assert facts(items, place.home) == [
        ("missing", "write", ".claude/skills/notes"),
        ("missing", "write", ".agents/skills/notes"),
    ]
    assert [item.clients for item in items] == [
        ("claude-code",),
        ("codex", "gemini-cli", "opencode-cli"),
    ]
    reading = {name for name, one in known_clients().items() if "~/.claude/skills" in one.user}
    others = sorted(reading & {*profile_names()} - {"claude-code"})
    assert items[0].also == tuple(others)
    assert {"amp", "crush", "goose"} < {*others}
    copy = place.home / ".agents/skills/notes"
    assert tree_digest(copy) == tree_digest(place.source)
    assert (copy / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (copy / "SKILL.md").stat().st_mode & 0o7777 == 0o644
    assert sorted(os.listdir(place.home / ".agents")) == ["skills"]
    tools = [entry.record.tool for entry in read_records(place.house.audit_log.path)]
    assert tools == ["manage:export"] * 2


def test_every_client_lists_what_was_exported_to_it(place: Place) -> None:
    place.export("notes")
    profiles = [client_profile(name, place.places) for name in FOUR]
    lens = compare(start=place.project, home=place.home, environment={}, profiles=profiles)
    for number, name in enumerate(FOUR):
        states = [found.verdicts[number].state for found in lens.skills if found.name == "notes"]
        assert Seen.SEEN in states, name


def test_a_client_does_with_a_folder_that_is_written_to_anyway(place: Place) -> None:
    (item,) = place.export("notes", clients=("opencode", "claude-code"))
    assert (item.clients, item.target) == (
        ("claude-code", "opencode-cli"),
        str(place.home / ".claude/skills/notes"),
    )


def test_the_clients_own_folder_is_taken_when_it_is_asked_for(place: Place) -> None:
    clients = ("codex", "gemini-cli", "opencode")
    assert [
        target for *_, target in facts(place.export("notes", clients=clients, own=True), place.home)
    ] == [
        ".codex/skills/notes",
        ".gemini/skills/notes",
        ".config/opencode/skills/notes",
    ]


def test_into_a_project_it_goes_to_the_projects_folders(place: Place) -> None:
    items = place.export("notes", where="project")
    assert [target for *_, target in facts(items, place.project)] == [
        ".claude/skills/notes",
        ".agents/skills/notes",
    ]
    assert (place.project / ".claude/skills/notes/SKILL.md").is_file()
    place.remove("notes")
    assert os.listdir(place.project) == [".git"]


def test_the_states_follow_what_happens_to_the_skill_and_to_the_copy(place: Place) -> None:
    place.export("notes", clients=("codex",))
    copy = place.home / ".agents/skills/notes"
    assert place.status() == {".agents/skills/notes": ExportState.IN_SYNC}
    (place.source / "more.md").write_text("More.\n")
    assert place.status() == {".agents/skills/notes": ExportState.NEEDS_SYNC}
    assert facts(place.sync(dry_run=True), place.home) == [
        ("needs-sync", "replace", ".agents/skills/notes")
    ]
    assert not (copy / "more.md").exists()
    place.sync()
    assert (copy / "more.md").read_text() == "More.\n"
    assert place.status() == {".agents/skills/notes": ExportState.IN_SYNC}
    (copy / "more.md").write_text("Mine.\n")
    assert place.status() == {".agents/skills/notes": ExportState.CHANGED_THERE}
    for items in (place.sync(), place.export("notes", clients=("codex",))):
        assert [(item.state, item.action) for item in items] == [
            (ExportState.CHANGED_THERE, Action.NONE)
        ]
        assert "--force" in items[0].reason
    assert (copy / "more.md").read_text() == "Mine.\n"
    assert "-Mine." in difference(copy, place.source)
    place.sync(force=True)
    assert (copy / "more.md").read_text() == "More.\n"
    for path in copy.iterdir():
        path.unlink()
    copy.rmdir()
    assert place.status() == {".agents/skills/notes": ExportState.MISSING}
    place.sync()
    assert place.status() == {".agents/skills/notes": ExportState.IN_SYNC}
    (place.source / "SKILL.md").unlink()
    assert place.sync()[0].state is ExportState.SOURCE_GONE


def test_what_the_digest_passes_over_counts_as_changed(place: Place) -> None:
    place.export("notes", clients=("codex",))
    mine = place.home / ".agents/skills/notes/.skill"
    mine.mkdir()
    (mine / "kept").write_text("x")
    assert place.status() == {".agents/skills/notes": ExportState.CHANGED_THERE}
    assert place.remove("notes")[0].action is Action.NONE
    assert (mine / "kept").exists()


def test_what_programs_left_is_not_copied_and_hinders_nothing(place: Place) -> None:
    (place.source / "__pycache__").mkdir()
    for name in (".DS_Store", "__pycache__/a.pyc", "SKILL.md~"):
        (place.source / name).write_text("")
    place.export("notes", clients=("claude-code",))
    target = place.home / ".claude/skills/notes"
    assert [one.name for one in target.rglob("*") if one.is_file()] == ["SKILL.md"]
    (target / ".DS_Store").write_text("")
    assert set(place.status().values()) == {ExportState.IN_SYNC}
    # What an editor left there is a person's text, and stays.
    (target / ".SKILL.md.swp").write_text("text")
    assert set(place.status().values()) == {ExportState.CHANGED_THERE}
    place.remove("notes")
    assert (target / ".SKILL.md.swp").read_text() == "text"
    (target / ".SKILL.md.swp").unlink()
    place.remove("notes")
    assert not target.exists()


def test_what_is_foreign_is_never_written_over_also_not_by_force(place: Place) -> None:
    foreign = write_skill(place.home / ".agents/skills/notes", "Somebody else's.")
    items = place.export("notes", clients=("codex",), force=True)
    assert [(item.state, item.action) for item in items] == [(ExportState.FOREIGN, Action.NONE)]
    assert "Somebody else's." in (foreign / "SKILL.md").read_text()
    assert place.status() == {}


def test_an_equal_copy_of_somebody_else_is_enough_and_not_ours(place: Place) -> None:
    write_skill(place.home / ".agents/skills/notes", "Takes notes.")
    items = place.export("notes", clients=("codex",))
    assert [(item.state, item.action) for item in items] == [
        (ExportState.ALREADY_THERE, Action.NONE)
    ]
    with pytest.raises(ExportError, match="nothing was exported"):
        place.remove("notes")


def test_a_skill_that_a_client_reads_where_it_lies_is_not_copied(place: Place) -> None:
    write_skill(place.home / ".claude/skills/drafts")
    items = place.export("drafts")
    assert facts(items, place.home) == [
        ("already-there", "", ".claude/skills/drafts"),
        ("already-there", "", ".claude/skills/drafts"),
        ("missing", "write", ".agents/skills/drafts"),
    ]
    assert items[2].clients == ("codex", "gemini-cli")


def test_another_skill_of_the_name_is_warned_about(place: Place) -> None:
    write_skill(place.project / ".claude/skills/notes", "The project's.")
    (item,) = place.export("notes", clients=("claude-code",))
    assert item.warnings == (
        "claude-code has another skill of that name: .claude/skills/notes/SKILL.md",
    )


def test_removing_leaves_no_trace_and_spares_what_others_put_there(place: Place) -> None:
    before = sorted(place.home.iterdir())
    place.export("notes")
    items = place.remove("notes", clients=("codex",))
    assert [(item.action, item.reason) for item in items] == [
        (Action.FORGET, "stays for gemini-cli, opencode-cli")
    ]
    assert (place.home / ".agents/skills/notes").is_dir()
    write_skill(place.home / ".claude/skills/mine")
    assert all(item.done for item in place.remove("notes"))
    assert not (place.home / ".agents").exists()
    assert os.listdir(place.home / ".claude/skills") == ["mine"]
    assert place.status() == {}
    left = {path.name for path in place.home.iterdir()} - {path.name for path in before}
    assert left == {".claude", ".local", ".cache"}


def test_directories_that_we_made_go_with_the_last_that_is_in_them(place: Place) -> None:
    write_skill(place.home / ".config/skillhouse/skills/more")
    place.export("notes", clients=("codex",))
    place.export("more", clients=("codex",))
    place.remove("notes")
    assert (place.home / ".agents/skills/more").is_dir()
    place.remove("more")
    assert not (place.home / ".agents").exists()


def test_a_link_leads_to_the_skill_and_is_taken_out_alone(place: Place) -> None:
    (item,) = place.export("notes", clients=("claude-code",), form=Form.LINK)
    link = place.home / ".claude/skills/notes"
    assert (item.done, os.path.realpath(link)) == (True, str(place.source.resolve()))
    assert os.readlink(link) == os.path.relpath(place.source, link.parent)
    (place.source / "more.md").write_text("More.\n")
    assert place.status() == {".claude/skills/notes": ExportState.IN_SYNC}
    again = place.export("notes", clients=("claude-code",), form=Form.LINK)
    assert [found.state for found in again] == [ExportState.IN_SYNC]
    (place.source / "inner").symlink_to("SKILL.md")
    assert place.status() == {".claude/skills/notes": ExportState.IN_SYNC}
    (place.source / "inner").unlink()
    link.unlink()
    link.symlink_to(place.project)
    assert place.remove("notes")[0].action is Action.NONE
    link.unlink()
    link.symlink_to(os.path.relpath(place.source, link.parent))
    (place.source / "SKILL.md").rename(place.source / "gone.md")
    assert place.status() == {".claude/skills/notes": ExportState.SOURCE_GONE}
    place.remove("notes")
    assert not link.is_symlink()
    assert (place.source / "more.md").exists()


def test_a_projects_link_is_relative_and_stays_in_the_project(place: Place) -> None:
    write_skill(place.project / ".agents/skills/deploy")
    place.house.project_trust.trust()
    (item,) = place.export("deploy", clients=("claude-code",), form=Form.LINK, where="project")
    assert item.done
    link = place.project / ".claude/skills/deploy"
    assert os.readlink(link) == "../../.agents/skills/deploy"
    for name, where in (("deploy", "user"), ("notes", "project"), ("weather", "user")):
        (item,) = place.export(name, clients=("claude-code",), form=Form.LINK, where=where)
        assert (item.state, item.action) == (ExportState.REFUSED, Action.NONE)
        assert "not linked" in item.reason


def test_a_client_that_follows_no_links_gets_none(place: Place) -> None:
    own = place.home / ".config/skillhouse/profiles/plain.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        'title = "x"\nclient = "Plain 1"\nsymlinks = "within_root"\n'
        '[[scopes]]\nname = "user"\ndefault_effect = "allow"\nmax_depth = 1\nmax_directories = 9\n'
        '[[roots]]\nscope = "user"\npath = "~/.plain/skills"\n'
    )
    (item,) = place.export("notes", clients=("plain",), form=Form.LINK)
    assert (item.state, "does not follow links" in item.reason) == (ExportState.REFUSED, True)
    assert place.export("notes", clients=("plain",))[0].done


def test_what_a_client_would_not_load_is_not_written_for_it(place: Place) -> None:
    (place.source / "SKILL.md").write_text("---\ndescription: No name.\n---\nBody.\n")
    items = place.export("notes")
    by_client = {item.clients: item for item in items}
    assert by_client["gemini-cli",].state is ExportState.REFUSED
    assert "it has no name" in by_client["gemini-cli",].reason
    assert by_client["opencode-cli",].state is ExportState.REFUSED
    assert by_client["codex",].done
    assert by_client["claude-code",].done


def test_an_untrusted_projects_skills_are_not_there_and_changed_ones_refused(place: Place) -> None:
    directory = write_skill(place.project / ".skillhouse/skills/deploy")
    with pytest.raises(UnknownSkillError):
        place.export("deploy")
    place.house.project_trust.trust()
    assert all(item.done for item in place.export("deploy"))
    (directory / "new.sh").write_text("evil\n")
    for items in (place.export("deploy"), place.sync()):
        assert {item.state for item in items} == {ExportState.REFUSED}
        assert "skillhouse trust" in items[0].reason
    assert not (place.home / ".agents/skills/deploy/new.sh").exists()


def test_rules_and_switches_hold_for_exports_too(place: Place) -> None:
    place.house.management.set_enabled("notes", enabled=False)
    assert "disabled" in place.export("notes")[0].reason
    place.house.management.set_enabled("notes", enabled=True)
    config = place.places.user_file
    config.write_text('[[rules]]\neffect = "deny"\naction = "skill"\npattern = "notes"\n')
    assert place.export("notes")[0].state is ExportState.REFUSED
    assert place.export(everything=True) == []


def test_all_is_what_an_agent_sees_without_our_own_and_without_copies(place: Place) -> None:
    write_skill(place.home / ".config/skillhouse/skills/more")
    first = place.export(everything=True, clients=("codex",))
    assert [item.skill for item in first] == ["user:more", "user:notes"]
    again = place.export(everything=True, clients=("codex",))
    assert [(item.skill, item.state) for item in again] == [
        ("user:more", ExportState.IN_SYNC),
        ("user:notes", ExportState.IN_SYNC),
    ]


def test_a_copy_stands_for_the_skill_that_it_came_from(place: Place) -> None:
    place.export("weather", clients=("codex",))
    assert place.house.index.get("weather").id == "user:weather"
    (item,) = place.export("weather", clients=("claude-code",))
    assert (item.skill, item.done) == ("builtin:weather", True)
    (item,) = place.export("weather", clients=("codex",))
    assert (item.skill, item.state) == ("builtin:weather", ExportState.IN_SYNC)


def test_one_more_client_of_a_folder_is_kept_in_mind(place: Place) -> None:
    place.export("notes", clients=("codex",))
    (item,) = place.export("notes", clients=("gemini-cli",))
    assert (item.state, item.clients) == (ExportState.IN_SYNC, ("codex", "gemini-cli"))
    assert place.remove("notes", clients=("codex",))[0].reason == "stays for gemini-cli"


@pytest.mark.file_state  # With a server, looking at the state leaves the file that points to it.
def test_a_dry_run_changes_nothing(place: Place) -> None:
    assert [item.done for item in place.export("notes", dry_run=True)] == [False, False]
    assert not (place.home / ".agents").exists()
    assert not place.house.config.state_directory.exists()
    place.export("notes")
    assert [item.done for item in place.remove("notes", dry_run=True)] == [False, False]
    assert (place.home / ".agents/skills/notes").is_dir()


def test_unknown_clients_are_named(place: Place) -> None:
    with pytest.raises(ConfigError, match="did you mean `codex`"):
        place.export("notes", clients=("codx",))
    with pytest.raises(ConfigError, match="unknown client `default`"):
        place.export("notes", clients=("default",))


def test_what_a_crash_left_is_known_to_be_ours(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is kept before the swap: a process that ends there leaves nothing foreign."""
    put = Records.put

    def once(records: Records, record: Record) -> None:
        if not record.pending:
            raise KeyboardInterrupt
        put(records, record)

    with monkeypatch.context() as patch:
        patch.setattr(Records, "put", once)
        with pytest.raises(KeyboardInterrupt):
            place.export("notes", clients=("codex",))
    assert (place.home / ".agents/skills/notes/SKILL.md").is_file()
    assert place.status() == {".agents/skills/notes": ExportState.IN_SYNC}
    assert place.remove("notes")[0].done


def test_our_copies_are_skills_for_the_house_as_well(place: Place) -> None:
    place.export("notes")
    index = place.house.index
    assert [
        (skill.id, str(skill.directory)) for skill in index.skills if skill.name == "notes"
    ] == [("user:notes", str(place.source))]
    assert discover([place.home / ".agents/skills"]).skills[0].name == "notes"


def test_a_skill_that_hides_text_is_not_exported_and_a_file_of_one_is_reported(
    place: Place,
) -> None:
    (place.source / "references").mkdir()
    (place.source / "references/more.md").write_text("\U000e0041")
    (place.source / "logo.png").write_bytes(b"\x89PNG\x1b\x00")
    (written,) = place.export("notes", clients=("codex",))
    assert (written.action, written.warnings) == (
        Action.WRITE,
        ("`references/more.md` holds hidden characters: 1 tag character from line 1",),
    )
    evil = write_skill(place.home / ".config/skillhouse/skills/evil", body="See \u202ethat\n")
    (refused,) = place.export("evil", clients=("codex",))
    assert "holds text that people do not see" in refused.reason
    assert not (place.home / ".agents/skills" / evil.name).exists()


def test_the_roots_of_a_client_are_those_of_the_place_that_is_asked_for(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    profile, found = client_profile("claude-code", places), ClientRoots(places)
    for project in (places.start, tmp_path / "other"):
        (project / ".git").mkdir(parents=True, exist_ok=True)
        assert [root.path for root in found.of(profile, project, "project")] == [
            project / ".claude/skills"
        ]
        users = found.of(profile, project, "user")
        assert [root.path for root in users] == [places.home / ".claude/skills"]
        real = os.path.realpath(places.home / ".claude/skills")
        assert found.readers(real, [profile], project, "user") == ("claude-code",)
        assert found.readers(real, [profile], project, "project") == ()
