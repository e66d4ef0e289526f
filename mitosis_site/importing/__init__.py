"""Takes over the contents of an existing Mitosis server: `manage.py import_mitosis`.

`source` reads the other database, `rows` says what a row becomes here, `run` writes. The operator's
page is docs/operator/migration.md.
"""
