"""The HTTP service as an extension."""

from skillhouse.extension import Extension
from skillhouse.extensions.server.up_verb import VERBS

EXTENSION = Extension(name="server", verbs=VERBS)
