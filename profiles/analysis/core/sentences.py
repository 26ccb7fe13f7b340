"""Numbers in the sentences of findings: SI, three significant digits."""

from __future__ import annotations

from decimal import Decimal

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_UP = ("", "k", "M", "G", "T", "P", "E")


def time_text(ns: float) -> str:
    """12400 -> "12.4 µs"."""
    for scale, unit in _TIMES:
        if abs(ns) >= scale * 0.9995:
            return f"{digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def si_text(value: float, unit: str) -> str:
    """1.23e12, "FLOP/s" -> "1.23 TFLOP/s"."""
    step = 0
    while step < len(_UP) - 1 and abs(value) >= 999.5:
        value, step = value / 1000, step + 1
    return f"{digits(value)} {_UP[step]}{unit}"


def pct_of(part: float, whole: float | None) -> float:
    """Return a share in per cent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0


def share_pct(part: float, whole: float | None) -> float | None:
    """Return a share in per cent; None of nothing, or of a whole that is not known."""
    return 100 * part / whole if whole else None


def pct_text(pct: float) -> str:
    """61.34 -> "61 %"; small shares keep a digit."""
    return f"{pct:.0f} %" if abs(pct) >= 10 else f"{pct:.1f} %"


def digits(value: float) -> str:
    """Three significant digits, no exponent."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def plain_number(value: float) -> str:
    """Three significant digits as people write them: 16,700, 14.8, 0.99, 0.00012."""
    return f"{Decimal(f'{value:.3g}'):,f}"


def times_text(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def verb(count: int, of_one: str, of_many: str) -> str:
    """Return the verb behind `plural`: 1 launch "takes", 3 launches "take"."""
    return of_one if count == 1 else of_many


def plural(count: int, one: str) -> str:
    """Return a count with its noun: 1, "copy" -> "1 copy"; 3, "copy" -> "3 copies"."""
    if count == 1:
        return f"1 {one}"
    return f"{count:,} {one[:-1]}ies" if one.endswith("y") else f"{count:,} {one}{'es' if one.endswith('ch') else 's'}"


def capital(text: str) -> str:
    """Return a sentence of words that began none."""
    return text[:1].upper() + text[1:]
