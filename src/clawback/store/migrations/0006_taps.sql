-- What a person adds to a request while the agent is at work on it, who asked, and prompts that an agent writes to itself.
ALTER TABLE prompts ADD COLUMN steering TEXT NOT NULL DEFAULT '[]';
ALTER TABLE prompts ADD COLUMN person TEXT NOT NULL DEFAULT '';
ALTER TABLE prompts ADD COLUMN notice INTEGER NOT NULL DEFAULT 0;
-- Feedback that waited in vain: why, and when the person was told.
ALTER TABLE early ADD COLUMN lost TEXT NOT NULL DEFAULT '';
ALTER TABLE early ADD COLUMN told_at REAL;
-- When an answer came before a person's eyes: what "the last answer" means. An imported one did so long ago.
ALTER TABLE turns ADD COLUMN seen_at REAL NOT NULL DEFAULT 0;
UPDATE turns SET seen_at = created_at;
DROP INDEX turns_by_cwd;
CREATE INDEX turns_by_cwd ON turns(cwd, seen_at, id) WHERE kind = 'main';
CREATE INDEX turns_by_seen ON turns(seen_at, id) WHERE kind = 'main';
-- Commands that were obeyed: one that is told of twice is obeyed once.
CREATE TABLE obeyed (
    event_id  TEXT PRIMARY KEY,
    reply     TEXT NOT NULL,
    at        REAL NOT NULL
) WITHOUT ROWID;
