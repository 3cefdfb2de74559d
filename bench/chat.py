"""How soon `skillhouse chat` takes typing, and how soon an answer begins.

`./x bench chat [--rounds N] [--tree DIR]` starts the chat on a terminal of its own, with a model on
loopback that answers at once, rounds interleaved; DIR is another checkout with an environment. The
least of the rounds counts, as other work on a machine only ever adds, and the ratio is to
`skillhouse --version` of the same run. The first message is typed as soon as the prompt is there,
so it waits for what is still loading; the second one shows what a message costs by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from _measure import markdown_table, moment_of

TEXTS = ("first", "second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tree", type=Path, help="another checkout, measured in the same rounds")
    options = parser.parse_args()
    programs = {"": Path(sys.executable).with_name("skillhouse")}
    if options.tree:
        programs[f" ({options.tree.name})"] = options.tree.resolve() / ".x/env/bin/skillhouse"
    found: dict[str, list[float]] = {}
    with model() as url, tempfile.TemporaryDirectory() as home:
        for _ in range(options.rounds):
            for label, program in programs.items():
                began = time.perf_counter()
                subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
                version = time.perf_counter() - began
                for name, seconds in {
                    "`--version`": version,
                    **chat([str(program), "chat", "--model", "m", "--base-url", url], home),
                }.items():
                    found.setdefault(name + label, []).append(seconds)
    base = min(found["`--version`"])
    rows = [[name, f"{min(v):.2f} s", f"{min(v) / base:.1f}"] for name, v in found.items()]
    print(markdown_table(["", "least", "ratio"], rows))


def chat(command: list[str], home: str) -> dict[str, float]:
    """Return the seconds until each moment of a short chat."""
    began = time.perf_counter()
    pid, handle = pty.fork()
    if pid == 0:
        os.environ.update(HOME=home, TERM="dumb")
        os.chdir(home)
        os.execv(command[0], command)
    until = moment_of(handle)
    prompt = until(b"\n> ") - began
    took = {"first prompt": prompt}
    for text in TEXTS:
        sent = time.perf_counter()
        os.write(handle, f"{text}\n".encode())
        token = until(b"TOKEN")
        took[f"{text} message to its first token"] = token - sent
        if text == "first":
            took["spawn to the first token"] = token - began
        until(b"> ")
    os.write(handle, b"\x04")
    try:
        while os.read(handle, 65_536):
            pass
    except OSError:  # EIO: the other side is closed.
        pass
    os.waitpid(pid, 0)
    os.close(handle)
    return took


@contextmanager
def model() -> Iterator[str]:
    """Run a model with OpenAI's chat completions API that answers at once."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for delta, finish in (({"content": "TOKEN "}, None), ({}, "stop")):
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                event = json.dumps({**head, "choices": [choice]})
                self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    main()
