"""Guards of managers' tokens, broken one at a time; their machine kills each."""

from tests.mutants.machine_mutants import MachineMutant

TOKEN_MUTANTS = (
    MachineMutant(
        "a token that was spent long ago is only refused",
        "managers.services.tokens",
        [("return is_previous or _family_of(node, token) is not None", "return is_previous")],
    ),
    MachineMutant(
        "each repetition starts the overlap anew",
        "managers.services.tokens",
        [("        if is_newest:\n", "        if not is_reuse:\n")],
    ),
    MachineMutant(
        "a spent token works for ever",
        "managers.services.tokens",
        [(" and _is_in_overlap(node, policy)", "")],
    ),
    MachineMutant(
        "a lost answer is not forgiven",
        "managers.services.tokens",
        [("is_reuse = not is_newest and not is_repeat", "is_reuse = not is_newest")],
    ),
    MachineMutant(
        "a reuse leaves the access tokens good",
        "managers.services.tokens",
        [
            (
                "            rotate_token_generation(actor=actor, runner=runner)\n",
                "            pass\n",
            )
        ],
    ),
    MachineMutant(
        "a reuse leaves the newest refresh token good",
        "managers.services.tokens",
        [
            (
                'node.refresh_hash = "" if is_reuse else _digest(secret)',
                "node.refresh_hash = _digest(refresh_token) if is_reuse else _digest(secret)",
            )
        ],
    ),
    MachineMutant(
        "refreshing goes on when the registration has ended",
        "managers.services.tokens",
        [
            (
                "        if node.refresh_expires_at is None or node.refresh_expires_at <=",
                "        if node.refresh_expires_at is None or node.refresh_expires_at ==",
            )
        ],
    ),
    MachineMutant(
        "an access token outlives the registration",
        "managers.services.tokens",
        [("min(timedelta(seconds=access_s), until - now)", "timedelta(seconds=access_s)")],
    ),
    MachineMutant(
        "a renewed access token leaves the older ones good",
        "managers.services.tokens",
        [("fresh = rotate_token_generation(actor=actor, runner=runner)", "fresh = runner")],
    ),
    MachineMutant(
        "a revoked manager refreshes",
        "managers.services.wishes",
        [('update(refresh_hash="", refresh_previous_hash="")', "update()")],
    ),
    MachineMutant(
        "a rotation is known only after the cache has aged",
        "runners.services.registration",
        [
            (
                "on_commit(partial(forget_standing, runner))\n        return",
                "on_commit(lambda: None)\n        return",
            )
        ],
    ),
    MachineMutant(
        "a socket opens with a token of an older generation",
        "runners/open_session",
        [(" AND token_generation = %(generation)s", " AND %(generation)s IS NOT NULL")],
    ),
)
