-- Live suites whose stored eligibility may differ from the rule, without looking at pairs: the managers that the rule gives
-- are counted and hashed once per kind of suite (group and tags), those that are stored once per suite, and equal ones
-- are left alone. Suites with rows chosen by a person are always among the answer; they are few and match.sql decides.
-- By task_suites_live, group_runners_unique, task_suite_managers_unique; called by managers.services.eligibility.
WITH suite AS MATERIALIZED (
    SELECT s.id, s.group_id, s.tags FROM task_suites s WHERE s.state IN (0, 1) AND s.auto_match
),
due AS MATERIALIZED (
    SELECT k.group_id, k.tags, count(*) AS managers, bit_xor(hashint8extended(r.id, 0)) AS print
    FROM (SELECT DISTINCT s.group_id, s.tags FROM suite s) k
    JOIN group_runners gr ON gr.group_id = k.group_id AND gr.role >= 1 AND gr.consent = 1
    JOIN runners r ON r.id = gr.runner_id AND r.kind = 0 AND r.revoked_at IS NULL AND k.tags <@ r.tags
    GROUP BY k.group_id, k.tags
),
stored AS MATERIALIZED (
    SELECT e.task_suite_id AS suite_id, count(*) AS managers, bit_xor(hashint8extended(e.manager_id, 0)) AS print,
        bool_or(e.selection_type = 0) AS has_chosen
    FROM task_suite_managers e
    GROUP BY e.task_suite_id
)
SELECT s.id
FROM suite s
LEFT JOIN due d ON d.group_id = s.group_id AND d.tags = s.tags
LEFT JOIN stored t ON t.suite_id = s.id
WHERE coalesce(t.has_chosen, false)
    OR coalesce(d.managers, 0) <> coalesce(t.managers, 0)
    OR d.print IS DISTINCT FROM t.print
ORDER BY s.id
