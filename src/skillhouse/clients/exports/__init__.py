"""Writes skills into the folders that other clients read, and records what it wrote."""
