"""Attacks by way of profiles: plugin links, untrusted projects, names of profiles."""

from __future__ import annotations

import glob
import tomllib
from pathlib import Path

import pytest

from skillhouse.discovery import default_roots, discover
from skillhouse.floor import ConfigError, SkillError
from skillhouse.skill import load, load_profile, profile_names
from tests.discovery.trees import names, write_skill


def test_a_link_in_a_plugin_cache_does_not_make_another_directory_a_root(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cache = home / ".claude/plugins/cache/claude-plugins-official"
    write_skill(cache / "good" / "1.0" / "skills" / "pdf")
    write_skill(tmp_path / "private" / "1.0" / "skills" / "secret")
    (cache / "evil").symlink_to(tmp_path / "private")
    # A plain pattern follows the link.
    naive = glob.glob(f"{cache}/*/*/skills/*/SKILL.md")
    assert any("secret" in path for path in naive)
    profile = load_profile("claude-desktop")
    roots = default_roots(start=tmp_path, home=home, environment={}, profile=profile)
    assert names(discover(roots, profile=profile)) == ["pdf"]


@pytest.mark.parametrize("name", profile_names())
def test_under_no_profile_is_a_project_read_before_it_is_trusted(tmp_path: Path, name: str) -> None:
    profile = load_profile(name)
    start = tmp_path / "work"
    (start / ".git").mkdir(parents=True)
    options = {"start": start, "home": tmp_path / "home", "environment": {}}
    roots = default_roots(profile=profile, **options)  # type: ignore[arg-type]
    below = [root for root in roots if root.path.is_relative_to(start)]
    for root in below:
        write_skill(root.path / "planted")
    # Whoever takes the roots as they come reads what the project planted.
    assert not below or names(discover(roots, profile=profile))
    index = discover(roots, profile=profile, trusted=False)
    assert [skill for skill in index.skills if start in skill.location.parents] == []
    assert {root.scope for root in below} <= {"project"}


@pytest.mark.parametrize("name", ["../../secret", "/tmp/../{base}/secret"])
def test_a_name_of_a_profile_reads_no_other_file(tmp_path: Path, name: str) -> None:
    own = tmp_path / "home" / "profiles"
    own.mkdir(parents=True)
    (tmp_path / "secret.toml").write_text('title = "secret"\n')
    asked = name.format(base=tmp_path)
    naive = own / f"{asked}.toml"
    assert tomllib.loads(naive.read_text(encoding="utf-8")) == {"title": "secret"}
    with pytest.raises(ConfigError, match="unknown profile"):
        load_profile(asked, own)


def test_a_link_that_is_turned_outwards_after_the_scan_is_not_loaded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    file = write_skill(root / "shared" / "pdf", body="Shared.\n")
    secret = write_skill(tmp_path / "private" / "pdf", body="Secret.\n")
    (root / "a-pdf").mkdir()
    link = root / "a-pdf" / "SKILL.md"
    link.symlink_to(file)
    (skill,) = (found for found in discover([root]).skills if found.location == link)
    link.unlink()
    link.symlink_to(secret)
    assert "Secret." in skill.location.read_text(encoding="utf-8")
    with pytest.raises(SkillError) as caught:
        load(skill)
    assert caught.value.code == "path-escape"
