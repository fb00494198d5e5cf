"""Whole numbers: which values count as one, and which fit best."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard


def is_count(value: object) -> TypeGuard[int]:
    """Whether a setting is a whole number from 1 on; YAML's `true` is not."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def nearest_numbers(fitting: Iterable[int], target: int) -> str:
    """The two of `fitting` that are nearest to `target`, the smaller one first.

    >>> nearest_numbers([2, 4, 6, 12], 5), nearest_numbers([3], 5)
    ('4 or 6', '3')
    """
    nearest = sorted(set(fitting), key=lambda number: (abs(number - target), number))[:2]
    return " or ".join(str(number) for number in sorted(nearest))


def divisors(number: int) -> list[int]:
    """Every divisor, in order."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
