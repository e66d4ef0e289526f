"""A look at SQL files without a database: closed quotes and brackets, known placeholders.

The server's parser has the last word (the tests prepare every statement); this finds what an
editor breaks, at every start and in microseconds.
"""

import re
from typing import Final

# Comments and every kind of literal, whole: their content is no syntax. An opening that has no
# end does not match and is found below.
_OPAQUE: Final = re.compile(
    r"""
      --[^\n]*
    | /\*.*?\*/
    | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    """,
    re.VERBOSE | re.DOTALL,
)
_LEFT_OPEN: Final = re.compile(r"'|\"|/\*|\$[A-Za-z_]*\$")
# psycopg's forms; a single percent sign is an error when the statement has parameters.
_PLACEHOLDER: Final = re.compile(r"%(?:%|[sbt]|\([A-Za-z_][A-Za-z0-9_]*\)[sbt])?")
_PAIRS: Final = {")": "(", "]": "["}


def sql_problem(content: bytes) -> str | None:
    """What is wrong with a file, or None."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if not text.lstrip().startswith("--"):
        return "it does not begin with a comment that says what it is for"
    bare = _OPAQUE.sub(" ", text)
    if not bare.strip():
        return "it has no statement"
    if _LEFT_OPEN.search(bare):
        return "a quote or a comment is not closed"
    return _bracket_problem(bare) or _placeholder_problem(bare)


def _bracket_problem(bare: str) -> str | None:
    open_brackets: list[str] = []
    for character in bare:
        if character in "([":
            open_brackets.append(character)
        elif character in _PAIRS and (
            not open_brackets or open_brackets.pop() != _PAIRS[character]
        ):
            return f"a {character} closes nothing"
    return f"a {open_brackets[-1]} is not closed" if open_brackets else None


def _placeholder_problem(bare: str) -> str | None:
    bad = [match.group() for match in _PLACEHOLDER.finditer(bare) if match.group() == "%"]
    return "a % is neither doubled nor a placeholder" if bad else None
