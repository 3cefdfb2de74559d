"""The bot as an extension."""

from skillhouse.extension import Extension
from skillhouse.extensions.channels.bot_verb import VERBS

EXTENSION = Extension(name="channels", verbs=VERBS)
