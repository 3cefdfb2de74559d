"""Tests of skill/manifest_fields.py: which releases a `requires-python` takes, and icons."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import find_manifests, python_fits
from skillhouse.skill.manifest_fields import ICON_MAX, is_icon

TAKEN = {
    "": True,
    ">=3.11": True,
    ">= 3.11 , < 3.14": True,
    ">=3.11,": True,
    ">3.13": True,
    ">3.13.1": False,
    "<3.14": True,
    "<3.14.0rc1": True,
    "<3.13": False,
    "<=3.13": False,
    "<=3.13.1": True,
    ">=3.13.1rc2": True,
    ">3.13.1rc2": True,
    "<3.13.1rc2": False,
    "==3.13": False,
    "==3.13.1": True,
    "==3.13.1.0": True,
    "==3.13.1rc1": False,
    "==3.13.*": True,
    "==3.12.*": False,
    "==3.*": True,
    "!=3.13.*": False,
    "!=3.13.0": True,
    "~=3.11": True,
    "~=3.11.0": False,
    "~=3.13.0": True,
    "===3.13.1": True,
    ">=3.11,!=3.13.1": False,
    ">=4": False,
}


@pytest.mark.parametrize("specifier", TAKEN)
def test_a_release_is_taken_as_pep_440_says(specifier: str) -> None:
    assert python_fits(specifier, (3, 13, 1)) is TAKEN[specifier]


@pytest.mark.parametrize(
    "specifier",
    ["^3.11", "3.11", ">=3.11 <3.14", ">=3.*", "~=3", ">=3.11;x", f">=3.{'1' * 9}", "<3," * 21],
)
def test_what_is_no_specifier_is_refused_whatever_the_others_say(specifier: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        python_fits(f"<2,{specifier}", (3, 13, 1))


@given(
    release=st.tuples(*[st.integers(0, 99)] * 3),
    other=st.lists(st.integers(0, 99), min_size=1, max_size=4),
)
def test_each_release_is_below_at_or_above_each_other(
    release: tuple[int, int, int], other: list[int]
) -> None:
    text = ".".join(map(str, other))
    held = [python_fits(f"{operator}{text}", release) for operator in ("<", "==", ">")]
    assert held.count(True) == 1
    assert python_fits(f">={text}", release) is not held[0]
    assert python_fits(f"!={text}", release) is not held[1]


PNG = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n....").decode()
ICONS = {
    PNG: True,
    "data:image/jpeg;base64," + b64encode(b"\xff\xd8\xff\xe0....").decode(): True,
    "data:image/webp;base64," + b64encode(b"RIFF....WEBP").decode(): True,
    "https://example.com/icon.png?size=48": True,
    "https://example.com:8443/": True,
    # It says one thing and is another.
    "data:image/png;base64," + b64encode(b"<svg onload=alert(1)>").decode(): False,
    "data:image/webp;base64," + b64encode(b"RIFF....WAVE").decode(): False,
    "data:image/svg+xml;base64," + b64encode(b"<svg/>").decode(): False,
    "data:text/html;base64," + b64encode(b"<script>").decode(): False,
    "data:image/png,%89PNG": False,
    "data:image/png;base64,iVBO Rw0": False,
    "data:image/png;base64," + "A" * ICON_MAX: False,
    "http://example.com/icon.png": False,
    "https://user:password@example.com/icon.png": False,
    "https://example.com/a b": False,
    'https://example.com/"onerror="x': False,
    "https://example.com/\u202egnp": False,
    "https://exаmple.com/a": False,
    "javascript:alert(1)": False,
    "file:///etc/passwd": False,
    "//example.com/a": False,
    "": False,
}


@pytest.mark.parametrize("address", ICONS)
def test_an_icon_is_of_https_or_the_bytes_of_an_image(address: str) -> None:
    assert is_icon(address) is ICONS[address]


def test_an_icon_that_is_wrong_costs_no_tool(tmp_path: Path) -> None:
    tool = {"name": "a", "description": "A.", "parameters": {"type": "object"}}
    tool["security"] = {"level": "read"}
    own = {"icons": [PNG, "http://a.test/x", 7], "tools": [tool]}
    (tmp_path / "kite").mkdir()
    package = {"name": "kite", "version": "1.0.0", "description": "A.", "owliabot": own}
    (tmp_path / "kite/package.json").write_text(json.dumps(package))
    (tmp_path / "kite/index.js").touch()
    (found,) = find_manifests(tmp_path)
    assert found.manifest is not None
    assert found.manifest.icons == (PNG,)
    assert [(one.code, one.severity.value) for one in found.diagnostics] == [
        ("manifest-icon", "warning")
    ] * 2
