"""Loads numpy so that its products of matrices use one thread."""

from __future__ import annotations

import importlib
import os
import sys

VARIABLE = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy; one that is loaded already, or is configured, keeps its threads.

    Its other threads wait for work without sleeping: on busy processors, a request to `use` cost
    twelve times the CPU time.
    """
    if "numpy" in sys.modules or VARIABLE in os.environ:
        return
    # OpenBLAS reads it once, when it is loaded.
    os.environ[VARIABLE] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ[VARIABLE]
