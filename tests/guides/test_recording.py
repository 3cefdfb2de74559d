"""The recording of the first minutes shows what the commands print, and is a picture alone."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scripts.recording import PICTURE, SCREENS, drawn, record
from scripts.terminal import short_home

pytestmark = pytest.mark.slow

BYTES_MAX = 150_000
SVG = "{http://www.w3.org/2000/svg}"


def test_the_recording_is_what_the_commands_print(programs: Path, newcomer: None) -> None:
    again = drawn(record(programs))
    # `./x docs` writes it.
    assert PICTURE.read_text(encoding="utf-8") == again


def test_no_home_is_made_where_another_program_left_a_git_directory(tmp_path: Path) -> None:
    with short_home(tmp_path) as home:
        assert home.parent == tmp_path
    (tmp_path / ".git").mkdir()
    with pytest.raises(RuntimeError, match=r"has `\.git`.*: remove it"), short_home(tmp_path):
        pass


def test_the_recording_runs_nothing_and_loads_nothing() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) < BYTES_MAX
    kinds = {element.tag.removeprefix(SVG) for element in ET.fromstring(text).iter()}
    assert kinds == {"svg", "title", "style", "clipPath", "rect", "g", "text"}
    assert re.findall(r"\bon\w+=|href|url\((?!#i\))|@import|javascript:", text) == []


def test_each_command_of_the_recording_is_in_the_picture() -> None:
    root = ET.parse(PICTURE).getroot()
    shown = "".join("".join(element.itertext()) for element in root.iter(f"{SVG}text"))
    for command in (command for screen in SCREENS for command in screen):
        assert command.replace(" ", "") in shown.replace(" ", "")


def test_one_screen_is_there_without_motion() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert "prefers-reduced-motion:reduce){.s,.k{animation:none!important}}" in text
    assert "prefers-color-scheme:dark" in text
    still = re.findall(r'class="s ([ab])(\d)\d still"', text)
    assert {number for _, number in still} == {"3"}
    assert {kind for kind, _ in still} == {"a", "b"}
