-- Managers with samples in one hour, in order. By manager_samples_at; called by managers.services.metrics_history.
SELECT DISTINCT s.manager_id
FROM manager_samples s
WHERE s.at >= %(hour)s::timestamptz AND s.at < %(hour)s::timestamptz + interval '1 hour'
ORDER BY s.manager_id
