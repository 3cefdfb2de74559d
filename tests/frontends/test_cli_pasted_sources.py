"""`install` takes what people paste, through `insteadOf` of their configuration of git."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.loopback_http import served
from tests.registry.sources import commit, git, git_server, make_repository, make_skill
from tests.registry.test_git_program import instead

AGREED = ("--yes", "--allow-unsigned")
HOSTS = ("github.com", "gitlab.com", "codeberg.org", "bitbucket.org", "dev.azure.com")

pytestmark = pytest.mark.slow


@pytest.fixture
def origin(place: Path) -> Iterator[Path]:
    """Serve one repository as that of each forge; `feature/x` is a branch of it."""
    top = place / "forges"
    found = make_repository(make_skill(top / "acme/skills.git/skills/pdf").parent.parent)
    make_skill(found / "skills/docx")
    commit(found)
    git(found, "branch", "feature/x")
    (top / "acme/tools/_git").mkdir(parents=True)
    (top / "acme/tools/_git/skills").symlink_to(found)
    with served(git_server(top)) as address:
        rules = (instead(f"{address}/", f"https://{host}/") for host in HOSTS)
        (place / "home/.gitconfig").write_text(
            "".join(rules) + instead(f"{address}/", "git@x.test:")
        )
        yield found


@pytest.mark.parametrize(
    "text",
    [
        "acme/skills@pdf",
        "acme/skills@feature/x/skills/pdf",
        "acme/skills#feature/x@pdf",
        "github.com/acme/skills/tree/main/skills/pdf",
        "https://www.github.com/acme/skills/tree/feature/x/skills/pdf/",
        "https://github.com/acme/skills/blob/feature/x/skills/pdf/SKILL.md#L3",
        "https://raw.githubusercontent.com/acme/skills/refs/heads/feature/x/skills/pdf/SKILL.md",
        "https://skills.sh/acme/skills/pdf",
        "https://gitlab.com/acme/skills/-/tree/feature/x/skills/pdf?ref_type=heads",
        "https://codeberg.org/acme/skills/src/branch/feature/x/skills/pdf",
        "https://bitbucket.org/acme/skills/src/main/skills/pdf/",
        "https://acme@dev.azure.com/acme/tools/_git/skills?path=/skills/pdf&version=GBfeature%2Fx",
    ],
)
def test_one_skill_of_what_was_pasted_is_installed_and_updated(
    origin: Path, run: Run, place: Path, text: str
) -> None:
    code, _, err = run("install", text, *AGREED)
    assert code == 0, err
    installed = place / "home/.agents/skills"
    assert [one.name for one in installed.iterdir() if not one.name.startswith(".")] == ["pdf"]
    lock = json.loads((place / "home/.config/skillhouse/skills.lock").read_text())
    entry = lock["skills"]["pdf"]
    assert entry["requested"] == text
    assert "127.0.0.1" not in json.dumps(lock)
    for branch in ("main", "feature/x"):
        git(origin, "checkout", "--quiet", branch)
        make_skill(origin / "skills/pdf", "Later.")
        commit(origin)
    git(origin, "checkout", "--quiet", "main")
    code, _, err = run("update", "--ignore-age", *AGREED)
    assert code == 0, err
    assert "Later." in (installed / "pdf/SKILL.md").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acme/skills@pfd", "no branch, tag, commit or skill `pfd` is in `https://github.com/acme"),
        ("acme/skills@pfd", "did you mean `pdf`"),
        ("https://skills.sh/acme/skills/none", "no branch, tag, commit or skill `none`"),
        ("acme/skills#nowhere", "no such branch, tag or commit"),
        ("acme/skills/tree/main", "no directory `tree/main`"),
        ("https://github.com/acme/skills/pulls", "is `https://github.com/acme/skills`"),
    ],
)
def test_what_is_not_there_is_said(origin: Path, run: Run, text: str, said: str) -> None:
    code, _, err = run("install", text, *AGREED)
    assert code == 1
    assert said in err


@pytest.mark.parametrize(
    "text",
    [
        "https://0123456789abcdef@github.com/acme/skills",
        "https://me:0123456789abcdef@bitbucket.org/acme/skills",
        "https://raw.githubusercontent.com/acme/skills/main/skills/pdf/SKILL.md?token=0123456789abcdef",
        "https://gitlab.com/acme/skills/-/raw/main/skills/pdf/SKILL.md?private_token=0123456789abcdef",
        "ftp://me:0123456789abcdef@github.com/acme/skills",
    ],
)
def test_what_may_be_a_secret_is_neither_used_nor_kept(
    origin: Path, run: Run, place: Path, text: str
) -> None:
    code, out, err = run("install", text, *AGREED)
    assert code == 1
    assert "0123456789abcdef" not in out + err
    kept = [path for path in place.rglob("*") if path.is_file() and origin not in path.parents]
    assert not [path for path in kept if b"0123456789abcdef" in path.read_bytes()]


def test_a_page_of_ones_own_forge_is_no_list_of_skills(origin: Path, run: Run, place: Path) -> None:
    rules = (place / "home/.gitconfig").read_text()
    address = rules.partition('"')[2].partition('"')[0]
    code, _, err = run("install", f"{address}acme/skills", "--list")
    assert code == 1
    assert f"if it is a Git repository: `git+{address}acme/skills`" in err
    code, out, _ = run("install", f"git+{address}acme/skills.git", "--list")
    shown = [line.split()[0] for line in out.splitlines()]
    assert (code, shown) == (0, ["skills/docx", "skills/pdf"])
