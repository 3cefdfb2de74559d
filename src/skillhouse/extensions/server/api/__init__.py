"""The HTTP API below /api/v1: one table of routes, from which routing and OpenAPI are made."""
