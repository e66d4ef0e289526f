-- Whether a member still sees a thing: the group it belongs to, or a manager that serves one of the member's groups.
-- Relies on: memberships_user_group_unique, group_runners_unique. Called by: console.live.streams.
SELECT EXISTS (
        SELECT 1 FROM memberships m WHERE m.user_id = %(user_id)s AND m.group_id = %(group_id)s::bigint
    )
    OR EXISTS (
        SELECT 1
        FROM group_runners g
        JOIN memberships m ON m.group_id = g.group_id
        WHERE m.user_id = %(user_id)s AND g.runner_id = %(runner_id)s::bigint AND g.consent = 1
    )
