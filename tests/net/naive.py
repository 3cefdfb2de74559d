"""What programs do that reach the network carelessly: the checks and clients that attacks beat."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from urllib.parse import urljoin, urlsplit

_PRIVATE_TEXT = re.compile(
    r"localhost|127\.\d+\.\d+\.\d+|10\..*|192\.168\..*|169\.254\..*|0\.0\.0\.0|::1|f[cd].*"
)


def text_check(url: str) -> bool:
    """Whether a URL's host does not look private."""
    return not _PRIVATE_TEXT.fullmatch(urlsplit(url).hostname or "")


def address_check(address: str) -> bool:
    """Whether an address is public, as Python's standard library says."""
    return ip_address(address).is_global


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def get(url: str, headers: Mapping[str, str] | None = None, timeout: float = 5) -> bytes:
    """Fetch as urllib does, without the environment's proxies."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=dict(headers or {}))
    with opener.open(request, timeout=timeout) as answer:
        return bytes(answer.read())


def follow(url: str, most: int) -> tuple[bytes, int]:
    """Fetch with a hand-made loop of redirects; return the body and the number of requests."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())
    for number in range(1, most + 1):
        try:
            with opener.open(url, timeout=5) as answer:
                return answer.read(), number
        except urllib.error.HTTPError as error:
            with error:
                url = urljoin(url, error.headers["Location"])
    return b"", most


def checked_get(
    name: str, path: str, resolve: Callable[[], str], check: Callable[[str], bool]
) -> bytes:
    """Look a name up and check it; then fetch, which looks it up again."""
    if not check(resolve()):
        raise PermissionError(name)
    return get(f"http://{resolve()}{path}", {"Host": name})


def raw(host: str, port: int, request: bytes) -> bytes:
    """Send bytes and take whatever comes for the answer."""
    with socket.create_connection((host, port), 5) as stream:
        stream.sendall(request)
        data = b""
        while chunk := stream.recv(65_536):
            data += chunk
    return data


def raw_get(host: str, port: int, path: str, headers: Mapping[str, str]) -> bytes:
    """Write a request by hand."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return raw(host, port, ("\r\n".join(lines) + "\r\n\r\n").encode())


def twice(host: str, port: int) -> list[bytes]:
    """Make two requests over one connection that is kept, and read it as it comes."""
    found = []
    with socket.create_connection((host, port), 5) as stream, stream.makefile("rb") as answers:
        for path in ("/1", "/2"):
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            found.append(answers.read(length))
    return found
