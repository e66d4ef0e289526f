"""Every write to users, groups, memberships and the audit log, one module per use case."""
