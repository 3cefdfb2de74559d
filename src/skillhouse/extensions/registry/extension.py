"""The registry server as an extension."""

from skillhouse.extension import Extension
from skillhouse.extensions.registry.registry_verb import VERBS

EXTENSION = Extension(name="registry", verbs=VERBS)
