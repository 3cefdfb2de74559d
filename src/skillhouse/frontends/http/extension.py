"""The HTTP service as an extension."""

from skillhouse.extension import Extension
from skillhouse.frontends.http.up_verb import VERBS

EXTENSION = Extension(name="server", verbs=VERBS)
