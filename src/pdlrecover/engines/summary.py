"""A few lines about something: as text for a terminal, as a table for a notebook."""

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A title, and rows of a word and what there is to say."""

    title: str
    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.rows), default=0)
        return "\n".join(
            [self.title, *(f"  {name:<{width}}  {text}".rstrip() for name, text in self.rows)]
        )

    def html(self) -> str:
        """Return it as a table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self.rows
        )
        return f"<table><caption>{escape(self.title)}</caption><tbody>{rows}</tbody></table>"


def counted(number: int, thing: str) -> str:
    """Return a number of things: 1 peer, 2 peers."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
