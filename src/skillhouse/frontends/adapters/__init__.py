"""Gives Skillhouse's tools to an agent framework; one file, and one extra, for each framework.

The entries are the functions `skillhouse_*` of each file. They share these arguments:

    house: The `Skillhouse` whose tools are offered; the caller closes it.
    agent: The agent whose skills and rules apply; an unknown name raises ConfigError.
    user: The user on whose behalf calls are made.
    ask: Whether the framework asks for approvals; if not, the model gets a pending result.

This package imports nothing, so an adapter loads its own framework only.
"""
