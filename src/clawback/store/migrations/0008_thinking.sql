-- What a model thought before it answered: kept apart from the response, never rated or graded.
ALTER TABLE bodies ADD COLUMN thinking TEXT NOT NULL DEFAULT '';
