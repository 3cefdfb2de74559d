"""A sign of life: one line of a terminal that says what runs, and for how long."""

from __future__ import annotations

import threading
import time
from typing import TextIO

FRAMES = "|/-\\"
BEGIN_SECONDS = 0.3
"""What is done sooner needs no sign."""
FRAME_SECONDS = 0.15


class Indicator:
    """Draws over its own line while something runs, unless another line is open.

    Whoever writes to the same terminal holds `lock`, and calls `clear` before.
    """

    def __init__(self, stream: TextIO) -> None:
        """Store the stream, which has to be a terminal; no thread is started before `begin`."""
        self.lock = threading.RLock()
        self.is_hidden = False
        """Whether another line is open, such as an answer's or a question's."""
        self._stream = stream
        self._text = ""
        self._since = 0.0
        self._is_drawn = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, text: str) -> None:
        """Show a text from now on, until `end`; its time begins again if the text is another."""
        with self.lock:
            if text != self._text:
                self._text, self._since = text, time.monotonic()
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(target=self._draw, daemon=True)
                self._thread.start()

    def end(self) -> None:
        with self.lock:
            thread, self._thread, self._text = self._thread, None, ""
            self._wake.set()
            self.clear()
        if thread is not None:
            thread.join()

    def clear(self) -> None:
        """Take the line away, so that other text can be written in its place."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False

    def _draw(self) -> None:
        frame = 0
        while not self._wake.wait(FRAME_SECONDS):
            with self.lock:
                seconds = time.monotonic() - self._since
                if not self._text or self.is_hidden or seconds < BEGIN_SECONDS:
                    continue
                frame += 1
                sign = FRAMES[frame % len(FRAMES)]
                line = f"{sign} {self._text}, {seconds:.0f} s (Ctrl-C stops)"
                self._stream.write(f"\r\x1b[2m{line}\x1b[0m\x1b[K")
                self._stream.flush()
                self._is_drawn = True
