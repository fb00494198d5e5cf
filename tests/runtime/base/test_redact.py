import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.runtime.base.redact import Redactor

TOKEN = "hf_AbC/123+x="


def redactor() -> Redactor:
    return Redactor.from_environment(["HF_TOKEN", "ABSENT", "SHORT"], {"HF_TOKEN": TOKEN, "SHORT": "1"})


@pytest.mark.parametrize("cut", range(39, 68))
def test_secret_behind_the_start_of_a_colour_code_is_held(cut: int) -> None:
    """`ESC [` and the digits of a secret in hex look like a colour code that goes on."""
    text = f"{TOKEN * 3}\x1b[{TOKEN.encode().hex()}".encode()
    stream = redactor().stream()
    assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush() == redactor().clean(text)


def test_value_and_its_url_form_are_replaced() -> None:
    assert redactor().text(f"a {TOKEN} b") == "a [redacted HF_TOKEN] b"
    assert "AbC" not in redactor().text("https://x?t=hf_AbC%2F123%2Bx%3D")


def test_value_with_quotes_is_found_in_json() -> None:
    secret = 'pa"ss\\word'
    line = json.dumps({"text": f"it is {secret}"})
    assert "word" not in Redactor([("S", secret)]).text(line)


def test_every_line_of_a_key_counts() -> None:
    key = "-----BEGIN-----\nMIIEvQIBADANBg\n-----END-----"
    assert Redactor([("KEY", key)]).text("x MIIEvQIBADANBg y") == "x [redacted KEY] y"


def test_short_value_is_left() -> None:
    assert redactor().text("step 1 of 10") == "step 1 of 10"


def test_longer_secret_goes_as_a_whole() -> None:
    both = Redactor([("A", "secret"), ("B", "secret-and-more")])
    assert both.text("secret-and-more") == "[redacted B]"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "u", "us", "user:", "some-user:"])
@pytest.mark.parametrize("after", ["", "\n", "xyz"])
def test_base64_is_found_behind_anything(encode: Any, before: str, after: str) -> None:
    secret = "hf_\x7f>?AbCdEfGh~~~ij"  # with both of the letters in which the alphabets differ
    text = encode(f"{before}{secret}{after}".encode()).decode()
    cleaned = Redactor([("S", secret)]).text(f"Authorization: Basic {text} end")
    assert "[redacted S]" in cleaned
    assert len(cleaned.replace("[redacted S]", "")) <= len("Authorization: Basic  end") + len(text) - 22
    assert cleaned.startswith("Authorization: Basic ") and cleaned.endswith(" end")


@pytest.mark.parametrize("text", [TOKEN.encode().hex(), TOKEN.encode().hex().upper()])
def test_hex_is_found(text: str) -> None:
    assert redactor().text(f"0x{text}\n") == "0x[redacted HF_TOKEN]\n"


def test_value_with_colours_inside_is_found_and_the_colours_stay() -> None:
    text = f"\x1b[31m{TOKEN[:5]}\x1b[0m\x1b[1;32m{TOKEN[5:]}\x1b[0m \x1b[31mred\x1b[0m"
    expected = "\x1b[31m[redacted HF_TOKEN]\x1b[0m\x1b[1;32m\x1b[0m \x1b[31mred\x1b[0m"
    assert redactor().text(text) == expected


PARTS = [TOKEN, "hf_", "hf_AbC", "text\n", "=", "x", "\x1b[31m", "\x1b[", TOKEN[:4] + "\x1b[0m" + TOKEN[4:]]
PARTS += [base64.b64encode(f"u:{TOKEN}".encode()).decode(), TOKEN.encode().hex()]


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.data())
def test_stream_equals_whole(parts: list[str], data: st.DataObject) -> None:
    """However the bytes are cut, the stream gives what the whole text gives."""
    text = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream = redactor().stream()
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert b"".join([*map(stream.feed, chunks), stream.flush()]) == redactor().clean(text)


def test_a_value_that_comes_later_is_learned() -> None:
    later = redactor()
    later.learn("RAY_AUTH_TOKEN", "token-of-another-run")
    later.learn("NOTHING", "")
    assert later.text(f"token-of-another-run {TOKEN}") == "[redacted RAY_AUTH_TOKEN] [redacted HF_TOKEN]"
