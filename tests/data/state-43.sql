-- A state as the last program of version 0.1.0 made it, of version 43, as statements.
BEGIN TRANSACTION;
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
    , used_ms INTEGER NOT NULL DEFAULT 0);
INSERT INTO "access_token" VALUES('ecf3d999767c','zeta','token','mika','default','read','ef95ad3a38091fde6f9f303b9beebf25e9e688f93f1db59f50bc2cf7e37392d3',1800000006000,0,0);
INSERT INTO "access_token" VALUES('2353004da228','alpha','token','mika','default','read','81b2cc0e72e474f1989e528f1a293d70368f75b1ccc5b2b725c10d18c4c2acf3',1800000006000,0,0);
INSERT INTO "access_token" VALUES('6d5a58636c34','browser','browser','local','default','approve call manage read','7ca2c00b5d0233d06e796b061b04f39ba44589fcb14db8b4e9d26fbbddb10fb4',1800000006000,1807776006000,0);
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
        , device TEXT NOT NULL DEFAULT '', device_name TEXT NOT NULL DEFAULT '', waits_for TEXT NOT NULL DEFAULT '');
INSERT INTO "approval" VALUES('7bf2f5ba5b3eece3','open','{"id": "7bf2f5ba5b3eece3", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/0/\u00fc.txt", "facts": [["path", "/w/0/\u00fc.txt"]], "reasons": ["writing is asked about"], "content_digest": "sha256:4e668f3ef172fc586f91b087435bcdceed8a1bc59ae70d1e5667b3383380ffc8", "content": "{\"path\":\"/w/0/\\u00fc.txt\",\"tool\":\"write\"}", "always": ["write /w/0/ (files directly in it)"], "channel": "library", "client": "", "connection": "", "place": "/w", "level": "write", "on_page": false, "wait_seconds": 0, "asked": [{"action": "write", "resource": "/w/0/\u00fc.txt", "skill_digest": ""}], "patterns": [{"action": "write", "pattern": "/w/0/", "skill_digest": ""}], "nonce": "mmoMMoAxk81GQKQK5LL06g", "opened_ms": 1800000000000, "expires_ms": 1800086400000, "session_id": "", "message_id": "", "call_id": ""}','sha256:4e668f3ef172fc586f91b087435bcdceed8a1bc59ae70d1e5667b3383380ffc8','["default", "local", "library"]','local','write','mmoMMoAxk81GQKQK5LL06g',1800000000000,1800086400000,0,'','','','',0,'','','');
INSERT INTO "approval" VALUES('f73c4eac3729e2cd','denied','{"id": "f73c4eac3729e2cd", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/1/\u00fc.txt", "facts": [["path", "/w/1/\u00fc.txt"]], "reasons": ["writing is asked about"], "content_digest": "sha256:a731a98bdd513181b939300621ac951f610159fd66bce3fe147de4bf253d5221", "content": "{\"path\":\"/w/1/\\u00fc.txt\",\"tool\":\"write\"}", "always": ["write /w/1/ (files directly in it)"], "channel": "library", "client": "", "connection": "", "place": "/w", "level": "write", "on_page": false, "wait_seconds": 0.0, "asked": [{"action": "write", "resource": "/w/1/\u00fc.txt", "skill_digest": ""}], "patterns": [{"action": "write", "pattern": "/w/1/", "skill_digest": ""}], "nonce": "mDWp3FBfiY6bD18u-poV2Q", "opened_ms": 1800000001000, "expires_ms": 1800086401000, "session_id": "", "message_id": "", "call_id": ""}','sha256:a731a98bdd513181b939300621ac951f610159fd66bce3fe147de4bf253d5221','["default", "local", "library"]','local','write','mDWp3FBfiY6bD18u-poV2Q',1800000001000,1800086401000,1800000006000,'no','local','cli','',0,'','','');
INSERT INTO "approval" VALUES('bbe08461aa075f8a','approved','{"id": "bbe08461aa075f8a", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/2/\u00fc.txt", "facts": [["path", "/w/2/\u00fc.txt"]], "reasons": ["writing is asked about"], "content_digest": "sha256:662650e96306a18b88acaa02a7a2f62e2a014f6d7643a8a3b473b301c01591af", "content": "{\"path\":\"/w/2/\\u00fc.txt\",\"tool\":\"write\"}", "always": ["write /w/2/ (files directly in it)"], "channel": "library", "client": "", "connection": "", "place": "/w", "level": "write", "on_page": false, "wait_seconds": 0.0, "asked": [{"action": "write", "resource": "/w/2/\u00fc.txt", "skill_digest": ""}], "patterns": [{"action": "write", "pattern": "/w/2/", "skill_digest": ""}], "nonce": "fI5HjYBYGHTDxQ6YxoQPSg", "opened_ms": 1800000002000, "expires_ms": 1800086402000, "session_id": "", "message_id": "", "call_id": ""}','sha256:662650e96306a18b88acaa02a7a2f62e2a014f6d7643a8a3b473b301c01591af','["default", "local", "library"]','local','write','fI5HjYBYGHTDxQ6YxoQPSg',1800000002000,1800086402000,1800000006000,'always','local','cli','',0,'','','');
INSERT INTO "approval" VALUES('48348989df34886d','approved','{"id": "48348989df34886d", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/3/\u00fc.txt", "facts": [["path", "/w/3/\u00fc.txt"]], "reasons": ["writing is asked about"], "content_digest": "sha256:f2c1a5662d64a02875d0489acff6cf31d5a78603d4d374d1655d13f0055793df", "content": "{\"path\":\"/w/3/\\u00fc.txt\",\"tool\":\"write\"}", "always": ["write /w/3/ (files directly in it)"], "channel": "library", "client": "", "connection": "", "place": "/w", "level": "write", "on_page": false, "wait_seconds": 0.0, "asked": [{"action": "write", "resource": "/w/3/\u00fc.txt", "skill_digest": ""}], "patterns": [{"action": "write", "pattern": "/w/3/", "skill_digest": ""}], "nonce": "35SVecMVOdpHdo2CTxzfWw", "opened_ms": 1800000003000, "expires_ms": 1800086403000, "session_id": "", "message_id": "", "call_id": ""}','sha256:f2c1a5662d64a02875d0489acff6cf31d5a78603d4d374d1655d13f0055793df','["default", "local", "library"]','local','write','35SVecMVOdpHdo2CTxzfWw',1800000003000,1800086403000,1800000006000,'once','local','cli','only this once, ''quoted''',0,'','','');
INSERT INTO "approval" VALUES('d42f67a81c271a10','open','{"id": "d42f67a81c271a10", "tool": "write", "agent": "default", "user": "local", "title": "write: /w/5/\u00fc.txt", "facts": [["path", "/w/5/\u00fc.txt"]], "reasons": ["writing is asked about"], "content_digest": "sha256:0273df677043caea0398e19d0b15d58661aeb25723a87d1261669f5b9cd01d16", "content": "{\"path\":\"/w/5/\\u00fc.txt\",\"tool\":\"write\"}", "always": ["write /w/5/ (files directly in it)"], "channel": "library", "client": "", "connection": "", "place": "/w", "level": "write", "on_page": false, "wait_seconds": 0, "asked": [{"action": "write", "resource": "/w/5/\u00fc.txt", "skill_digest": ""}], "patterns": [{"action": "write", "pattern": "/w/5/", "skill_digest": ""}], "nonce": "gsIqxqf7bSCebTaxa5c-oQ", "opened_ms": 1800000005000, "expires_ms": 1800086405000, "session_id": "", "message_id": "", "call_id": ""}','sha256:0273df677043caea0398e19d0b15d58661aeb25723a87d1261669f5b9cd01d16','["default", "local", "library"]','local','write','gsIqxqf7bSCebTaxa5c-oQ',1800000005000,1800086405000,0,'','','','',0,'','','');
CREATE TABLE approval_token (
            approval TEXT NOT NULL PRIMARY KEY,
            digest TEXT NOT NULL,
            user TEXT NOT NULL,
            device TEXT NOT NULL,
            device_name TEXT NOT NULL,
            expires_ms INTEGER NOT NULL,
            tries INTEGER NOT NULL DEFAULT 0
        );
INSERT INTO "approval_token" VALUES('7bf2f5ba5b3eece3','38bd1d475895967fe380ab4429811065529eb27afbbf8b634e7318bd0fd8122c','local','','',1800000606000,0);
CREATE TABLE approved_script (
            workspace TEXT NOT NULL,
            path TEXT NOT NULL,
            digest TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            device TEXT NOT NULL,
            id TEXT NOT NULL,
            approved_ms INTEGER NOT NULL,
            PRIMARY KEY (workspace, path, user, agent)
        );
INSERT INTO "approved_script" VALUES('/w','z.sh','0000000000000000000000000000000000000000000000000000000000000000','local','default','','c299ef860937b320',7);
INSERT INTO "approved_script" VALUES('/w','a.sh','0000000000000000000000000000000000000000000000000000000000000000','local','default','','8d6005aff37173e0',7);
INSERT INTO "approved_script" VALUES('/w','a.sh','0000000000000000000000000000000000000000000000000000000000000000','mika','default','','2087cd2875d9012d',7);
CREATE TABLE call_key (
        access TEXT NOT NULL,
        key TEXT NOT NULL,
        request TEXT NOT NULL,
        process TEXT NOT NULL,
        answer TEXT NOT NULL DEFAULT '',
        opened_ms INTEGER NOT NULL,
        PRIMARY KEY (access, key)
    );
INSERT INTO "call_key" VALUES('a1','k1','d1','61ccc65e06533f5b','',1800000008000);
INSERT INTO "call_key" VALUES('a1','k2','d2','61ccc65e06533f5b','{"ok":true}',1800000008000);
CREATE TABLE client_entry (
            file TEXT NOT NULL,
            name TEXT NOT NULL,
            record BLOB NOT NULL,
            PRIMARY KEY (file, name)
        );
INSERT INTO "client_entry" VALUES('/f','n',X'00');
CREATE TABLE device (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            user TEXT NOT NULL,
            secret TEXT NOT NULL,
            paired_ms INTEGER NOT NULL
        );
INSERT INTO "device" VALUES('aa19cbeb2594bbf6','telephone','local','whsec_AAAA',1800000006000);
INSERT INTO "device" VALUES('c6d5d2c840de306b','a tablet','mika','whsec_AAAA',1800000006000);
CREATE TABLE device_nonce (
            device TEXT NOT NULL,
            nonce TEXT NOT NULL,
            expires_ms INTEGER NOT NULL,
            PRIMARY KEY (device, nonce)
        );
INSERT INTO "device_nonce" VALUES('aa19cbeb2594bbf6','n',5);
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
INSERT INTO "key_event" VALUES(1,6,'zz','bot','revoked','stopped');
CREATE TABLE "lasting_grant" (
            id TEXT NOT NULL PRIMARY KEY,
            action TEXT NOT NULL,
            pattern TEXT NOT NULL,
            place TEXT NOT NULL,
            skill_digest TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            granted_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            device TEXT NOT NULL DEFAULT '',
            device_name TEXT NOT NULL DEFAULT '',
            UNIQUE (action, pattern, place, skill_digest, user, agent, device)
        );
INSERT INTO "lasting_grant" VALUES('6fb0580182bd8cf1','write','/w/2/','','','local','default',1800000006000,1802592006000,'','');
INSERT INTO "lasting_grant" VALUES('d20e14d3d8468ac6','skill','pdf','/w','','mika','default',1,2199023255552,'','');
INSERT INTO "lasting_grant" VALUES('d60153ac516e6d9f','skill','pdf','/w','','local','default',1,2199023255552,'','');
INSERT INTO "lasting_grant" VALUES('212be47813ee1105','skill','pdf','/w','','local','default',1,2199023255552,'aa19cbeb2594bbf6','');
CREATE TABLE notice (name TEXT NOT NULL PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "notice" VALUES('n','t');
CREATE TABLE search_choice (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        file TEXT NOT NULL,
        words TEXT NOT NULL,
        at_ms INTEGER NOT NULL
    );
INSERT INTO "search_choice" VALUES(1,'mika','/s/pdf/SKILL.md','["file", "merg", "pdf", "two"]',1800000006000);
INSERT INTO "search_choice" VALUES(2,'local','/s/pdf/SKILL.md','["file", "merg", "pdf", "two"]',1800000007000);
CREATE TABLE session_key (
            key_id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            revoked_ms INTEGER,
            reason TEXT NOT NULL
        );
INSERT INTO "session_key" VALUES('zz','bot',5,9,6,'stopped');
INSERT INTO "session_key" VALUES('aa','bot',5,9,NULL,'');
CREATE TABLE sign_clock (
            store_id TEXT NOT NULL PRIMARY KEY,
            boot TEXT NOT NULL,
            anchor_wall_ms INTEGER NOT NULL,
            anchor_running_ms INTEGER NOT NULL,
            high_water_ms INTEGER NOT NULL
        );
INSERT INTO "sign_clock" VALUES('store','boot',1,2,3);
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
INSERT INTO "sign_used" VALUES('request:1',9);
CREATE TABLE skill_setting (
            skill TEXT NOT NULL PRIMARY KEY,
            is_enabled INTEGER NOT NULL
        );
INSERT INTO "skill_setting" VALUES('',1);
INSERT INTO "skill_setting" VALUES('user:/s/pdf',0);
CREATE TABLE tier_clock (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            boot TEXT NOT NULL,
            anchor_ms INTEGER NOT NULL,
            running_ms INTEGER NOT NULL,
            now_ms INTEGER NOT NULL
        );
INSERT INTO "tier_clock" VALUES(1,'boot',1,2,3);
CREATE TABLE tier_denial (
            tool TEXT NOT NULL,
            user TEXT NOT NULL,
            count INTEGER NOT NULL,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (tool, user)
        );
INSERT INTO "tier_denial" VALUES('pay','mika',2,1000000000000);
CREATE TABLE tier_mark (
            name TEXT NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL
        );
INSERT INTO "tier_mark" VALUES('companion',4);
CREATE TABLE tier_sign_failure (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL
        );
INSERT INTO "tier_sign_failure" VALUES(1,4);
CREATE TABLE tier_stop (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            at_ms INTEGER NOT NULL,
            by TEXT NOT NULL,
            reason TEXT NOT NULL
        );
INSERT INTO "tier_stop" VALUES(1,5,'local','a test');
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
INSERT INTO "trust" VALUES('/w','','','2026-11-26T00:00:00+00:00');
CREATE INDEX approval_session ON approval (session, tool);
CREATE INDEX tier_use_by_tool ON tier_use (tool, at_ms);
CREATE INDEX search_choice_of ON search_choice (user, file, at_ms);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('search_choice',2);
INSERT INTO "sqlite_sequence" VALUES('key_event',1);
INSERT INTO "sqlite_sequence" VALUES('tier_sign_failure',1);
COMMIT;
PRAGMA application_id = 1936418899;
PRAGMA user_version = 43;
