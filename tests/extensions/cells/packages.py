"""Packages made on the spot: wheels and npm tarballs, and a registry for the latter."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.archives import tar_archive
from tests.loopback_http import QuietHandler, serving_http


def written(directory: Path, files: Mapping[str, str]) -> Path:
    """Write texts below a directory, and return it."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def wheel(directory: Path, name: str, version: str, code: str) -> str:
    """Write a wheel with one module; return its SHA-256 in hex."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(zipfile.ZipInfo(place, (2020, 1, 1, 0, 0, 0)), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source_package(directory: Path, name: str, version: str, code: str) -> str:
    """Write a source distribution that runs `code` when it is built; return its SHA-256 in hex."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}.tar.gz"
    files = {
        # A build back end of its own needs nothing from a network.
        "pyproject.toml": (
            '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
        ),
        "own.py": code,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    path.write_bytes(
        tar_archive((f"{name}-{version}/{file}", text.encode()) for file, text in files.items())
    )
    return hashlib.sha256(path.read_bytes()).hexdigest()


def npm_package(name: str, version: str, code: str, **more: Any) -> bytes:
    """Return the tarball of an npm package."""
    manifest = {"name": name, "version": version, "main": "index.js", **more}
    files = {"package/package.json": json.dumps(manifest), "package/index.js": code}
    return tar_archive((name, text.encode()) for name, text in files.items())


def integrity(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def npm_lock(packages: Mapping[str, bytes], *, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return a package-lock.json; its addresses name a server that nobody asks."""
    return {
        "name": "skill",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "packages": {
            "": {"name": "skill", "version": "1.0.0", "dependencies": dict(versions)},
            **{
                f"node_modules/{name}": {
                    "version": versions[name],
                    "resolved": f"https://elsewhere.invalid/{name}.tgz",
                    "integrity": integrity(data),
                }
                for name, data in packages.items()
            },
        },
    }


@contextlib.contextmanager
def npm_registry(packages: Mapping[tuple[str, str], bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serve packages on loopback; give the address and the paths that were asked for."""
    asked: list[str] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            base = f"http://{self.headers['Host']}"
            name = unquote(self.path).strip("/")
            if name.endswith(".tgz"):
                package, _, version = name.removesuffix(".tgz").rpartition("@")
                body = packages.get((package, version))
                self.answer(404 if body is None else 200, body or b"")
                return
            versions = {
                version: {
                    "name": package,
                    "version": version,
                    "dist": {
                        "tarball": f"{base}/{package}@{version}.tgz",
                        "integrity": integrity(data),
                    },
                }
                for (package, version), data in packages.items()
                if package == name
            }
            document = {"name": name, "versions": versions, "dist-tags": {}}
            self.answer(
                200 if versions else 404, json.dumps(document).encode() if versions else b""
            )

    with serving_http(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked
