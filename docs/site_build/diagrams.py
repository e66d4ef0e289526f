"""Draws the state diagrams of the pages as SVG, so that the site needs no script from elsewhere.

The pages carry Mermaid text, generated from the transition tables (`make schema`). States stand in
one column in the order of the text; arcs on the right go forward, dashed ones on the left go back.
"""

import html
import re

ROW = 64
BOX_WIDTH, BOX_HEIGHT = 132, 34
REACH = 26  # how much further out an arc goes per row it spans
EDGE = re.compile(r"^\s*(\S+) --> ([^\s:]+)(?::\s*(.+))?$", re.MULTILINE)
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8"/></marker></defs>'
)

Edge = tuple[str, str, str]


def with_drawings(markdown: str) -> str:
    """The page with every state diagram drawn; other diagrams stay as text."""
    return DIAGRAM.sub(lambda match: _svg(EDGE.findall(match[1])) + "\n", markdown)


def _svg(edges: list[Edge]) -> str:
    names = list(dict.fromkeys(name for edge in edges for name in edge[:2] if name != "[*]"))
    rows = {name: place for place, name in enumerate(names)}
    ends = {source: label for source, target, label in edges if target == "[*]"}
    moves = [(rows[a], rows[b]) for a, b, _ in edges if "[*]" not in (a, b)]
    left = max([REACH * (a - b) for a, b in moves if a > b], default=0) + 40
    right = max([REACH * (b - a) for a, b in moves if b > a], default=0) + 30
    notes = 8 * max([len(text) + 4 for text in ends.values() if text], default=0)
    width, height = left + BOX_WIDTH + right + notes, ROW * len(names) + 10
    spoken = html.escape(_spoken(edges), quote=True)
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    parts = [f'<svg class="states" role="img" {size} aria-label="{spoken}">', TIP]
    parts += [_arc(a, b, left) for a, b in moves]
    for name, row in rows.items():
        parts.append(_box(name, row, left, is_first=("[*]", name, "") in edges))
        if ends.get(name):
            parts.append(_note(ends[name], row, left + BOX_WIDTH + right))
    return "".join([*parts, "</svg>"])


def _middle(row: int) -> int:
    return ROW * row + 10 + BOX_HEIGHT // 2


def _arc(start: int, end: int, left: int) -> str:
    forward = end > start
    x = left + BOX_WIDTH if forward else left
    out = x + REACH * (end - start) + (12 if forward else -12)
    y1, y2 = _middle(start) + (8 if forward else -8), _middle(end) + (-8 if forward else 8)
    kind = "forward" if forward else "back"
    curve = f"M{x} {y1} C{out} {y1} {out} {y2} {x} {y2}"
    return f'<path class="{kind}" marker-end="url(#tip)" d="{curve}"/>'


def _box(name: str, row: int, left: int, *, is_first: bool) -> str:
    y = ROW * row + 10
    mark = "&#9679; " if is_first else ""
    return (
        f'<rect x="{left}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7"/>'
        f'<text x="{left + BOX_WIDTH / 2}" y="{y + 22}" text-anchor="middle">'
        f"{mark}{html.escape(name)}</text>"
    )


def _note(text: str, row: int, x: int) -> str:
    return f'<text x="{x}" y="{_middle(row) + 4}">&#9723; {html.escape(text)}</text>'


def _spoken(edges: list[Edge]) -> str:
    """For those who cannot see it."""
    moves = [f"{a} to {b}" for a, b, _ in edges if "[*]" not in (a, b)]
    return "States and moves: " + ", ".join(moves)
