-- A version may bring a prompt, beside its adapter or without one: its text, and how it came about.
ALTER TABLE versions ADD COLUMN prompt TEXT NOT NULL DEFAULT '';
ALTER TABLE versions ADD COLUMN origin TEXT NOT NULL DEFAULT '{}';
-- Sentences of prompts that the person has seen and said yes to: no sentence goes live that is neither known nor here.
CREATE TABLE accepted_sentences (
    sentence     TEXT PRIMARY KEY,
    version      INTEGER NOT NULL,
    accepted_at  REAL NOT NULL
) WITHOUT ROWID;
