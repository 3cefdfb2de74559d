"""What a call's code writes to its output folder is kept, in the result and in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import SkillCodeSettings, Skillhouse
from skillhouse.tools import ArtifactError, ArtifactFile
from tests.house.coded import best_sandbox, called, coded_house, played, recorded, write_code

pytestmark = pytest.mark.slow

CHART = """
    import os

    def tool(params, context):
        (context.output / "plots").mkdir()
        (context.output / "plots/chart.png").write_bytes(b"png")
        for name, text in params.get("files", {}).items():
            (context.output / name).write_text(text)
        if params.get("fails"):
            raise ValueError("no")
        return {"charts": 1}

    tools = {"tool": tool}
"""
IN_JS = """
    const fs = require('fs');
    const path = require('path');

    exports.tools = {
      tool: (params, context) => {
        fs.mkdirSync(path.join(context.output, 'plots'));
        fs.writeFileSync(path.join(context.output, 'plots/chart.png'), 'png');
        return { charts: 1 };
      },
    };
"""


def house_of(tmp_path: Path, need: Any, source: str = CHART, **options: Any) -> Skillhouse:
    language = options.pop("language", "python")
    write_code(tmp_path / "skills/kite", source, language=language, env=["KITE"])
    return coded_house(tmp_path, tmp_path / "skills", status=best_sandbox(need), **options)


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_a_file_is_kept_with_the_call_and_is_in_its_record(
    tmp_path: Path, need: Any, node: Any, language: str
) -> None:
    source = CHART if language == "python" else IN_JS
    house = house_of(tmp_path, need, source, language=language)
    result = called(house, "kite:tool")
    assert (result.status, result.content) == ("ok", '{"charts": 1}')
    (kept,) = house.services.artifacts.sets()
    (file,) = result.artifacts
    assert kept.files == (file,)
    assert kept.tool == "kite:tool"
    assert (kept.agent, kept.user, kept.channel) == ("default", "local", "library")
    assert file == ArtifactFile(
        name="plots/chart.png",
        bytes=3,
        digest=file.digest,
        media_type="image/png",
        uri=f"skillhouse://artifacts/{kept.id}/plots/chart.png",
    )
    assert house.services.artifacts.data(kept.id, file.name) == (file, b"png")
    detail = recorded(house)[-1].outcome or recorded(house)[-1].record
    assert detail.detail["artifact_set"] == kept.id
    assert detail.detail["artifacts"] == [
        {"name": "plots/chart.png", "bytes": 3, "digest": file.digest}
    ]


def test_a_failed_call_keeps_its_files_too(tmp_path: Path, need: Any) -> None:
    result = called(house_of(tmp_path, need), "kite:tool", {"fails": True})
    assert result.status == "error"
    assert [one.name for one in result.artifacts] == ["plots/chart.png"]


def test_what_holds_a_variable_that_the_skill_was_given_is_not_kept(
    tmp_path: Path, need: Any
) -> None:
    secret = "correct-horse-battery"
    house = house_of(tmp_path, need, environment={"KITE": secret}, env={"kite": ("KITE",)})
    files = {"a.txt": f"the key is {secret}", "b.txt": "x" * 300_000 + secret, "c.txt": "none"}
    result = called(house, "kite:tool", {"files": files})
    assert [one.name for one in result.artifacts] == ["c.txt", "plots/chart.png"]
    record = recorded(house)[-1]
    why = "it holds the value of a variable that the skill was given"
    assert (record.outcome or record.record).detail["artifacts_left_out"] == [
        f"a.txt: {why}",
        f"b.txt: {why}",
    ]


def test_bounds_are_those_of_the_configuration(tmp_path: Path, need: Any) -> None:
    house = house_of(tmp_path, need)
    settings = SkillCodeSettings(enabled=True, artifact_files=2, artifact_bytes=10)
    house.services.policy  # noqa: B018 - it is made with the house.
    house = Skillhouse(house.config, skill_code=settings, roots=[tmp_path / "skills"])
    house.services.sandbox.adopt(best_sandbox(need))
    files = {"a": "12345678901", "b": "12345", "c": "1234", "d": ""}
    result = called(house, "kite:tool", {"files": files})
    assert [one.name for one in result.artifacts] == ["b", "c"]
    record = recorded(house)[-1]
    assert (record.outcome or record.record).detail["artifacts_left_out"] == [
        "a: 10 bytes of a call are kept",
        "d: 2 files of a call are kept",
        "plots/chart.png: 2 files of a call are kept",
    ]


def test_nothing_is_kept_where_the_configuration_says_so(tmp_path: Path, need: Any) -> None:
    write_code(tmp_path / "skills/kite", CHART)
    house = coded_house(tmp_path, tmp_path / "skills", status=best_sandbox(need))
    settings = SkillCodeSettings(enabled=True, artifact_files=0)
    house = Skillhouse(house.config, skill_code=settings, roots=[tmp_path / "skills"])
    house.services.sandbox.adopt(best_sandbox(need))
    assert called(house, "kite:tool").artifacts == ()
    assert list(house.services.artifacts.sets()) == []


def test_files_are_gone_after_they_are_removed(tmp_path: Path, need: Any) -> None:
    async def scene(house: Skillhouse) -> None:
        await house.call("kite:tool", {})
        store = house.services.artifacts
        (kept,) = store.sets()
        assert store.remove(kept.id) == kept
        assert list(store.sets()) == []
        with pytest.raises(ArtifactError, match="no files of a call"):
            store.data(kept.id, "plots/chart.png")

    played(house_of(tmp_path, need), scene)
