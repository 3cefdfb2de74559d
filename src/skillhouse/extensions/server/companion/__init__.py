"""The companion app: a page that a person installs, with a key of its own (decision 0497)."""
