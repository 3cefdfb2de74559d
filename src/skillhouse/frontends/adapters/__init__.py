"""Gives a house's tools to an agent framework; one file, and one extra, for each framework.

Nothing is imported here, so that an adapter loads its own framework only.
"""
