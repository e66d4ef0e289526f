-- What webhooks are told is written by triggers, in the transaction of the change: no service can forget it, none has to
-- know of it, and a change that is rolled back was never told. Rows appear only where somebody subscribed. The conditions
-- are checked without a call, so heartbeats and submits pay nothing. Run by migration 0001. A shipped file is never edited.
CREATE FUNCTION tell_webhooks(about_group bigint, about_kind smallint, about uuid, facts jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO webhook_deliveries (uuid, webhook_id, kind, subject, data, state)
    SELECT gen_random_uuid(), w.id, about_kind, about, facts || jsonb_build_object('group_name', g.name), 0
    FROM webhooks w
    JOIN groups g ON g.id = w.group_id
    WHERE w.group_id = about_group AND w.is_enabled AND about_kind = ANY (w.kinds)
$$;

CREATE FUNCTION tell_of_suite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM webhooks w WHERE w.group_id = NEW.group_id) THEN
        RETURN NULL;
    END IF;
    IF TG_ARGV[0] = 'blocked' THEN
        PERFORM tell_webhooks(NEW.group_id, 1::smallint, NEW.uuid, jsonb_build_object(
            'suite_uuid', NEW.uuid, 'suite_name', NEW.name, 'reason', NEW.blocked_reason));
    ELSE
        PERFORM tell_webhooks(NEW.group_id, 0::smallint, NEW.uuid, (
            SELECT jsonb_build_object(
                'suite_uuid', NEW.uuid, 'suite_name', NEW.name, 'completed_at', NEW.completed_at,
                'total_tasks', coalesce(sum(d.total), 0), 'succeeded', coalesce(sum(d.succeeded), 0),
                'failed', coalesce(sum(d.failed), 0), 'cancelled', coalesce(sum(d.cancelled), 0))
            FROM suite_count_deltas d WHERE d.suite_id = NEW.id));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER task_suites_tell_completed AFTER UPDATE OF state ON task_suites
    FOR EACH ROW WHEN (NEW.state = 2 AND OLD.state <> 2) EXECUTE FUNCTION tell_of_suite('completed');
CREATE TRIGGER task_suites_tell_blocked AFTER UPDATE OF blocked_at ON task_suites
    FOR EACH ROW WHEN (NEW.blocked_at IS NOT NULL AND OLD.blocked_at IS NULL) EXECUTE FUNCTION tell_of_suite('blocked');

-- A manager is told about to every group that accepted it. One that was asked to leave, or was revoked, is no news.
CREATE FUNCTION tell_of_manager(manager bigint, about_kind smallint) RETURNS void LANGUAGE sql AS $$
    SELECT tell_webhooks(gr.group_id, about_kind, r.uuid, jsonb_build_object(
        'manager_uuid', r.uuid, 'tags', r.tags, 'last_heartbeat', m.last_heartbeat,
        'reason', CASE WHEN about_kind = 3 THEN m.wish_reason ELSE 'no heartbeat within its lease' END))
    FROM runners r
    JOIN node_managers m ON m.runner_id = r.id
    JOIN group_runners gr ON gr.runner_id = r.id AND gr.consent = 1
    WHERE r.id = manager AND r.revoked_at IS NULL AND r.desired_state <> 3
$$;
CREATE FUNCTION tell_of_manager_offline() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tell_of_manager(NEW.runner_id, 2::smallint);
    RETURN NULL;
END $$;
CREATE FUNCTION tell_of_manager_quarantined() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tell_of_manager(NEW.id, 3::smallint);
    RETURN NULL;
END $$;
CREATE TRIGGER node_managers_tell_offline AFTER UPDATE OF state ON node_managers
    FOR EACH ROW WHEN (NEW.state = 4 AND OLD.state <> 4) EXECUTE FUNCTION tell_of_manager_offline();
-- At the commit: the reason stands in another row of the same transaction.
CREATE CONSTRAINT TRIGGER runners_tell_quarantined AFTER UPDATE OF desired_state ON runners
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.kind = 0 AND NEW.desired_state = 2 AND OLD.desired_state <> 2)
    EXECUTE FUNCTION tell_of_manager_quarantined();
