-- Every attempt is written once and closed once, and closing makes the row longer: at 85 per cent only the first ten of a
-- page found room beside the old version, the others wrote three index entries more. Twice the pages, half the entries.
-- Run by migration 0009; pages that are already full stay as they are. A shipped file is never edited.
ALTER TABLE task_attempts SET (fillfactor = 45);
