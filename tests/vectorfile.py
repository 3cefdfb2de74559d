"""Reads the conformance vectors, for one parametrised test a file with its ids shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parent / "vectors"


def vectors(name: str) -> list[Any]:
    """Return the vectors of a file as parameters (given, expect), with their ids."""
    lines = (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [pytest.param(v["given"], v["expect"], id=f"{v['id']} {v['clause']}") for v in found]
