"""Talks with a model that has the skills; nothing is imported here, so that help stays fast."""
