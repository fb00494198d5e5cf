"""What a plain scalar means, compared with the YAML reader that most tools have."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobspec.spec.yaml import scalars
from tests.kits.strategies import TRAPS

plain = st.one_of(
    st.sampled_from([t for t in TRAPS if t and t.isprintable()]),
    st.sampled_from(sorted(scalars.BOOLEAN_WORDS)),
    st.from_regex(r"[-+]?[0-9_.:]{1,8}", fullmatch=True),
    st.from_regex(r"[-+]?[0-9]{1,3}(\.[0-9]{0,3})?([eE][-+]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"[-+]?0[xob][0-9a-f_]{1,4}", fullmatch=True),
)


def pyyaml(source: str) -> object:
    """What PyYAML, a YAML 1.1 reader, makes of the scalar; the text where it is none."""
    try:
        value: object = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError):
        return source
    return value


def ours(source: str) -> object:
    try:
        value: object = scalars.resolve(source)
    except scalars.ScalarError:
        return None
    return value


@given(plain)
def test_text_that_another_reader_takes_for_a_number_or_boolean_is_warned_about(source: str) -> None:
    theirs = pyyaml(source)
    if isinstance(ours(source), str) and isinstance(theirs, bool | int | float):
        assert scalars.older_reading(source), f"PyYAML reads {theirs!r}"


@given(plain)
def test_a_warning_is_never_made_up(source: str) -> None:
    if scalars.older_reading(source) and isinstance(ours(source), str):
        assert not isinstance(pyyaml(source), str)


@given(plain)
def test_numbers_that_both_read_are_the_same(source: str) -> None:
    theirs, value = pyyaml(source), ours(source)
    if isinstance(theirs, int | float) and isinstance(value, int | float):
        assert value == theirs


@pytest.mark.parametrize(
    "source", ["9" * 5000, "1_" + "0" * 5000, "9" * 5000 + ":00", "0b" + "1" * 5000, "1." + "0" * 5000]
)
def test_endless_digits_are_no_crash(source: str) -> None:
    assert isinstance(scalars.older_reading(source), str)
    ours(source)


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers(number: int) -> None:
    value = scalars.resolve(str(number))
    assert (value, type(value)) == (number, int)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats(number: float) -> None:
    value = scalars.resolve(repr(number))
    assert (value, type(value)) == (number, float)
