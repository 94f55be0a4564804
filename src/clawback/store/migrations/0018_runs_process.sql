-- A run belongs to a process, and numbers of processes are used again: what else is known of it (clawback.processes.identity).
ALTER TABLE runs ADD COLUMN process TEXT NOT NULL DEFAULT '';
