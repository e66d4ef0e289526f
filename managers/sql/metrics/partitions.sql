-- The partitions of a table, the default one left out: names end in the day they begin with. Called by
-- managers.services.metrics_history.
SELECT c.relname
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = %(table)s::regclass AND c.relname ~ '_p[0-9]{8}$'
ORDER BY c.relname
