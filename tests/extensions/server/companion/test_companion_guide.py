"""docs/guides/companion-app.md: a device is paired at a terminal, answers, and is lost."""

from __future__ import annotations

import os
import pty
import re
import shlex
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.approval.questions import question
from tests.extensions.server import test_http_browser
from tests.extensions.server.test_http_serve import started
from tests.harness import ran
from tests.house.places import make_places
from tests.net.certificates import contexts

from skillhouse.approval import ApprovalState
from skillhouse.house import Skillhouse, configured

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

browser = test_http_browser.browser
GUIDE = Path(__file__).resolve().parents[4] / "docs/guides/companion-app.md"


def environment(base: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
    return {**kept, "HOME": str(base / "home")}


def commands() -> list[list[str]]:
    """What the guide has a person type."""
    text = GUIDE.read_text(encoding="utf-8")
    found = re.findall(r"^(?:\$ )?(skillhouse .*)$", text, re.MULTILINE)
    return [shlex.split(one) for one in found]


def typed(base: Path, word: str, *arguments: str) -> str:
    """Run a command at a terminal, type a word there, and return what it printed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        cwd=base / "project",
        env=environment(base),
    ) as process:
        os.close(theirs)
        said = b""
        # What was typed before the question would be thrown away.
        while f"Type `{word}`".encode() not in said and (read := os.read(ours, 65_536)):
            said += read
        os.write(ours, f"{word}\n".encode())
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, out
    return out


def test_the_guide_from_the_code_to_the_lost_device(browser: Any, tmp_path: Path) -> None:
    pair, *_, devices, unpair = commands()
    with (
        started(tmp_path) as (_, port, _),
        Skillhouse(configured(make_places(tmp_path))) as house,
    ):
        root = f"http://127.0.0.1:{port}"
        out = typed(tmp_path, "pair", *pair, "--url", root)
        found = re.search(r"^address: (.*)\ncode: ([\w-]+)$", out, re.MULTILINE)
        assert found
        assert found[1] == f"{root}/companion/#code={found[2]}"
        assert "█" in out.partition("address:")[0]
        page = browser.new_context().new_page()
        page.goto(found[1])
        page.wait_for_selector("#pair-form:visible")
        assert page.input_value("#code") == found[2]
        page.click("#pair-button")
        page.wait_for_selector("#view section")
        asked = house.approvals.open(question())
        page.click(f"#approve-{asked.id}:not(:disabled)")
        page.wait_for_selector(f"#answer-{asked.id}", state="detached")
        assert house.approvals.get(asked.id).state is ApprovalState.APPROVED
        listed = ran([sys.executable, "-m", *devices], cwd=tmp_path, env=environment(tmp_path))
        device, _, rest = listed.stdout.partition("  ")
        assert rest == "phone, answers as local\n"
        gone = [sys.executable, "-m", *unpair[:-1], device[:4]]
        done = ran(gone, cwd=tmp_path, env=environment(tmp_path))
        assert done.stdout == (
            f"unpaired: {device}; withdrawn: 1 unused approval, 0 standing approvals\n"
        )
        page.wait_for_selector("#pair-form:visible")
        page.context.close()


def test_up_serves_by_tls_with_a_certificate(tmp_path: Path) -> None:
    _, trusting = contexts(tmp_path, "house.example.com")
    trusting.check_hostname = False
    file = str(tmp_path / "server.pem")
    places = make_places(tmp_path)
    (up,) = [one for one in commands() if "--cert" in one]
    options = [file if one in ("cert.pem", "key.pem") else one for one in up]
    options = ["127.0.0.1" if one == "0.0.0.0" else one for one in options]
    with subprocess.Popen(
        [sys.executable, "-m", *options, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=places.start,
        env=environment(tmp_path),
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("https://127.0.0.1:")
            opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=trusting), NoRedirect
            )
            root = address.partition("/?")[0]
            with opener.open(f"{root}/companion/", timeout=20) as answer:
                assert answer.status == 200
            with pytest.raises(urllib.error.HTTPError) as moved:
                opener.open(address, timeout=20)
            assert "; Secure" in moved.value.headers["set-cookie"]
            moved.value.close()
            with pytest.raises((ssl.SSLError, urllib.error.URLError)):
                urllib.request.urlopen(f"{root}/companion/", timeout=20)
        finally:
            process.terminate()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def test_a_certificate_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (tmp_path / "no.pem").write_text("no certificate")
    for options, text in (
        (("--cert", "no.pem"), "expected `--cert` and `--cert-key` together"),
        (("--cert", "no.pem", "--cert-key", "no.pem"), "no certificate with the key"),
        (
            ("--cert", "missing.pem", "--cert-key", "no.pem"),
            "no such file or directory: `" + str(tmp_path),
        ),
    ):
        paths = [str(tmp_path / one) if one.endswith(".pem") else one for one in options]
        command = [sys.executable, "-m", "skillhouse", "up", "--port", "0", *paths]
        done = ran(command, cwd=places.start, env=environment(tmp_path))
        assert done.returncode != 0
        assert text in done.stderr


def test_an_address_without_tls_is_said_when_pairing_and_by_doctor(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text('[approvals]\npage_url = "http://192.168.1.5:8600"\n')
    done = ran(
        [sys.executable, "-m", "skillhouse", "doctor"],
        cwd=places.start,
        env=environment(tmp_path),
    )
    said = "http://192.168.1.5:8600 is plain HTTP and not this machine"
    assert said in " ".join(done.stdout.split())
