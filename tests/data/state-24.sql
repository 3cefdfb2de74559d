-- A state as the first program of version 0.1.0 made it, of version 24, as statements.
BEGIN TRANSACTION;
CREATE TABLE approval (
            id TEXT NOT NULL PRIMARY KEY,
            state TEXT NOT NULL,
            request TEXT NOT NULL,
            content_digest TEXT NOT NULL,
            session TEXT NOT NULL,
            user TEXT NOT NULL,
            tool TEXT NOT NULL,
            nonce TEXT NOT NULL,
            opened_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            closed_ms INTEGER NOT NULL DEFAULT 0,
            answer TEXT NOT NULL DEFAULT '',
            answered_by TEXT NOT NULL DEFAULT '',
            answered_channel TEXT NOT NULL DEFAULT '',
            message TEXT NOT NULL DEFAULT '',
            is_delivered INTEGER NOT NULL DEFAULT 0
        );
INSERT INTO "approval" VALUES('b1','used','{"id": "b1", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/ü.txt", "facts": [["path", "/w/ü.txt"]], "reasons": [], "content": "{}", "content_digest": "d"}','d','s','local','write','n',1,2,3,'','','','',0);
INSERT INTO "approval" VALUES('a2','denied','{"id": "a2", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/ü.txt", "facts": [["path", "/w/ü.txt"]], "reasons": [], "content": "{}", "content_digest": "d"}','d','s','local','write','n',1,2,3,'','','','',0);
INSERT INTO "approval" VALUES('c0','expired','{"id": "c0", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/ü.txt", "facts": [["path", "/w/ü.txt"]], "reasons": [], "content": "{}", "content_digest": "d"}','d','s','local','write','n',1,2,3,'','','','',0);
CREATE TABLE client_entry (
            file TEXT NOT NULL,
            name TEXT NOT NULL,
            record BLOB NOT NULL,
            PRIMARY KEY (file, name)
        );
CREATE TABLE device (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            user TEXT NOT NULL,
            secret TEXT NOT NULL,
            paired_ms INTEGER NOT NULL
        );
INSERT INTO "device" VALUES('d2','telephone','mika','whsec_AAAA',7);
INSERT INTO "device" VALUES('d1','telephone','mika','whsec_AAAA',7);
CREATE TABLE device_nonce (
            device TEXT NOT NULL,
            nonce TEXT NOT NULL,
            expires_ms INTEGER NOT NULL,
            PRIMARY KEY (device, nonce)
        );
CREATE TABLE export (target TEXT NOT NULL PRIMARY KEY, record BLOB NOT NULL);
INSERT INTO "export" VALUES('/t',X'00FF10');
CREATE TABLE key_event (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL,
            key_id TEXT NOT NULL,
            name TEXT NOT NULL,
            event TEXT NOT NULL,
            detail TEXT NOT NULL
        );
INSERT INTO "key_event" VALUES(1,6,'zz','bot','created','');
CREATE TABLE lasting_grant (
            id TEXT NOT NULL PRIMARY KEY,
            action TEXT NOT NULL,
            pattern TEXT NOT NULL,
            place TEXT NOT NULL,
            skill_digest TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            granted_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            UNIQUE (action, pattern, place, skill_digest, user, agent)
        );
INSERT INTO "lasting_grant" VALUES('g2','skill','pdf','/w','','mika','default',1,2);
INSERT INTO "lasting_grant" VALUES('g1','skill','pdf','/w','','local','default',1,2);
CREATE TABLE session_key (
            key_id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            revoked_ms INTEGER,
            reason TEXT NOT NULL
        );
INSERT INTO "session_key" VALUES('zz','bot',5,9,NULL,'');
INSERT INTO "session_key" VALUES('aa','bot',5,9,NULL,'');
CREATE TABLE sign_clock (
            store_id TEXT NOT NULL PRIMARY KEY,
            boot TEXT NOT NULL,
            anchor_wall_ms INTEGER NOT NULL,
            anchor_running_ms INTEGER NOT NULL,
            high_water_ms INTEGER NOT NULL
        );
CREATE TABLE sign_counter (
            account TEXT NOT NULL,
            currency TEXT NOT NULL,
            hour INTEGER NOT NULL,
            spent TEXT NOT NULL,
            PRIMARY KEY (account, currency, hour)
        );
INSERT INTO "sign_counter" VALUES('acc','ETH',3,'57896044618658097711785492504343953926634992332820282019728792003956564819968');
CREATE TABLE sign_used (
            token TEXT NOT NULL PRIMARY KEY,
            until_ms INTEGER NOT NULL
        );
CREATE TABLE skill_setting (
            skill TEXT NOT NULL PRIMARY KEY,
            is_enabled INTEGER NOT NULL
        );
CREATE TABLE tier_clock (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            boot TEXT NOT NULL,
            anchor_ms INTEGER NOT NULL,
            running_ms INTEGER NOT NULL,
            now_ms INTEGER NOT NULL
        );
CREATE TABLE tier_denial (
            tool TEXT NOT NULL,
            user TEXT NOT NULL,
            count INTEGER NOT NULL,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (tool, user)
        );
INSERT INTO "tier_denial" VALUES('pay','mika',2,5);
CREATE TABLE tier_mark (
            name TEXT NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL
        );
CREATE TABLE tier_sign_failure (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL
        );
CREATE TABLE tier_stop (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            at_ms INTEGER NOT NULL,
            by TEXT NOT NULL,
            reason TEXT NOT NULL
        );
CREATE TABLE tier_use (
            id TEXT NOT NULL PRIMARY KEY,
            tool TEXT NOT NULL,
            user TEXT NOT NULL,
            at_ms INTEGER NOT NULL,
            usd TEXT NOT NULL,
            state TEXT NOT NULL
        );
INSERT INTO "tier_use" VALUES('u2','pay','mika',5,'1.50','done');
CREATE TABLE trust (
            project TEXT NOT NULL,
            directory TEXT NOT NULL,
            tree_digest TEXT NOT NULL,
            trusted_at TEXT NOT NULL,
            PRIMARY KEY (project, directory)
        );
INSERT INTO "trust" VALUES('/w','','','2026-11-22T00:00:00+00:00');
CREATE INDEX approval_session ON approval (session, tool);
CREATE INDEX tier_use_by_tool ON tier_use (tool, at_ms);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('key_event',1);
COMMIT;
PRAGMA application_id = 1936418899;
PRAGMA user_version = 24;
