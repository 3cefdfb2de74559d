"""Measures `skillhouse up` under load while 8 pages of it are open in Chromium.

Each is in a context of its own, so that each reads the events itself.

    ./x bench browsers [--minutes 1]
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import BrowserContext, Page, async_playwright

from http_api import Service, length_option, minutes, started
from pages import ARGUMENTS, CHROMIUM

PAGES = 8
COUNT = """
window.seen = {};
for (const kind of ["index", "question", "answer", "call", "progress", "job", "reset"])
  document.addEventListener(`house:${kind}`, () => {
    window.seen[kind] = (window.seen[kind] ?? 0) + 1;
  });
"""


async def opened(context: BrowserContext, service: Service, faults: list[str]) -> Page:
    """Return a page of the skills; what its console says of errors is added to `faults`."""
    await context.add_init_script(COUNT)
    page = await context.new_page()
    page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    await page.goto(f"http://127.0.0.1:{service.port}/?token={service.token}")
    return page


async def measured(service: Service, home: Path, length: float) -> None:
    faults: list[str] = []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        contexts = [await browser.new_context() for _ in range(PAGES)]
        pages = [await opened(context, service, faults) for context in contexts]
        await minutes(service, home, length, readers=0)
        seen = [await page.evaluate("window.seen") for page in pages]
        shown = [await page.locator("#rows").inner_text() for page in pages]
        await browser.close()
    newest = sum("Changed" in text for text in shown)
    print(f"{PAGES} pages: events seen {seen}; {newest} show the changed skill")
    print(f"errors on the consoles: {len(faults)} {sorted(set(faults))}")


def main() -> None:
    length = length_option(__doc__) or 1.0
    with tempfile.TemporaryDirectory() as base, started(Path(base)) as service:
        asyncio.run(measured(service, Path(base) / "home", length))


if __name__ == "__main__":
    main()
