-- Pictures of turns and of episodes, each stored once however many conversations repeat it. In the messages a part {"type": "image_url", "number": N}
-- stands for each; these tables say which picture that is. A picture that nothing shows any more is deleted with its last row.
CREATE TABLE pictures (
    id      INTEGER PRIMARY KEY,
    digest  BLOB NOT NULL UNIQUE,
    data    BLOB NOT NULL
);
CREATE TABLE turn_pictures (
    turn_id     INTEGER NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    picture_id  INTEGER NOT NULL REFERENCES pictures(id),
    PRIMARY KEY (turn_id, number)
) WITHOUT ROWID;
CREATE INDEX turn_pictures_by_picture ON turn_pictures(picture_id);
CREATE TABLE episode_pictures (
    episode_id  INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    picture_id  INTEGER NOT NULL REFERENCES pictures(id),
    PRIMARY KEY (episode_id, number)
) WITHOUT ROWID;
CREATE INDEX episode_pictures_by_picture ON episode_pictures(picture_id);
CREATE TRIGGER turn_picture_went AFTER DELETE ON turn_pictures BEGIN
    DELETE FROM pictures WHERE id = OLD.picture_id AND NOT EXISTS (SELECT 1 FROM turn_pictures WHERE picture_id = OLD.picture_id)
        AND NOT EXISTS (SELECT 1 FROM episode_pictures WHERE picture_id = OLD.picture_id);
END;
CREATE TRIGGER episode_picture_went AFTER DELETE ON episode_pictures BEGIN
    DELETE FROM pictures WHERE id = OLD.picture_id AND NOT EXISTS (SELECT 1 FROM turn_pictures WHERE picture_id = OLD.picture_id)
        AND NOT EXISTS (SELECT 1 FROM episode_pictures WHERE picture_id = OLD.picture_id);
END;
-- Which pictures of its episode a sequence shows, in order: 32-bit integers.
ALTER TABLE episode_branches ADD COLUMN pictures BLOB NOT NULL DEFAULT x'';
