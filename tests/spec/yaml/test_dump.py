"""Laws of the writer: every reader gets back what went in."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given

from jobspec.finding import JobspecError
from jobspec.spec.interpolate import escape_data
from jobspec.spec.job import JobSpec, Train
from jobspec.spec.load import parse_spec
from jobspec.spec.rules import override_secrets
from jobspec.spec.validate import convert
from jobspec.spec.yaml import dump
from jobspec.spec.yaml.document import parse_document
from jobspec.spec.yaml.dump import dump_spec
from tests.kits.strategies import TRAPS, specs, texts, values


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, all the way down: 1, 1.0 and True are three things."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def read(text: str) -> Any:
    document = parse_document(text, "<dump>", "job")
    assert document.findings == (), "what jobspec writes gives no warning when it reads it"
    return document.data["user"]


@given(values)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    assert same(read(dump_spec({"user": value})), value)


@given(values)
def test_a_yaml_1_1_reader_reads_the_same(value: Any) -> None:
    assert same(yaml.safe_load(dump_spec({"user": value}))["user"], value)


@pytest.mark.parametrize("text", TRAPS, ids=ascii)
def test_every_trap_as_key_and_value(text: str) -> None:
    assert same(read(dump_spec({"user": {text: text}})), {text: text})


@given(texts)
def test_dumping_twice_gives_the_same_bytes(text: str) -> None:
    once = dump_spec({"user": [text]})
    assert dump_spec({"user": read(once)}) == once


@given(specs())
def test_a_spec_means_the_same_after_a_round_trip(data: dict[str, Any]) -> None:
    document = parse_document(dump_spec(data), "<dump>", "job")
    assert same(document.data, data)
    assert convert(document.data, JobSpec) == convert(data, JobSpec) is not None


def reads_like_a_secret(value: Any) -> bool:
    """Loading refuses such a setting, so nothing can be said about its round trip."""
    spec = JobSpec(1, "x", "verl", train=Train(overrides={"value": value}))
    return any(override_secrets(spec))


@given(values.filter(lambda value: not reads_like_a_secret(value)))
def test_escaped_data_survives_loading(value: Any) -> None:
    head = {"version": 1, "name": "x", "framework": "verl"}
    data = escape_data({**head, "train": {"overrides": {"value": value}}})
    loaded = parse_spec(dump_spec(data), env={})
    assert same(loaded.data["train"]["overrides"]["value"], escape_data(value))


def test_lines_stay_readable() -> None:
    assert dump_spec({"train": {"command": ["set -e\npython train.py\n"]}}) == (
        "train:\n  command:\n    - |\n      set -e\n      python train.py\n"
    )


@given(values)
def test_keys_dumped_one_by_one_are_the_text_of_the_whole(value: Any) -> None:
    data = {"user": {"a": {"b": value, "odd key": value, "c": [value]}, "empty": {}, "lines": "x\n\n  y\n"}}
    whole = yaml.dump(
        data, Dumper=dump._Dumper, sort_keys=False, allow_unicode=True, width=2**20, default_flow_style=False
    )
    assert dump.dump_spec(data) == whole


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "a\0b", "\ud800", {"\0": 1}, {1: 2}, object(), b"x", {1, 2}],
    ids=[
        "nan",
        "infinity",
        "null character",
        "lone surrogate",
        "null in a key",
        "number as key",
        "object",
        "bytes",
        "set",
    ],  # not `repr`: an address is another one in each process of pytest-xdist
)
def test_what_cannot_be_read_back_is_not_written(value: Any) -> None:
    with pytest.raises(JobspecError) as caught:
        dump_spec({"user": {"here": [value]}})
    assert (caught.value.findings[0].rule, caught.value.findings[0].path[:12]) == (
        "spec.dump",
        "user.here[0]",
    )
