"""Numbers as people write them."""


def percent(rate: float | None) -> str:
    """Return a rate in percent, or a dash."""
    return "–" if rate is None else f"{100 * rate:.1f}%"


def readable(size: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def counted(count: int, one: str, many: str) -> str:
    """Return a number of things, with the right word for them."""
    return f"{count:,} {one if count == 1 else many}"


def listed(names: list[str]) -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def short(number: float) -> str:
    """Return a whole number, of which two digits if it is very large: 3.7e17."""
    if abs(number) < 1e7:
        return f"{number:,.0f}"
    factor, power = f"{number:.1e}".split("e")
    return f"{factor}e{int(power)}"
