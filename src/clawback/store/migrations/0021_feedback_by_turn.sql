-- What one person said of one turn is asked at every rating (the triggers of rating_counts, too). Without statistics SQLite chose the index of
-- persons for it, which of one owner's ratings are all: each rating read every other one.
DROP INDEX feedback_by_turn;
CREATE INDEX feedback_by_turn ON feedback(turn_id, person);
