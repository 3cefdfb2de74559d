"""Measures the page of all skills in Chromium: its first paint, and the filter while one types.

./x bench pages [--skills 1368] [--rounds 20]

Others use the processors too, so the least of the rounds is printed beside their median.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

from http_api import Service, started

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
SIZE: ViewportSize = {"width": 1_400, "height": 900}
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
WORDS = ("m", "me", "mer", "merg", "merge", "merge 1", "merge 12", "zz", "")
FILTER = """text => {
  const field = document.getElementById('q');
  const rows = document.getElementById('rows');
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event('input', { bubbles: true }));
  rows.getBoundingClientRect();
  return performance.now() - began;
}"""
"""Until the rows in view are those that fit, and are laid out; the script does it at once."""
FRESH_SECONDS = 1.1
"""A scan is reused for a second; each round pays for its own."""


def asked(service: Service, path: str, accept: str = "text/html") -> tuple[bytes, float]:
    """Return an answer, and the milliseconds of processor time of the service for it."""
    headers = {"authorization": f"Bearer {service.token}", "accept": accept}
    request = urllib.request.Request(f"http://127.0.0.1:{service.port}{path}", headers=headers)
    before = service.cpu_seconds()
    with urllib.request.urlopen(request) as answer:
        data = answer.read()
    return data, 1_000 * (service.cpu_seconds() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=1_368)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    measured: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        measured.setdefault(name, []).append(value)

    # Three skills are in each home.
    with (
        tempfile.TemporaryDirectory() as place,
        started(Path(place), options.skills - 3) as service,
    ):
        address = f"http://127.0.0.1:{service.port}/"
        asked(service, "/")
        for _ in range(options.rounds):
            time.sleep(FRESH_SECONDS)
            note("CPU of /", asked(service, "/")[1])
        for _ in range(min(options.rounds, 6)):
            time.sleep(FRESH_SECONDS)
            note("CPU of /clients", asked(service, "/clients")[1])
        index = asked(service, "/skills-index", "application/json")[0]
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{address}?token={service.token}")
            for _ in range(options.rounds):
                page.wait_for_timeout(1_000 * FRESH_SECONDS)
                page.goto(address)
                while (paint := page.evaluate(PAINT)) is None:
                    page.wait_for_timeout(10)
                note("first paint", paint)
            with page.expect_response("**/skills-index*") as answer:
                page.focus("#q")
            answer.value.finished()
            page.evaluate(FILTER, WORDS[-2])
            page.wait_for_function("document.getElementById('shown').textContent === '0'")
            for _ in range(options.rounds):
                for word in WORDS:
                    note(f"key: {word!r}", page.evaluate(FILTER, word))
            browser.close()
    load, count = os.getloadavg()[0], len(json.loads(index)["rows"])
    print(f"{count:,} skills, {options.rounds} rounds, load {load:.1f}; milliseconds")
    print(f"index {len(index):,} bytes, {len(gzip.compress(index)):,} compressed")
    for name, values in measured.items():
        print(f"{name:18} least {min(values):7.1f}  median {statistics.median(values):7.1f}")


if __name__ == "__main__":
    main()
