-- What a run learns from and makes (records.RunKind). Before, this was read from its algorithm and from a key of its recipe.
ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'ratings'
    CHECK (kind IN ('ratings', 'episodes', 'prompt', 'federated', 'adopted'));
UPDATE runs SET kind = CASE
    WHEN algorithm IN ('prompt', 'federated', 'adopted') THEN algorithm
    WHEN json_valid(recipe) AND json_type(recipe, '$.extra.gym') = 'object' THEN 'episodes'
    ELSE 'ratings'
END;
