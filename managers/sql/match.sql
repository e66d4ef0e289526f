-- Tag-matched eligibility of some suites, some managers, or all: rows that the rule gives and that are missing come, rows
-- it no longer gives go. The rule: the suite's tags within the manager's, and the suite's group has Write or more on the
-- manager with consent. Rows chosen by a person are never touched; rows taken off by one stay off unless `is_refresh`.
-- The caller holds the matching lock. By group_runners_unique and task_suite_managers_unique; called by
-- managers.services.eligibility.
-- Linear by construction, whatever the planner believes about tags: the rule is applied once per kind of suite (group and
-- tags), and pairs are compared by EXCEPT, which hashes or sorts. Joins and subqueries per pair took 10 s for a million.
WITH scope AS MATERIALIZED (
    SELECT s.id, s.group_id, s.tags
    FROM task_suites s
    WHERE s.state <> 3
        AND (s.auto_match OR %(is_refresh)s)
        AND CASE WHEN %(suite_ids)s::bigint[] IS NULL THEN s.state IN (0, 1) ELSE s.id = ANY (%(suite_ids)s::bigint[]) END
),
able AS MATERIALIZED (
    SELECT gr.group_id, r.id AS manager_id, r.tags
    FROM group_runners gr
    JOIN runners r ON r.id = gr.runner_id AND r.kind = 0 AND r.revoked_at IS NULL
    WHERE gr.role >= 1
        AND gr.consent = 1
        AND (%(manager_ids)s::bigint[] IS NULL OR r.id = ANY (%(manager_ids)s::bigint[]))
),
kind AS MATERIALIZED (
    SELECT k.group_id, k.tags,
        ARRAY(SELECT m.manager_id FROM able m WHERE m.group_id = k.group_id AND k.tags <@ m.tags) AS manager_ids
    FROM (SELECT DISTINCT s.group_id, s.tags FROM scope s) k
),
due AS MATERIALIZED (
    SELECT s.id AS suite_id, m.manager_id
    FROM scope s
    JOIN kind k ON k.group_id = s.group_id AND k.tags = s.tags
    CROSS JOIN LATERAL unnest(k.manager_ids) AS m (manager_id)
),
stored AS MATERIALIZED (
    SELECT e.task_suite_id AS suite_id, e.manager_id, e.selection_type, e.removed_at
    FROM scope s
    CROSS JOIN LATERAL (
        SELECT o.* FROM task_suite_managers o
        WHERE o.task_suite_id = s.id
            AND (%(manager_ids)s::bigint[] IS NULL OR o.manager_id = ANY (%(manager_ids)s::bigint[]))
        OFFSET 0
    ) e
),
gone AS MATERIALIZED (
    SELECT t.suite_id, t.manager_id FROM stored t WHERE t.selection_type = 1
    EXCEPT
    SELECT d.suite_id, d.manager_id FROM due d
),
stale AS (
    DELETE FROM task_suite_managers e
    USING gone g
    WHERE e.task_suite_id = g.suite_id AND e.manager_id = g.manager_id
    RETURNING e.task_suite_id AS suite_id, e.manager_id, e.removed_at
),
missing AS MATERIALIZED (
    SELECT d.suite_id, d.manager_id FROM due d
    EXCEPT
    SELECT t.suite_id, t.manager_id FROM stored t WHERE NOT (%(is_refresh)s AND t.removed_at IS NOT NULL)
),
fresh AS (
    INSERT INTO task_suite_managers AS e (task_suite_id, manager_id, selection_type, matched_tags, added_by_user_id)
    SELECT n.suite_id, n.manager_id, 1, s.tags, %(user_id)s::bigint
    FROM missing n
    JOIN scope s ON s.id = n.suite_id
    ORDER BY n.suite_id, n.manager_id
    ON CONFLICT (task_suite_id, manager_id) DO UPDATE
    SET removed_at = NULL, matched_tags = excluded.matched_tags, added_at = clock_timestamp()
    WHERE e.selection_type = 1 AND e.removed_at IS NOT NULL
    RETURNING e.task_suite_id AS suite_id, e.manager_id
)
SELECT 'added', f.suite_id, r.uuid FROM fresh f JOIN runners r ON r.id = f.manager_id
UNION ALL
SELECT 'removed', t.suite_id, r.uuid FROM stale t JOIN runners r ON r.id = t.manager_id WHERE t.removed_at IS NULL
ORDER BY 1, 2, 3
