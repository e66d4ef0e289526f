-- One namespace for users and groups. Every insert into either table takes its name in `names`, whose primary
-- key decides races: the second of two transactions waits, then fails with a unique violation (HTTP 409).
-- A user's own group (same name, made by that user) shares the user's reservation. Names are never freed.

CREATE FUNCTION mitosis_reserve_user_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO names (name) VALUES (NEW.username);
    RETURN NULL;
END
$$;

CREATE TRIGGER users_reserve_name AFTER INSERT ON users
    FOR EACH ROW EXECUTE FUNCTION mitosis_reserve_user_name();

CREATE FUNCTION mitosis_reserve_group_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM users WHERE id = NEW.creator_id AND username = NEW.name) THEN
        INSERT INTO names (name) VALUES (NEW.name);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER groups_reserve_name AFTER INSERT ON groups
    FOR EACH ROW EXECUTE FUNCTION mitosis_reserve_group_name();

CREATE FUNCTION mitosis_refuse_rename() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'names of users and groups cannot be changed'
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;

CREATE TRIGGER users_refuse_rename BEFORE UPDATE OF username ON users
    FOR EACH ROW WHEN (NEW.username IS DISTINCT FROM OLD.username)
    EXECUTE FUNCTION mitosis_refuse_rename();

CREATE TRIGGER groups_refuse_rename BEFORE UPDATE OF name ON groups
    FOR EACH ROW WHEN (NEW.name IS DISTINCT FROM OLD.name)
    EXECUTE FUNCTION mitosis_refuse_rename();
