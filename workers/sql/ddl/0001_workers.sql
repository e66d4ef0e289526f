-- Beats with metadata rewrite a row each: room on the page keeps them heap-only updates.
ALTER TABLE workers SET (fillfactor = 70);
