"""The code of skills as an extension."""

from skillhouse.extension import Extension
from skillhouse.extensions.cells.worker.worker_verb import VERBS

EXTENSION = Extension(name="cells", verbs=VERBS)
