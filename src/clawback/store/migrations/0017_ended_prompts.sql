-- The agent has told that the answer to this prompt is complete, without its text: it is in the agent's own record, at once or a moment later.
ALTER TABLE prompts ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
