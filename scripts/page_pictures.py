"""Draws the pictures of the pages: `./x py scripts/page_pictures.py [--only NAME]`.

A demo house in a temporary directory is served by the real `skillhouse up`, and Chromium takes each
page in both schemes and two widths into docs/images/pages, with at most 256 colours each. Paths and
the kernel of the machine that draws are shown as those of a home.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/images/pages"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--force-color-profile=srgb"]
WIDTHS = {"wide": 1280, "narrow": 360}
SCHEMES = ("light", "dark")
HEIGHT_MAX = 1_200
"""Pixels of a picture; pages may be longer."""

PAGES = {
    "skills": "/",
    "skill": "/skills/user:pdf",
    "new": "/new",
    "edit": "/edit/user:pdf",
    "packages": "/packages",
    "clients": "/clients",
    "rehearse": "/rehearse?q=merge+two+pdf+files",
    "approvals": "/approvals",
    "approval": "",
    "transaction": "",
    "audit": "/audit",
    "call": "",
    "policy": "/policy",
    "suggest": "/policy/suggest",
    "system": "/system",
    "trust": "/system/trust",
    "exports": "/clients/exports?action=export&skill=user:pdf&client=claude-code",
}
"""Paths by name; the empty ones are found by a link of the page before."""
LINKS = {
    "approval": ("/approvals", "a[data-question]:not(:has-text('sign'))"),
    "transaction": ("/approvals", "a[data-question]:has-text('sign')"),
    "call": ("/audit", "a.record >> nth=1"),
}

PDF = """---
name: pdf
description: Merges, splits and fills PDF files. Use when someone works with a PDF or its pages.
---
# PDF files

Merge files in the order that they are given:

```bash
qpdf --empty --pages first.pdf second.pdf -- merged.pdf
git status
```

Ask before you overwrite a file. Tables are in [forms](references/forms.md).
"""
SKILLS = {
    "home/.agents/skills/pdf/SKILL.md": PDF,
    "home/.agents/skills/pdf/references/forms.md": "# Forms\n\nFields have names.\n",
    "home/.agents/skills/meeting-notes/SKILL.md": (
        "---\nname: meeting-notes\n"
        "description: Turns a transcript into notes with decisions and owners.\n---\nRead it.\n"
    ),
    "home/.agents/skills/broken/SKILL.md": "---\nname: 'broken\ndescription: oops\n---\nBody.\n",
    "home/.claude/skills/pdf/SKILL.md": (
        "---\nname: pdf\ndescription: An older skill of the same name.\n---\nBody.\n"
    ),
    "home/.claude/skills/spreadsheet/SKILL.md": (
        "---\nname: spreadsheet\ndescription: Reads tables: sums, filters, charts.\n---\nBody.\n"
    ),
    "home/.agents/skills/mail/SKILL.md": (
        "---\nname: mail\ndescription: > Drafts answers. Use when: mail waits.\n---\nBe brief.\n"
    ),
    "home/.codex/config.toml": "",
    "project/.agents/skills/release/SKILL.md": (
        "---\nname: release\ndescription: Prepares a release: changelog, version, tag.\n---\n"
        "Run `git tag`, then `git push origin --tags`.\n"
    ),
    "project/.agents/skills/secret-notes/SKILL.md": (
        "---\nname: secret-notes\ndescription: Notes that no model should see.\n---\nBody.\n"
    ),
    "project/README.md": "# Demo\n\nA project.\n",
}
CONFIG = """[[rules]]
effect = "deny"
action = "skill"
pattern = "secret-*"
reason = "not for models"

[[rules]]
effect = "allow"
action = "exec"
pattern = "git status"

[[rules]]
effect = "deny"
action = "exec"
pattern = "git push *"
reason = "releases are made by people"

[signer]
password = "env:KEYSTORE_WORD"
"""
PASSWORD = {"KEYSTORE_WORD": "shown in pictures only"}
KEY = ["keys", "new", "main", "--kind", "secp256k1", "--password", "env:KEYSTORE_WORD"]
CALLS = """
import itertools
from pathlib import Path
from skillhouse import Skillhouse

with Skillhouse() as house:
    house.project_trust.trust()
    for name, arguments in [
        ("read", {"path": "README.md"}),
        ("skill", {"name": "pdf"}),
        ("search_skills", {"query": "merge pdf files"}),
        ("read", {"path": "nothing.txt"}),
        ("exec", {"command": "git push origin --tags"}),
        ("exec", {"command": "git status"}),
        ("list", {"path": "."}),
    ]:
        house.call_sync(name, arguments)
    changed = Path("README.md").read_text("utf-8").replace("A project.", "A project with notes.")
    house.call_sync("write", {"path": "README.md", "content": changed})
    house.call_sync("exec", {"command": "git add README.md && git commit -m 'Add notes'"})
    payment = {
        "chain_id": 1,
        "nonce": 0,
        "to": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "value": str(5 * 10**17),
        "gas_limit": 21_000,
        "gas_price": 10**9,
    }
    asked = {"key": "main", "type": "transaction", "transaction": payment, "purpose": "harmless"}
    house.call_sync("sign", asked)
"""
NEUTRAL = """pairs => {
  // A path may break after its slashes, so its text is in pieces.
  const slash = "/(?:<wbr>)?";
  for (const [from, to] of pairs) {
    const path = new RegExp(from.split("/").join(slash), "g");
    for (const part of document.querySelectorAll("main, title")) {
      if (path.test(part.innerHTML)) part.innerHTML = part.innerHTML.replaceAll(path, to);
    }
  }
  // There need not be a font for it where the pictures are drawn.
  document.querySelector("footer [lang=zh]")?.remove();
  for (const part of document.querySelectorAll(".lead.path")) {
    part.textContent = part.textContent.replace(/Linux \\S+/, "Linux 6.12");
  }
}"""
"""Replaces paths of this machine just before a picture is taken."""
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/\?token=\S+")


@contextlib.contextmanager
def demo() -> Iterator[tuple[str, str, Path]]:
    """Make the demo house and serve it.

    Gives its address, the one that opens a session, and its directory.
    """
    with tempfile.TemporaryDirectory(prefix="demo-") as made:
        base = Path(made)
        files = {**SKILLS, "home/.config/skillhouse/config.toml": CONFIG}
        for name, text in files.items():
            file = base / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        project = base / "project"
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
        variables = {**kept, **PASSWORD, "HOME": str(base / "home")}
        skillhouse = [sys.executable, "-m", "skillhouse"]
        subprocess.run([*skillhouse, *KEY], cwd=project, env=variables, check=True)
        subprocess.run([sys.executable, "-c", CALLS], cwd=project, env=variables, check=True)
        process = subprocess.Popen(
            [*skillhouse, "up", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=project,
            env=variables,
        )
        with process:
            try:
                assert process.stdout is not None
                found = ADDRESS.match(process.stdout.readline())
                assert found is not None
                yield found[1], found[0], base
            finally:
                process.terminate()


def take(browser: Browser, served: tuple[str, str, Path], names: list[str]) -> None:
    root, opening, base = served
    neutral = ((base / "home", "/home/you"), (base, "/home/you"), (ROOT / "src", "/usr/lib"))
    for scheme in SCHEMES:
        for width_name, width in WIDTHS.items():
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,  # type: ignore[arg-type] # One of Playwright's two words.
                locale="en-GB",
            )
            page, empty = context.new_page(), context.new_page()
            page.goto(opening)
            for name in names:
                if not is_shown(page, root, name):
                    print(f"{name}: there is no such page")
                    continue
                page.wait_for_load_state("load")
                # The live parts and the first event.
                page.wait_for_timeout(300)
                height = page.evaluate("document.documentElement.scrollHeight")
                page.set_viewport_size({"width": width, "height": min(height, HEIGHT_MAX)})
                page.evaluate(NEUTRAL, [[str(old), new] for old, new in neutral])
                file = PICTURES / f"{name}-{scheme}-{width_name}.png"
                file.write_bytes(with_fewer_colours(empty, page.screenshot()))
                page.set_viewport_size({"width": width, "height": 900})
            context.close()


def is_shown(page: Page, root: str, name: str) -> bool:
    """Open a page by its name, and return whether there is one."""
    path: str | None = PAGES[name]
    if not path:
        start, link = LINKS[name]
        page.goto(root + start)
        found = page.locator(link)
        path = found.first.get_attribute("href") if found.count() else None
    answer = page.goto(root + path) if path else None
    return answer is not None and answer.ok


FEWER = """async base64 => {
  const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const { width, height } = image;
  const drawing = new OffscreenCanvas(width, height).getContext("2d");
  drawing.drawImage(image, 0, 0);
  const { data } = drawing.getImageData(0, 0, width, height);
  const counts = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const colour = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const parts = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
  const far = (a, b) => {
    const other = parts(b);
    return parts(a).reduce((sum, part, at) => sum + (part - other[at]) ** 2, 0);
  };
  const colours = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  let palette;
  // Colours that are alike share one, so that a rare red stays red.
  for (let least = 0; !palette || palette.length > 256; least = least * 2 || 8) {
    palette = [];
    for (const colour of colours) {
      if (palette.length > 256) break;
      if (palette.every((one) => far(one, colour) > least)) palette.push(colour);
    }
  }
  const nearest = (colour) => {
    const distances = palette.map((one) => far(one, colour));
    return distances.indexOf(Math.min(...distances));
  };
  const index = new Map(colours.map((colour) => [colour, nearest(colour)]));
  let text = "";
  for (let at = 0; at < data.length; at += 4) {
    text += String.fromCharCode(index.get((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]));
  }
  return { width, height, palette, pixels: btoa(text) };
}"""


def with_fewer_colours(page: Page, png: bytes) -> bytes:
    """Return a PNG with a palette of 256 colours; `page` is an empty one that counts them."""
    found = page.evaluate(FEWER, base64.b64encode(png).decode())
    width, height = found["width"], found["height"]
    pixels = base64.b64decode(found["pixels"])
    rows = (b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    palette = b"".join(colour.to_bytes(3, "big") for colour in found["palette"])
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    data = zlib.compress(b"".join(rows), 9)
    parts = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
        for kind, part in parts
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PAGES), help="one page")
    chosen = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with demo() as served, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        take(browser, served, chosen.only or list(PAGES))
        browser.close()
    total = sum(file.stat().st_size for file in PICTURES.iterdir())
    print(f"{len(list(PICTURES.iterdir()))} pictures, {total / 1_000_000:.1f} MB")


if __name__ == "__main__":
    main()
