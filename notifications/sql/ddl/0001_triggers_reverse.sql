-- Takes back 0001_triggers.sql.
DROP TRIGGER runners_tell_quarantined ON runners;
DROP TRIGGER node_managers_tell_offline ON node_managers;
DROP TRIGGER task_suites_tell_blocked ON task_suites;
DROP TRIGGER task_suites_tell_completed ON task_suites;
DROP FUNCTION tell_of_manager_quarantined();
DROP FUNCTION tell_of_manager_offline();
DROP FUNCTION tell_of_manager(bigint, smallint);
DROP FUNCTION tell_of_suite();
DROP FUNCTION tell_webhooks(bigint, smallint, uuid, jsonb);
