"""Measures the page of 1,000 skills in Chromium: its first paint, and the filter while one types.

./x bench pages [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from http_api import SKILLS, started

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
ANSWER = "performance.getEntriesByType('navigation')[0].responseEnd"
WORDS = ("m", "me", "mer", "merg", "merge", "merge 1", "merge 12", "")
FILTER = """text => new Promise((done) => {
  const field = document.getElementById('q');
  const rows = document.getElementById('rows');
  const began = performance.now();
  const watch = new MutationObserver(() => {
    watch.disconnect();
    rows.getBoundingClientRect();
    done(performance.now() - began);
  });
  watch.observe(rows, { childList: true });
  field.value = text;
  field.dispatchEvent(new Event('input', { bubbles: true }));
})"""
"""Until the rows are those that fit: the server gives a page of them."""
ROWS = 200
"""Of one page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place, started(Path(place)) as service:
        address = f"http://127.0.0.1:{service.port}/"
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = browser.new_page()
            page.goto(f"{address}?token={service.token}")
            paints, answers, filters, cpu = [], [], [], []
            for _ in range(rounds):
                # A scan is reused for a second; each round pays for its own.
                page.wait_for_timeout(1_100)
                before = service.cpu_seconds()
                page.goto(address, wait_until="commit")
                cpu.append(1_000 * (service.cpu_seconds() - before))
                last = page.locator(f"#rows > li >> nth={min(SKILLS, ROWS) - 1}")
                last.wait_for(state="attached")
                while (paint := page.evaluate(PAINT)) is None:
                    page.wait_for_timeout(10)
                paints.append(paint)
                answers.append(page.evaluate(ANSWER))
                filters += [page.evaluate(FILTER, word) for word in WORDS]
            browser.close()
    load = os.getloadavg()[0]
    print(f"{SKILLS:,} skills, {rounds} rounds, load {load:.1f}; milliseconds")
    measured = {
        "first paint": paints,
        "answer": answers,
        "CPU of it": cpu,
        "filter": filters,
    }
    for name, values in measured.items():
        print(f"{name:12} median {statistics.median(values):6.1f}  most {max(values):6.1f}")


if __name__ == "__main__":
    main()
