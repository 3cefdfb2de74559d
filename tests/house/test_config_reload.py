"""Tests of house/config_reload.py."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.audit import read_records
from skillhouse.floor import ConfigError, digest
from skillhouse.floor.structs import replace
from skillhouse.house import ConfigNews, Locations, Settings, Skillhouse, configured
from skillhouse.house.config_reload import NOTICE
from skillhouse.skill.profile import SHIPPED_DIRECTORY
from tests.house.places import make_places, write_skill

ALLOW = '[[rules]]\neffect = "allow"\naction = "write"\npattern = "*"\n'
DENY = '[[rules]]\neffect = "deny"\naction = "write"\npattern = "*"\nreason = "closed"\n'
BROKEN = '[[rules]]\neffect = "perhaps"\naction = "write"\npattern = "*"\n'
TIER_1 = 'version: "1"\ntools:\n  write:\n    tier: 1\n'


class Place:
    """A house that was started with one configuration, and what it reported since."""

    def __init__(self, base: Path) -> None:
        self.places: Locations = make_places(base)
        self.user = self.places.user_file
        self.user.parent.mkdir(parents=True)
        self.news: list[ConfigNews] = []

    def start(self, text: str = "", **overrides: Any) -> Skillhouse:
        if text:
            self.user.write_text(text)
        house = Skillhouse(configured(self.places), **overrides)
        house.config_reload.subscribe(self.news.append)
        return house


def written(house: Skillhouse) -> str:
    """Make a call that writes, and return how it ended."""
    result = house.call_sync("write", {"path": "a.txt", "content": "x"})
    return result.status


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def rewritten(place: Place) -> None:
    place.user.write_text(DENY)


def renamed(place: Place) -> None:
    new = place.user.with_name("config.toml~")
    new.write_text(DENY)
    os.replace(new, place.user)


def behind_a_link(place: Place) -> None:
    dotfiles = place.places.home / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "c.toml").write_text(DENY)
    place.user.unlink()
    place.user.symlink_to(dotfiles / "c.toml")


def in_another_directory(place: Place) -> None:
    shutil.move(place.user.parent, place.places.home / "old")
    place.user.parent.mkdir(parents=True)
    place.user.write_text(DENY)


def of_same_size_and_date(place: Place) -> None:
    info = place.user.stat()
    text = ALLOW.replace('"allow"', '"deny" ')
    assert len(text) == info.st_size
    place.user.write_text(text)
    os.utime(place.user, ns=(info.st_atime_ns, info.st_mtime_ns))


def managed(place: Place) -> None:
    place.places.managed_file.write_text(DENY)


@pytest.mark.req("S001-37")
@pytest.mark.parametrize(
    "change",
    [rewritten, renamed, behind_a_link, in_another_directory, of_same_size_and_date, managed],
)
def test_a_deny_that_appears_holds_for_the_next_call(
    place: Place, change: Callable[[Place], None]
) -> None:
    with place.start(ALLOW) as house:
        assert written(house) == "ok"
        change(place)
        assert written(house) == "denied"
        assert [one.is_fault for one in place.news] == [False]
        assert "(rules: +1" in place.news[0].text


@pytest.mark.slow
@pytest.mark.req("S001-37")
def test_a_file_that_appears_and_one_that_goes_are_noticed(place: Place) -> None:
    with place.start() as house:
        assert written(house) == "pending"
        place.user.write_text(ALLOW)
        assert written(house) == "ok"
        place.user.unlink()
        assert written(house) == "pending"
    assert [one.text for one in place.news] == [
        f"configuration reloaded: `{place.user}` (rules: +1 -0)",
        f"configuration reloaded: `{place.user}` (rules: +0 -1)",
    ]


@pytest.mark.slow
def test_a_call_that_asks_says_that_a_file_is_broken_until_it_is_mended(place: Place) -> None:
    def said(house: Skillhouse) -> str:
        return house.call_sync("write", {"path": "a.txt", "content": "x"}).content

    with place.start("") as house:
        assert NOTICE not in said(house)
        place.user.write_text(DENY + "[approvals\n")
        assert said(house).startswith("not approved yet: ")
        assert said(house).endswith(f"\n{NOTICE}")
        # What a file says is for the person, not for a model.
        assert "[approvals" not in said(house)
        place.user.write_text(DENY)
        assert NOTICE not in said(house)
        assert written(house) == "denied"


@pytest.mark.slow
@pytest.mark.req("S001-37")
def test_a_broken_file_keeps_the_rules_says_so_once_and_is_mended(place: Place) -> None:
    with place.start(DENY) as house:
        for text in ("x = [", BROKEN):
            place.user.write_text(text)
            assert [written(house) for _ in range(3)] == ["denied"] * 3
        assert [one.is_fault for one in place.news] == [True, True]
        assert f"`{place.user}`" in place.news[0].text
        assert "line 2" in place.news[1].text
        assert house.config_reload.fault
        place.user.write_text(ALLOW)
        assert written(house) == "ok"
        assert house.config_reload.fault == ""
    assert place.news[2].text == f"configuration reloaded: `{place.user}` (rules: +1 -1)"


def test_a_broken_file_that_is_put_back_is_reported_as_mended(place: Place) -> None:
    with place.start(DENY) as house:
        place.user.write_text("[[rules")
        assert written(house) == "denied"
        place.user.write_text(DENY)
        assert written(house) == "denied"
    assert [one.is_fault for one in place.news] == [True, False]


def test_a_file_that_others_may_write_is_refused_as_at_the_start(place: Place) -> None:
    with place.start(DENY) as house:
        place.user.write_text(ALLOW)
        place.user.chmod(0o666)
        assert written(house) == "denied"
        assert "chmod go-w" in place.news[0].text
        place.user.chmod(0o600)
        assert written(house) == "ok"


def test_a_broken_user_file_does_not_hold_up_a_managed_deny(place: Place) -> None:
    with place.start(ALLOW) as house:
        place.user.write_text("[[rules")
        place.places.managed_file.write_text(DENY)
        assert written(house) == "denied"
    assert [one.is_fault for one in place.news] == [False, True]


def test_what_the_program_set_survives(place: Place) -> None:
    root = write_skill(place.places.home / "mine/notes").parent
    with place.start(ALLOW, roots=[root], catalog_budget_tokens=77) as house:
        place.user.write_text(f"catalog_budget_tokens = 5\n{DENY}")
        assert written(house) == "denied"
        assert (house.config.roots, house.config.catalog_budget_tokens) == ((root,), 77)
        assert house.index.get("notes").name == "notes"


def test_a_replaced_value_and_a_flag_survive(place: Place) -> None:
    place.user.write_text("catalog_budget_tokens = 1\n")
    config = configured(place.places, Settings(profile="codex"))
    with Skillhouse(replace(config, exec_environment=("LANG",))) as house:
        place.user.write_text('profile = "default"\ncatalog_budget_tokens = 2\n')
        house.view()
        found = house.config
    assert (found.profile, found.exec_environment, found.catalog_budget_tokens) == (
        "codex",
        ("LANG",),
        2,
    )


@pytest.mark.slow
def test_a_configuration_that_a_program_made_has_no_files(place: Place) -> None:
    config = replace(configured(place.places), source=None)
    with Skillhouse(config) as house:
        place.user.write_text(ALLOW)
        assert written(house) == "pending"
        assert house.config_reload.files == ()


def test_what_a_running_process_keeps_needs_a_restart(place: Place) -> None:
    with place.start(ALLOW) as house:
        before = house.config.state_directory
        place.user.write_text(f'state_directory = "{place.places.home}/else"\n{DENY}')
        assert written(house) == "denied"
        assert house.config.state_directory == before
    assert place.news[0].text == (
        f"configuration reloaded: `{place.user}` (rules: +1 -1); `state_directory` needs a restart"
    )


def test_a_root_that_cannot_be_changes_nothing(place: Place) -> None:
    with place.start(DENY) as house:
        cache = house.config.remote_directory.parent
        (cache / "remotes").mkdir(parents=True)
        place.user.write_text(f'roots = ["{cache}"]\n{ALLOW}')
        assert written(house) == "denied"
        assert place.news[0].is_fault
        assert house.index.skills


@pytest.mark.req("S001-37")
def test_a_profile_that_changes_is_read_again(place: Place) -> None:
    place.places.profiles.mkdir()
    profile = place.places.profiles / "mine.toml"
    text = (SHIPPED_DIRECTORY / "codex.toml").read_text()
    profile.write_text(text)
    with place.start('profile = "mine"\n') as house:
        assert house.policy.profile.title == "Codex"
        profile.write_text(text.replace('title = "Codex"', 'title = "Changed"'))
        house.view()
        assert house.policy.profile.title == "Changed"


class TestProject:
    @pytest.fixture
    def file(self, place: Place) -> Path:
        return place.places.start / "skillhouse.toml"

    @pytest.mark.slow
    def test_an_untrusted_file_changes_nothing_until_it_is_trusted(
        self, place: Place, file: Path
    ) -> None:
        with place.start(ALLOW) as house:
            file.write_text(DENY)
            assert written(house) == "ok"
            with Skillhouse(configured(place.places)) as other:
                other.project_trust.trust()
            assert written(house) == "denied"
            file.write_text(ALLOW)
            place.user.write_text(DENY)
            assert written(house) == "denied"

    @pytest.mark.slow
    def test_a_broken_one_keeps_its_rules_and_holds_up_no_other(
        self, place: Place, file: Path
    ) -> None:
        file.write_text('[[rules]]\neffect = "deny"\naction = "write"\npattern = "*"\n')
        with place.start(ALLOW) as house:
            house.project_trust.trust()
            assert written(house) == "denied"
            file.write_text("[[rules")
            place.user.write_text(ALLOW + DENY.replace('"write"', '"read"'))
            assert written(house) == "denied"
            (place.places.start / "b.txt").write_text("b")
            assert house.call_sync("read", {"path": "b.txt"}).status == "denied"
            assert [one.is_fault for one in place.news[-2:]] == [True, False]


class TestTierPolicy:
    @pytest.mark.slow
    def test_one_that_appears_changes_and_goes_is_noticed(self, place: Place) -> None:
        policy = place.places.policy_file
        with place.start(ALLOW) as house:
            assert written(house) == "ok"
            policy.write_text(TIER_1)
            assert written(house) == "pending"
            assert place.news[-1].text.endswith("(tier policy)")
            policy.write_text("version: [")
            assert written(house) == "pending"
            assert place.news[-1].is_fault
            policy.unlink()
            assert written(house) == "ok"


def test_an_agent_that_is_removed_makes_no_more_calls(place: Place) -> None:
    agent = "[agents.reviewer]\nrules = []\n"
    with place.start(ALLOW + agent) as house:
        arguments = {"path": "a.txt", "content": "x"}
        assert not house.call_sync("write", arguments, agent="reviewer").is_error
        place.user.write_text(ALLOW)
        with pytest.raises(ConfigError, match="unknown agent `reviewer`"):
            house.call_sync("write", arguments, agent="reviewer")
        assert place.news[0].text.endswith("(agents: +0 -1)")


class Changing:
    """A person who changes the configuration before saying that the call may run."""

    def __init__(self, change: Callable[[], object]) -> None:
        self.asked: list[str] = []
        self._change = change

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request.tool)
        self._change()
        return Answer.ONCE


@pytest.mark.parametrize(
    ("begin", "later"),
    [("", DENY), ("", "x = 1"), ("", "[write_gate]\nenabled = true")],
    ids=["deny", "broken", "write gate"],
)
def test_a_question_that_waits_is_decided_again_by_the_newest_rules(
    place: Place, begin: str, later: str
) -> None:
    place.user.write_text(begin)
    channel = Changing(lambda: (place.user.write_text(later), house.view()))
    with Skillhouse(configured(place.places), channel=channel) as house:
        status = written(house)
        assert channel.asked == ["write"]
        # A file that cannot be used changes nothing.
        assert status == ("ok" if later == "x = 1" else "denied")
        assert (place.places.start / "a.txt").exists() is (status == "ok")


def test_the_call_of_an_agent_that_is_removed_while_a_person_is_asked_does_nothing(
    place: Place,
) -> None:
    place.user.write_text("[agents.reviewer]\nrules = []\n")
    channel = Changing(lambda: (place.user.write_text(""), house.view()))
    with Skillhouse(configured(place.places), channel=channel) as house:
        result = house.call_sync("write", {"path": "a.txt", "content": "x"}, agent="reviewer")
    assert (result.status, channel.asked) == ("denied", ["write"])
    assert not (place.places.start / "a.txt").exists()


@pytest.mark.slow
def test_of_many_threads_none_goes_on_by_the_rules_from_before(place: Place) -> None:
    with place.start(ALLOW) as house:
        assert written(house) == "ok"
        place.user.write_text(DENY)
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append(written(house))) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["denied"] * 16
        assert len(place.news) == 1


def test_each_reload_is_in_the_audit_log_with_its_file_and_what_became_of_it(place: Place) -> None:
    with place.start(ALLOW) as house:
        assert written(house) == "ok"
        for text in (DENY, BROKEN):
            place.user.write_text(text)
            assert written(house) == "denied"
        place.user.unlink()
        house.view()
        entries = read_records(house.audit_log.path)
        records = [e.record for e in entries if e.record.tool == "system:config"][::-1]
    assert [(one.kind, dict(one.detail)) for one in records] == [
        ("event", {"outcome": "ok", "files": f"{place.user} {digest(DENY.encode())}"}),
        ("event", {"outcome": "refused", "files": f"{place.user} {digest(BROKEN.encode())}"}),
        ("event", {"outcome": "ok", "files": f"{place.user} gone"}),
    ]
    assert records[0].reason.startswith(f"configuration reloaded: `{place.user}` (")
    assert [one.arguments.get("rules") for one in records] == [
        ["+ user: deny write *", "- user: allow write *"],
        None,
        ["- user: deny write *"],
    ]
    assert "`effect` is one of allow, ask, deny, got 'perhaps'" in records[1].reason


def test_a_reload_goes_on_where_the_log_fails_and_no_effect_does(place: Place) -> None:
    with place.start(DENY) as house:
        assert written(house) == "denied"
        house.audit_log.close()
        house.audit_log.path.unlink()
        house.audit_log.path.mkdir()
        place.user.write_text(ALLOW)
        assert written(house) != "ok"
        assert house.config.layers[0].rules[0].effect == "allow"
        assert not (place.places.start / "a.txt").exists()


def test_a_scan_that_began_before_a_reload_does_not_bring_back_the_rules(place: Place) -> None:
    with place.start(ALLOW) as house:
        assert written(house) == "ok"
        slow = house.services.scan()
        place.user.write_text(DENY)
        assert written(house) == "denied"
        house.services.exchange(slow)
        assert house.config.layers == house.snapshot.composition.config.layers
        assert written(house) == "denied"
