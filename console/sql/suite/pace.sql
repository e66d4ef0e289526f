-- How fast a suite ends tasks: its newest events, at most max_events of them and none before `since`, give how many ends they
-- hold and when the oldest happened. Relies on: task_events_suite, read backwards. Called by: console.selectors.suite.
SELECT count(*) FILTER (WHERE e.kind = 8), min(e.at)
FROM (
    SELECT x.kind, x.at
    FROM task_events x
    WHERE x.suite_id = %(suite_id)s
    ORDER BY x.xid DESC, x.id DESC
    LIMIT %(max_events)s
) e
WHERE e.at >= %(since)s
