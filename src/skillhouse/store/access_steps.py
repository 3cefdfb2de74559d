"""The steps of the state's schema that the HTTP service and search brought (migrations.py)."""

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

USE_STEPS = (
    # When a token or browser was used last, to a few minutes; 0 for never.
    "ALTER TABLE access_token ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0",
)

SEARCH_STEPS = (
    # Skills that agents loaded after a search, where `[search] learn` is on.
    """
    CREATE TABLE search_choice (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        file TEXT NOT NULL,
        words TEXT NOT NULL,
        at_ms INTEGER NOT NULL
    )
    """,
    "CREATE INDEX search_choice_of ON search_choice (user, file, at_ms)",
)
