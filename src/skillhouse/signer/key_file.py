"""Where the keys are; whether there are any is asked before anything else of this package loads."""

from __future__ import annotations

KEYSTORE_FILE = "keys.json"
"""Its name in the directory of the state."""
