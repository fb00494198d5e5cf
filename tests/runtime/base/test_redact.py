import json

from hypothesis import given
from hypothesis import strategies as st

from jobspec.runtime.base.redact import Redactor

TOKEN = "hf_AbC/123+x="


def redactor() -> Redactor:
    return Redactor.from_environment(["HF_TOKEN", "ABSENT", "SHORT"], {"HF_TOKEN": TOKEN, "SHORT": "1"})


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


@given(st.lists(st.sampled_from([TOKEN, "hf_", "hf_AbC", "text\n", "=", "x"]), max_size=12), st.data())
def test_stream_equals_whole(parts: list[str], data: st.DataObject) -> None:
    """However the bytes are cut, the stream gives what the whole text gives."""
    text = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream = redactor().stream()
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert b"".join([*map(stream.feed, chunks), stream.flush()]) == redactor().clean(text)
