"""Runs the code of skills for a core in another process: `skillhouse worker`."""
