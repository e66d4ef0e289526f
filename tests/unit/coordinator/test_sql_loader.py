"""Named SQL: found by name, read once, never a path."""

import pytest

from core.pg import load_sql


@pytest.fixture
def package(tmp_path, monkeypatch):
    load_sql.cache_clear()
    root = tmp_path / "shop_with_sql"
    (root / "sql" / "ddl").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "secret.sql").write_text("SELECT 'outside'")
    (root / "sql" / "claim.sql").write_text("-- why\nSELECT 1\n")
    (root / "sql" / "ddl" / "tables_v1.sql").write_text("SELECT 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    load_sql.cache_clear()


def test_a_statement_is_found_by_its_name(package):
    assert load_sql("shop_with_sql", "claim") == "-- why\nSELECT 1\n"
    assert load_sql("shop_with_sql", "ddl/tables_v1") == "SELECT 2\n"


def test_a_statement_is_read_once(package):
    first = load_sql("shop_with_sql", "claim")
    (package / "sql" / "claim.sql").write_text("SELECT 3\n")
    assert load_sql("shop_with_sql", "claim") is first


@pytest.mark.parametrize(
    "name",
    [
        "unclaim",
        "",
        "../secret",
        "ddl/../../secret",
        "/etc/passwd",
        "claim.sql",
        "ddl/",
        "Claim",
        "a b",
    ],
)
def test_an_unknown_name_is_refused(package, name):
    with pytest.raises(LookupError, match=r"(?i)sql"):
        load_sql("shop_with_sql", name)
