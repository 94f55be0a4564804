-- Why the answer ended (`records.Ending`): what was cut is not trained on as whole. '' where nobody said.
ALTER TABLE turns ADD COLUMN ending TEXT NOT NULL DEFAULT '';
