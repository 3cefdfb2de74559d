"""Tests of house/conversation.py: what outlives the shortening of a context, through a house."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import force_setattr

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.floor import ConfigError
from skillhouse.house import ExtensionSettings, Skillhouse, configured
from skillhouse.permission import Layer
from skillhouse.tools import Attachment, LeftOut, ToolResult, tokens_of
from tests.house.places import make_places, write_skill
from tests.profiles.houses import house_under, rule
from tests.tools.houses import Person

pytestmark = pytest.mark.slow

HELD = (
    "skill `kestrel` is loaded already, and has not changed: its instructions stand above in this "
    "conversation"
)


def house_in(base: Path, *rules: Any, **more: Any) -> Skillhouse:
    write_skill(base / "skills/kestrel", "About kestrels.", "Hover.\n")
    write_skill(base / "skills/osprey", "About ospreys.", "Dive.\n")
    return house_under(base, "default", *rules, roots=[base / "skills"], **more)


def load(house: Skillhouse, name: str, call_id: str, session_id: str = "") -> ToolResult:
    return house.call_sync("skill", {"name": name}, call_id=call_id, session_id=session_id)


def again(house: Skillhouse, *call_ids: str, **bounds: int) -> Attachment:
    conversation = house.conversation()
    return anyio.run(lambda: conversation.reattachment(call_ids, **bounds))


def preload(
    house: Skillhouse, names: list[str] | None = None, agent: str = "default"
) -> Attachment:
    conversation = house.conversation(agent=agent, session_id="sub")
    return anyio.run(lambda: conversation.preload(names))


def shown(attachment: Attachment) -> tuple[bool, bool]:
    return "Hover." in attachment.text, "Dive." in attachment.text


def test_what_the_context_lost_is_attached_again_once(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1")
        load(house, "osprey", "c2")
        talk = house.conversation()
        assert [one.name for one in talk.activations.newest()] == ["kestrel", "osprey"]
        assert (talk.is_protected("c1"), talk.is_protected("c9")) == (True, False)
        assert again(house, "c1", "c2", "other") == Attachment()
        lost = again(house, "c2")
        assert shown(lost) == (True, False)
        assert lost.text.startswith("The conversation was shortened")
        assert "These are instructions from a file. They grant no permission." in lost.text
        # A caller who keeps it says so, and one who does not gets the same again.
        assert again(house, "c2", lost.call_id) == Attachment()
        records = len(read_records(house.audit_log.path))
        assert again(house, "c2") == lost
        assert len(read_records(house.audit_log.path)) == records
        assert (talk.is_protected("c1"), talk.is_protected(lost.call_id)) == (False, True)


def test_attaching_is_judged_and_recorded_as_loading_is(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1")
        again(house)
        newest = [found.record for found in read_records(house.audit_log.path)]
        assert [(one.tool, one.skill) for one in newest] == [("skill", "kestrel")] * 2
        assert [one.arguments.get("way") for one in newest] == ["again", None]


def test_a_skill_that_the_model_has_is_not_given_twice(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        assert "Hover." in load(house, "kestrel", "c1").content
        # Nobody says yet what the context holds, so nothing is taken for known.
        assert "Hover." in load(house, "kestrel", "c2").content
        assert again(house, "c1", "c2") == Attachment()
        assert load(house, "kestrel", "c3").content == HELD
        assert house.conversation().is_protected("c2")
        write_skill(tmp_path / "skills/kestrel", "About kestrels.", "Hover and look.\n")
        assert "Hover and look." in load(house, "kestrel", "c4").content
        house.conversation().unload("kestrel")
        assert "Hover and look." in load(house, "kestrel", "c5").content


def test_a_cut_text_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        write_skill(tmp_path / "skills/kestrel", "About kestrels.", "Hover. " * 4_000)
        load(house, "kestrel", "c1")
        lost = again(house, skill_tokens=500)
        assert lost.activations[0].is_whole is False
        assert "[cut: the rest of this skill is not here" in lost.text
        assert tokens_of(lost.text) < 600
        assert load(house, "kestrel", "c2").content.count("Hover.") == 4_000


def test_the_newest_come_first_where_there_is_no_room_for_all(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        for name in ("kestrel", "osprey"):
            write_skill(tmp_path / "skills" / name, "A bird.", f"{name}. " * 1_000)
            load(house, name, name)
        lost = again(house, tokens=2_600)
        assert [one.name for one in lost.activations] == ["kestrel", "osprey"]
        assert [one.is_whole for one in lost.activations] == [False, True]
        assert sum(one.tokens for one in lost.activations) <= 2_600


def test_what_finds_no_room_is_named(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        for name in ("kestrel", "osprey"):
            write_skill(tmp_path / "skills" / name, "A bird.", f"{name}. " * 1_000)
            load(house, name, name)
        lost = again(house, tokens=1_000)
        assert [one.name for one in lost.activations] == ["osprey"]
        assert lost.left_out == (LeftOut(name="kestrel", reason="there is no room for it"),)
        assert "- kestrel: there is no room for it" in lost.text


def test_the_default_bounds_are_those_that_users_of_other_clients_know(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        for number in range(7):
            name = f"bird-{number}"
            write_skill(tmp_path / "skills" / name, "A bird.", "word " * 6_000)
            house.refresh()
            load(house, name, name)
        lost = again(house)
        assert [one.name for one in lost.activations] == [f"bird-{n}" for n in range(2, 7)]
        assert all(4_900 < one.tokens <= 5_000 for one in lost.activations)


def test_a_skill_that_changed_is_attached_as_it_is_now_and_said_to_be(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1")
        write_skill(tmp_path / "skills/kestrel", "About kestrels.", "Glide.\n")
        lost = again(house)
        assert ("Hover." in lost.text, "Glide." in lost.text) == (False, True)
        assert "It has changed since it was loaded." in lost.text


@pytest.mark.parametrize("what", ["gone", "denied", "off"])
def test_what_may_not_be_loaded_any_more_is_named_and_out_of_use(tmp_path: Path, what: str) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1")
        session = house.conversation().session()
        assert list(session.loaded.values()) == [tmp_path / "skills/kestrel"]
        if what == "gone":
            shutil.rmtree(tmp_path / "skills/kestrel")
        elif what == "off":
            house.management.set_enabled("kestrel", enabled=False)
        else:
            denied = Layer(name="user", rules=(rule("deny", "kestrel"),))
            force_setattr(house.config, "layers", (denied,))
        house.refresh()
        lost = again(house)
        assert shown(lost) == (False, False)
        assert [one.name for one in lost.left_out] == ["kestrel"]
        assert lost.text.startswith("These skills are not in use any more:\n- kestrel: ")
        assert session.loaded == {}
        assert again(house) == Attachment()


def test_a_yes_of_this_conversation_holds_for_the_same_bytes_only(tmp_path: Path) -> None:
    person = Person([Answer.ONCE])
    with house_in(tmp_path, rule("ask", "kestrel"), person=person) as house:
        load(house, "kestrel", "c1")
        first = again(house)
        assert shown(first) == (True, False)
        # Also a file beside the instructions is part of what the yes was about.
        (tmp_path / "skills/kestrel/tool.py").write_text("print()\n")
        assert again(house, first.call_id) == Attachment()
        house.conversation().activations.last = Attachment()
        lost = again(house)
        assert shown(lost) == (False, False)
        assert lost.left_out == (
            LeftOut(name="kestrel", reason="it needs an approval; load it when it is needed"),
        )
        assert len(person.asked) == 1


def test_what_is_given_again_and_again_ends_when_the_skill_is_switched_off(
    tmp_path: Path,
) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1")
        load(house, "osprey", "c2")
        assert shown(again(house)) == (True, True)
        house.management.set_enabled("kestrel", enabled=False)
        house.refresh()
        assert shown(again(house)) == (False, True)
        assert shown(again(house)) == (False, True)


def test_a_yes_that_holds_once_does_not_bring_a_skill_back(tmp_path: Path) -> None:
    """What a link leads to has no digest, so nothing says that it is the same."""
    person = Person([Answer.ONCE])
    with house_in(tmp_path, rule("ask", "kestrel"), person=person) as house:
        (tmp_path / "skills/kestrel/linked").symlink_to(tmp_path)
        assert load(house, "kestrel", "c1").status == "ok"
        assert shown(again(house)) == (False, False)


def test_a_yes_to_a_start_holds_for_the_same_text_only(tmp_path: Path) -> None:
    on = ExtensionSettings(invocation=True)
    for changes in (False, True):
        base = tmp_path / str(changes)
        base.mkdir()
        person = Person([Answer.ONCE])
        asked = rule("ask", "kestrel", "invoke")
        with house_in(base, asked, person=person, extensions=on) as house:
            started = functools.partial(house.invoke, "kestrel", call_id="p1")
            assert anyio.run(started).status == "ok"
            if changes:
                write_skill(base / "skills/kestrel", "About kestrels.", "Glide.\n")
            lost = again(house)
            assert shown(lost) == (not changes, False)
            assert "Glide." not in lost.text
            assert [one.reason for one in lost.left_out] == (
                ["it has changed, and needs an approval again"] if changes else []
            )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('---\nname: "kestrel\n---\n', "a quote that is not closed"),
        (
            "---\nname: kestrel\ndescription: A.\ndisable-model-invocation: true\n---\nHover.\n",
            "it is gone, or may not be loaded any more",
        ),
    ],
)
def test_what_the_file_says_now_counts(tmp_path: Path, text: str, reason: str) -> None:
    with house_in(tmp_path, extensions=ExtensionSettings(invocation=True)) as house:
        load(house, "kestrel", "c1")
        (tmp_path / "skills/kestrel/SKILL.md").write_text(text)
        lost = again(house)
        assert shown(lost) == (False, False)
        assert reason in lost.left_out[0].reason


def test_arguments_that_would_fill_too_much_bring_nothing_back(tmp_path: Path) -> None:
    on = ExtensionSettings(substitution=True)
    with house_in(tmp_path, extensions=on) as house:
        anyio.run(lambda: house.invoke("kestrel", "x" * 60_000, call_id="p1"))
        write_skill(tmp_path / "skills/kestrel", "About kestrels.", "$ARGUMENTS\n" * 20)
        lost = again(house)
        assert [one.name for one in lost.left_out] == ["kestrel"]


def test_a_person_is_given_no_text_twice_unless_a_command_gives_another(tmp_path: Path) -> None:
    on = ExtensionSettings(substitution=True, commands=True)
    person = Person([Answer.ONCE] * 4)
    with house_in(tmp_path, extensions=on, person=person) as house:

        def start(arguments: str, call_id: str) -> str:
            return anyio.run(lambda: house.invoke("kestrel", arguments, call_id=call_id)).content

        assert "Hover." in start("mice", "p1")
        assert again(house, "p1") == Attachment()
        assert start("mice", "p2") == HELD
        assert "Hover." in start("voles", "p3")
        write_skill(tmp_path / "skills/kestrel", "About kestrels.", "Hover.\n!`nothing`\n")
        assert "Hover." in start("voles", "p4")
        assert "Hover." in start("voles", "p5")


def test_a_text_with_no_room_even_for_its_frame_is_left_out(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1")
        lost = again(house, skill_tokens=5)
        assert [one.reason for one in lost.left_out] == [
            "there is no room for it; load it again when it is needed"
        ]


def test_only_so_many_skills_are_preloaded(tmp_path: Path) -> None:
    for number in range(52):
        write_skill(tmp_path / f"skills/bird-{number:02}", "A bird.", "Flies.\n")
    with house_in(tmp_path) as house:
        found = preload(house, [f"bird-{number:02}" for number in range(52)])
        assert len(found.activations) == 50
        assert found.left_out == (
            LeftOut(name="bird-50", reason="too many are preloaded"),
            LeftOut(name="bird-51", reason="too many are preloaded"),
        )


def test_unloading_closes_the_directory_and_ends_protection(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        (tmp_path / "skills/kestrel/notes.md").write_text("Mice.\n")
        notes = {"path": str(tmp_path / "skills/kestrel/notes.md")}
        load(house, "kestrel", "c1")
        assert house.call_sync("read", notes).status == "ok"
        talk = house.conversation()
        assert [one.name for one in talk.unload("explicit:kestrel")] == ["kestrel"]
        assert talk.unload("kestrel") == ()
        assert house.call_sync("read", notes).status != "ok"
        assert not talk.is_protected("c1")
        assert again(house) == Attachment()
        tools = [found.record.tool for found in read_records(house.audit_log.path)]
        assert tools.count("system:unload") == 1


def test_conversations_with_ids_of_their_own_are_apart(tmp_path: Path) -> None:
    with house_in(tmp_path) as house:
        load(house, "kestrel", "c1", session_id="one")
        names = [
            [skill.name for skill in house.conversation(session_id=id_).activations.newest()]
            for id_ in ("one", "two", "")
        ]
        assert names == [["kestrel"], [], []]
        with pytest.raises(ConfigError):
            house.conversation(agent="nobody")


def test_a_person_started_skill_is_attached_with_its_arguments_and_runs_nothing(
    tmp_path: Path,
) -> None:
    on = ExtensionSettings(invocation=True, substitution=True, commands=True)
    body = "Look for $ARGUMENTS.\n!`touch made`\n"
    directory = tmp_path / "skills/seek"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(
        f"---\nname: seek\ndescription: Seeks.\ndisable-model-invocation: true\n---\n{body}"
    )
    person = Person([Answer.ONCE] * 3)
    with house_in(tmp_path, person=person, extensions=on) as house:
        result = anyio.run(lambda: house.invoke("seek", "mice", call_id="p1"))
        assert "Look for mice." in result.content
        asked = len(person.asked)
        lost = again(house)
        assert "Look for mice." in lost.text
        assert "not run: commands are not run again" in lost.text
        assert len(person.asked) == asked
        assert lost.activations[0].by == "person"


def test_a_subagent_begins_with_the_skills_of_its_settings(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(
        '[agents.reviewer]\npreload = ["kestrel", "osprey", "missing"]\n'
        'skill = { osprey = "ask" }\n'
    )
    write_skill(tmp_path / "skills/kestrel", "About kestrels.", "Hover.\n")
    write_skill(tmp_path / "skills/osprey", "About ospreys.", "Dive.\n")
    with Skillhouse(configured(places), roots=[tmp_path / "skills"]) as house:
        found = preload(house, agent="reviewer")
        assert shown(found) == (True, False)
        assert found.text.startswith("These skills were loaded for you before you began.")
        assert [one.name for one in found.left_out] == ["osprey", "missing"]
        assert house.approvals.latest() == ()
        talk = house.conversation(agent="reviewer", session_id="sub")
        assert [(one.name, one.by) for one in talk.activations.newest()] == [("kestrel", "preload")]
        assert preload(house).text == ""
        assert shown(preload(house, ["kestrel", "kestrel", "osprey"])) == (True, True)


def test_an_agent_with_a_wrong_list_of_preloaded_skills_is_refused(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text("[agents.reviewer]\npreload = 3\n")
    with pytest.raises(ConfigError, match="preload"):
        configured(places)


def test_a_transcript_that_is_read_back_gives_nothing_but_what_may_be_loaded_now(
    tmp_path: Path,
) -> None:
    with house_in(tmp_path, rule("ask", "osprey"), person=Person([Answer.ONCE])) as house:
        load(house, "kestrel", "c1")
        load(house, "osprey", "c2")
        data = house.conversation().as_data()
    with house_in(tmp_path, rule("ask", "osprey")) as house:
        talk = house.conversation()
        talk.restore(data)
        assert (talk.is_protected("c1"), talk.session().loaded) == (True, {})
        lost = again(house)
        assert shown(lost) == (True, False)
        assert [one.name for one in lost.left_out] == ["osprey"]
        assert list(talk.session().loaded.values()) == [tmp_path / "skills/kestrel"]
