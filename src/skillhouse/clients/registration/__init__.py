"""Adds the server of this installation to the configuration files of clients."""
