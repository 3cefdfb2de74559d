"""The steps of the state's schema that the HTTP service brought (migrations.py)."""

ACCESS_STEPS = (
    # Named tokens and browsers: a digest, never the token.
    """
    CREATE TABLE access_token (
        id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        user TEXT NOT NULL,
        agent TEXT NOT NULL,
        scopes TEXT NOT NULL,
        digest TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL
    )
    """,
    # Calls with an Idempotency-Key; one without an answer runs, or its process ended before.
    """
    CREATE TABLE call_key (
        access TEXT NOT NULL,
        key TEXT NOT NULL,
        request TEXT NOT NULL,
        process TEXT NOT NULL,
        answer TEXT NOT NULL DEFAULT '',
        opened_ms INTEGER NOT NULL,
        PRIMARY KEY (access, key)
    )
    """,
)
