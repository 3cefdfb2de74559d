"""What a person switched off: single skills by id, or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from skillhouse.store import STATE, STATE_FILE, pooled, state_exists

_ALL = ""
"""The row that is about skills as a whole; no id is empty."""


class SkillSettings(Struct, frozen=True, kw_only=True):
    """The published settings (S004-83); what they do not mention is as it was found."""

    enable_skills: bool = True
    """False: no skill is listed, found or loaded (S004-84)."""
    skills: Mapping[str, bool] = field(default_factory=dict)
    """Whether a skill is enabled, by id."""

    def is_enabled(self, skill_id: str) -> bool:
        return self.enable_skills and self.skills.get(skill_id, True)


class SettingsStore:
    """The settings of a user, kept in the state database."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def read(self) -> SkillSettings:
        """Return the settings. Raises StateError: the state cannot be read."""
        if not state_exists(self._path):
            return SkillSettings()
        with pooled(self._path, STATE) as store:
            found = store.rows("SELECT skill, is_enabled FROM skill_setting ORDER BY skill")
        rows = {skill: bool(enabled) for skill, enabled in found}
        return SkillSettings(enable_skills=rows.pop(_ALL, True), skills=rows)

    def set_skill(self, skill_id: str, *, enabled: bool) -> None:
        self._set(skill_id, enabled=enabled)

    def set_all(self, *, enabled: bool) -> None:
        self._set(_ALL, enabled=enabled)

    def forget(self, skill_id: str) -> None:
        """Drop the setting of a deleted skill."""
        if state_exists(self._path):
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM skill_setting WHERE skill = ?", (skill_id,))

    def _set(self, key: str, *, enabled: bool) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO skill_setting VALUES (?, ?) "
                "ON CONFLICT (skill) DO UPDATE SET is_enabled = excluded.is_enabled",
                (key, int(enabled)),
            )
