"""The chat as an extension."""

from skillhouse.extension import Extension
from skillhouse.extensions.chat.chat_verb import VERBS

EXTENSION = Extension(name="chat", verbs=VERBS)
