"""The few shapes that the pictures are made of, as SVG that is readable on a light and on a dark page.

A picture is shown by an ``img``, so it sees the reader's system and not the page's switch between light and dark. It
therefore paints its own background.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

CHARACTER = 7.3
"""The width of a character of 13 px, on average, in the fonts below."""
_STYLE = """
svg { color-scheme: light dark; }
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
.small { font-size: 11.5px; }
.faint { fill: #59636e; }
.strong { font-weight: 600; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.page { fill: #ffffff; }
.line { stroke: #8c959f; stroke-width: 1; fill: none; }
.dashed { stroke-dasharray: 4 3; }
.tip { fill: #8c959f; }
.plain { fill: #f6f8fa; stroke: #8c959f; }
.good { fill: #dafbe1; stroke: #1a7f37; }
.held { fill: #ddf4ff; stroke: #0969da; }
.bad { fill: #ffebe9; stroke: #cf222e; }
.odd { fill: #fff1c2; stroke: #9a6700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .faint { fill: #9198a1; }
  .page { fill: #16191f; }
  .line { stroke: #6e7681; }
  .tip { fill: #6e7681; }
  .plain { fill: #262c36; stroke: #6e7681; }
  .good { fill: #12351f; stroke: #3fb950; }
  .held { fill: #0c2d5e; stroke: #58a6ff; }
  .bad { fill: #4a1418; stroke: #ff7b72; }
  .odd { fill: #4a3506; stroke: #d29922; }
}
"""


@dataclass
class Drawing:
    """A picture that grows by one shape after the other. ``title`` is what a screen reader says of it."""

    width: float
    height: float
    title: str
    _shapes: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write ``text`` with its baseline at ``y``."""
        self._shapes.append(f'<text x="{x:g}" y="{y:g}"{_classes(kind)}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, *, radius: float = 5) -> None:
        """Draw a box whose upper left corner is at ``x`` and ``y``."""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"{_classes(kind)}/>'
        )

    def label(self, x: float, y: float, text: str, kind: str, *, width: float | None = None) -> None:
        """Write ``text`` in the middle of a box around ``x`` and ``y``."""
        wide = width if width is not None else len(text) * CHARACTER + 16
        self.box(x - wide / 2, y - 13, wide, 26, kind)
        self.text(x, y + 4.5, text, "middle")

    def line(self, *points: tuple[float, float], kind: str = "line") -> None:
        """Draw a line through ``points``."""
        along = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._shapes.append(f'<polyline points="{along}"{_classes(kind)}/>')

    def arrow(self, *points: tuple[float, float], kind: str = "line") -> None:
        """Draw a line through ``points`` with a tip at its end."""
        self.line(*points, kind=kind)
        (before_x, before_y), (x, y) = points[-2:]
        length = ((x - before_x) ** 2 + (y - before_y) ** 2) ** 0.5
        along_x, along_y = (x - before_x) / length * 8, (y - before_y) / length * 8
        tip = f"{x:g},{y:g} {x - along_x - along_y / 2:g},{y - along_y + along_x / 2:g} "
        tip += f"{x - along_x + along_y / 2:g},{y - along_y - along_x / 2:g}"
        self._shapes.append(f'<polygon points="{tip}" class="tip"/>')

    def svg(self) -> str:
        """Return the file."""
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img">'
        )
        page = f'<rect width="{self.width:g}" height="{self.height:g}" rx="8" class="page"/>'
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join([opening, title, f"<style>{_STYLE}</style>", page, *self._shapes, "</svg>", ""])


def _classes(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
