-- Which kinds of feedback there are is checked by the store alone (records.FeedbackKind): a new one needs no migration.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    ' CHECK (kind IN (''rating'',''preference'',''edit'',''critique'',''implicit'',''judge'',''reward''))', '')
    WHERE type = 'table' AND name = 'feedback';
PRAGMA writable_schema = RESET;
-- Another connection reads the schema anew after this.
CREATE TABLE read_anew (id INTEGER);
DROP TABLE read_anew;
