"""The methods of requests; a file of its own, so that to offer `fetch` loads no network."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READING = frozenset({"GET", "HEAD"})
"""Methods of a rule that names none."""
