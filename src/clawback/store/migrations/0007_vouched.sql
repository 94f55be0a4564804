-- Whether a token or a hook vouches for a turn. Else anybody on the machine may have sent it: no guess about it is trained on.
ALTER TABLE turns ADD COLUMN vouched INTEGER NOT NULL DEFAULT 1;
