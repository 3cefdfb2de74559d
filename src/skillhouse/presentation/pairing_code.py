"""A code that pairs the companion app, as a person gets it: in an address, and as a picture."""

from __future__ import annotations

import io
import ipaddress
from typing import Any
from urllib.parse import urlsplit

from skillhouse.answers.approvals import PairingCodeAnswer
from skillhouse.floor import needs_extra

DEFAULT_PAGE = "http://127.0.0.1:8600"
"""Where `skillhouse up` serves unless something else is asked for."""


def page_of(address: str) -> str:
    """Return the beginning that all addresses of a page have; "" for what is no address.

    >>> page_of("https://house.example/approvals?a=1"), page_of("ftp://house.example")
    ('https://house.example', '')
    """
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        return ""
    if not is_usable or "@" in parts.netloc or not parts.netloc.isprintable():
        return ""
    return f"{parts.scheme}://{parts.netloc}"


def why_no_key(page: str) -> str:
    """Return why a browser gives the companion app no key at this address, or "".

    >>> why_no_key("http://localhost:8600"), why_no_key("https://house.example")
    ('', '')
    >>> why_no_key("http://192.168.1.5:8600")[:60]
    'http://192.168.1.5:8600 is plain HTTP and not this machine: '
    """
    parts = urlsplit(page)
    if parts.scheme == "https" or _is_here(parts.hostname or ""):
        return ""
    return (
        f"{page} is plain HTTP and not this machine: browsers give an app no key there. Use HTTPS, "
        "as docs/guides/companion-app.md says"
    )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def code_answer(page: str, code: str, *, minutes: int) -> PairingCodeAnswer:
    # What is after the # goes to no server and into no log.
    address = f"{page}/companion/#code={code}"
    svg = io.BytesIO()
    # Dark on light in any theme, as cameras want it.
    _drawn(address).save(svg, kind="svg", scale=5, border=4, light="#fff", xmldecl=False)
    return PairingCodeAnswer(
        code=code, address=address, minutes=minutes, picture=svg.getvalue().decode()
    )


def terminal_picture(address: str) -> str:
    """Return an address as half blocks to scan from a terminal."""
    text = io.StringIO()
    _drawn(address).terminal(text, border=2, compact=True)
    return text.getvalue()


def _drawn(address: str) -> Any:
    with needs_extra("server"):
        import segno  # noqa: PLC0415 - an extra.
    return segno.make_qr(address, error="m")
