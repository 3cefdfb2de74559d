"""The tables of a server of packages."""

from skillhouse.store import Schema

REPOSITORY_STORE = Schema(
    name="package server's database",
    mark=0x736B6852,  # "skhR"
    disposable=False,
    base_version=1,
    base=(
        """
        CREATE TABLE skill (
            id INTEGER PRIMARY KEY,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            key TEXT NOT NULL,
            description TEXT NOT NULL DEFAULT '',
            license TEXT NOT NULL DEFAULT '',
            publisher TEXT NOT NULL DEFAULT '',
            latest TEXT NOT NULL DEFAULT '',
            standing INTEGER NOT NULL DEFAULT 0,
            updated_at TEXT NOT NULL DEFAULT '',
            UNIQUE (namespace, name)
        )
        """,
        "CREATE INDEX skill_key ON skill (namespace, key)",
        "CREATE INDEX skill_name ON skill (name, namespace)",
        "CREATE INDEX skill_publisher ON skill (publisher)",
        "CREATE INDEX skill_updated ON skill (updated_at, id)",
        """
        CREATE TABLE version (
            id INTEGER PRIMARY KEY,
            skill INTEGER NOT NULL REFERENCES skill (id),
            version TEXT NOT NULL,
            digest TEXT NOT NULL,
            tree_digest TEXT NOT NULL,
            size INTEGER NOT NULL,
            files INTEGER NOT NULL,
            published_at TEXT NOT NULL,
            media_type TEXT NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL,
            description TEXT NOT NULL,
            license TEXT NOT NULL,
            signature TEXT NOT NULL,
            UNIQUE (skill, version)
        )
        """,
        "CREATE INDEX version_digest ON version (digest)",
        "CREATE INDEX version_revoked ON version (tree_digest) WHERE state = 'revoked'",
        """
        CREATE TABLE channel (
            skill INTEGER NOT NULL REFERENCES skill (id),
            name TEXT NOT NULL,
            version TEXT NOT NULL,
            PRIMARY KEY (skill, name)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE change (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            version TEXT NOT NULL,
            at TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE token (
            id TEXT NOT NULL PRIMARY KEY,
            digest TEXT NOT NULL,
            scopes TEXT NOT NULL,
            note TEXT NOT NULL,
            created_at TEXT NOT NULL,
            expires_at TEXT NOT NULL,
            revoked_at TEXT NOT NULL DEFAULT ''
        )
        """,
        "CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)",
        # English endings do not matter; pairs of CJK characters are made before.
        """
        CREATE VIRTUAL TABLE skill_text USING fts5 (
            name, about, tokenize = 'porter unicode61 remove_diacritics 2'
        )
        """,
    ),
    steps=(
        # `search_words` splits texts without blanks, and keeps vowel signs from ending a word:
        # `index_missing` makes the index again.
        "DELETE FROM skill_text",
        # Who made a change, which is not known of those before; tokens of an identity provider.
        (
            *(
                f"ALTER TABLE {column} TEXT NOT NULL DEFAULT ''"
                for column in (
                    "change ADD COLUMN token",
                    "change ADD COLUMN claims",
                    "change ADD COLUMN address",
                    "token ADD COLUMN claims",
                )
            ),
            """
            CREATE TABLE used_once (
                issuer TEXT NOT NULL,
                id TEXT NOT NULL,
                until TEXT NOT NULL,
                PRIMARY KEY (issuer, id)
            ) WITHOUT ROWID
            """,
        ),
        # The digests of the bundles that were published with a version, with blanks between.
        "ALTER TABLE version ADD COLUMN attestations TEXT NOT NULL DEFAULT ''",
    ),
)
"""`standing` is 2 with a published version, 1 with a yanked one, 0 where all were revoked.

What a text is split into is part of the schema: a change of `search_words` needs a step."""
