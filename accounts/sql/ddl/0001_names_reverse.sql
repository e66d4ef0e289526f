-- Undoes 0001_names.sql.
DROP TRIGGER groups_refuse_rename ON groups;
DROP TRIGGER users_refuse_rename ON users;
DROP FUNCTION mitosis_refuse_rename();
DROP TRIGGER groups_reserve_name ON groups;
DROP FUNCTION mitosis_reserve_group_name();
DROP TRIGGER users_reserve_name ON users;
DROP FUNCTION mitosis_reserve_user_name();
