"""Tests of `load_numpy` of extensions/meaning/meanings.py."""

from __future__ import annotations

import subprocess
import sys

from tests.harness import ran

CODE = """
import os
from skillhouse.extensions.meaning.meanings import VARIABLE, load_numpy
before = os.environ.get(VARIABLE)
load_numpy()
import numpy as np
square = np.ones((1_000, 1_000), np.float32)
square @ square
assert os.environ.get(VARIABLE) == before
print(len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1)
"""


def test_products_of_matrices_use_one_thread() -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    done = ran([sys.executable, "-c", CODE], check=True, env=environment)
    assert done.stdout.strip() == "1"


def test_a_configured_number_of_threads_is_kept() -> None:
    environment = {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", CODE], check=True, env=environment)
