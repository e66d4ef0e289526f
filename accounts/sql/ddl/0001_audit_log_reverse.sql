-- Undoes 0001_audit_log.sql.
DROP TABLE audit_log;
DROP FUNCTION mitosis_refuse_audit_change();
