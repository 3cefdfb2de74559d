"""`./x docs` writes every generated file and says which is not what it would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import docs
from scripts.contract import BREAK, BrokenContractError

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "name",
    [
        "commands",
        "profiles",
        "configuration",
        "config-keywords",
        "client-table",
        "client-paths",
        "protected-paths",
        "clients",
        "doctor-guide",
    ],
)
def test_a_generated_page_is_what_the_source_says(name: str) -> None:
    # The contract and the recording start processes; they have tests of their own.
    page = docs.GENERATED[name]
    written = (ROOT / page.file).read_text(encoding="utf-8")
    assert written == page.text(), "run ./x docs"


def test_every_generated_file_is_there_and_its_page_names_the_command() -> None:
    for page in docs.GENERATED.values():
        text = (ROOT / page.file).read_text(encoding="utf-8")
        is_page = page.file.endswith(".md") and page.file != docs.GUIDE
        assert not is_page or "by `./x docs`" in text.replace("\n", " ")


def test_a_page_that_would_change_is_named_by_check_and_written_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(docs.GENERATED, "one", docs.Generated("docs/one.md", lambda: "text\n"))
    assert docs.write_or_check(["one"], check=True, root=tmp_path) == 1
    assert capsys.readouterr().err == "docs/one.md is not up to date: run ./x docs\n"
    assert not (tmp_path / "docs").exists()
    assert docs.write_or_check(["one"], check=False, root=tmp_path) == 0
    assert capsys.readouterr().err == "wrote docs/one.md\n"
    assert docs.write_or_check(["one"], check=True, root=tmp_path) == 0
    assert capsys.readouterr().err == ""


def test_a_broken_contract_fails_says_what_to_do_and_still_gets_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed() -> str:
        raise BrokenContractError(["command line/list/options/--sort: gone"], "with what is new\n")

    monkeypatch.setitem(docs.GENERATED, "contract", docs.Generated("contract.json", listed))
    assert docs.write_or_check(["contract"], check=False, root=tmp_path) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"command line/list/options/--sort: gone\n{BREAK}\n")
    assert "decision record" in said
    assert (tmp_path / "contract.json").read_text(encoding="utf-8") == "with what is new\n"
