"""Tests of house/settings.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.house.settings import SettingsStore, SkillSettings

pytestmark = pytest.mark.under("claude-desktop")


@pytest.mark.req("S004-69", "S004-83")
def test_settings_are_about_the_ids_they_mention_and_no_others(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path / "state")
    assert store.read() == SkillSettings()
    store.set_skill("user:pdf", enabled=False)
    store.set_skill("user:docx", enabled=True)
    read = SettingsStore(tmp_path / "state").read()
    assert read == SkillSettings(skills={"user:pdf": False, "user:docx": True})
    assert [read.is_enabled(one) for one in ("user:pdf", "project:pdf", "user:docx")] == [
        False,
        True,
        True,
    ]


def test_one_switch_turns_all_skills_off_and_keeps_what_was_set_for_each(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path)
    store.set_skill("user:pdf", enabled=False)
    store.set_all(enabled=False)
    assert not store.read().is_enabled("user:docx")
    store.set_all(enabled=True)
    assert store.read().is_enabled("user:docx")
    assert not store.read().is_enabled("user:pdf")


@pytest.mark.file_state
def test_what_is_forgotten_is_as_it_was_found(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path)
    store.forget("user:pdf")
    assert not (tmp_path / "state.sqlite3").exists()
    store.set_skill("user:pdf", enabled=False)
    store.forget("user:pdf")
    assert store.read().skills == {}
