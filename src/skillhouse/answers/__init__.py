"""What skillhouse answers: one Struct an answer, for `--json`, the HTTP API, OpenAPI and pages."""
