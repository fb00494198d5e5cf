"""What a program's own message advises is quoted, and nothing that another voice says."""

from __future__ import annotations

from jobspec.triage import Match, first_cause, scan_lines
from jobspec.triage.own_advice import advice_in, whole

FRAMES = ["Traceback (most recent call last):", '  File "/x/train.py", line 8, in <module>', "    main()"]


def cause_of(*lines: str) -> Match:
    cause = first_cause(scan_lines([*FRAMES, *lines]))
    assert cause is not None
    return cause


def test_advice_behind_the_cut_of_the_title_is_quoted() -> None:
    said = "ValueError: " + "the two do not fit " * 9 + "here. Please set `foo_mode=two` for it."
    assert '"Please set `foo_mode=two` for it."' in cause_of(said).fix


def test_advice_below_the_line_is_quoted() -> None:
    cause = cause_of("ValueError: it is refused", "(1) this way", "Try setting", "Make sure that `a_b=1`.")
    assert "Make sure that `a_b=1`." in cause.fix


def test_a_package_that_the_message_asks_for_below_its_line_is_named() -> None:
    cause = cause_of(
        "ValueError: Couldn't instantiate the backend tokenizer from one of: ",
        "(1) a `tokenizers` library serialization file, ",
        "You need to have sentencepiece or tiktoken installed to convert a slow tokenizer to a fast one.",
    )
    assert (cause.kind, cause.verdict) == ("image", "Blocked")
    assert "`sentencepiece or tiktoken`" in cause.fix


def test_what_another_voice_says_is_not_quoted() -> None:
    for line in (
        "[2025-01-01 10:00:00] please set `other_key=1`",
        "W0512 09:12:01.113000 1 x.py:1] please set `other_key=1`",
        "wandb: please set `other_key=1`",
        "srun: error: please set `other_key=1`",
        "(pid=7) please set `other_key=1`",
    ):
        assert "other_key" not in cause_of("ValueError: it is refused", line).fix


def test_a_message_of_a_rank_goes_on_under_its_label_alone() -> None:
    lines = [f"[rank0]: {line}" for line in (*FRAMES, "ValueError: it is refused", "Please set `one_key=1`.")]
    cause = first_cause(scan_lines([*lines, "Please set `other_key=1`."]))
    assert cause is not None
    assert "one_key" in cause.fix
    assert "other_key" not in cause.fix


def test_words_that_hide_an_error_or_send_elsewhere_are_no_advice() -> None:
    for words in (
        "To disable this error, set `error_if_nonfinite=False`.",
        "Please report this issue.",
        "Please refer to the documentation.",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
        "You can't train it on a different device.",
    ):
        assert advice_in(f"RuntimeError: It is so. {words}") == ""


def test_values_that_fit_are_advice() -> None:
    said = "ValueError: 8 does not divide. The valid values for the number of generations are: [7]."
    assert "[7]" in advice_in(said)


def test_a_message_ends_where_the_next_exception_begins() -> None:
    below = ["more of it", "", "ValueError: another", "and its own"]
    assert whole("KeyError: 'x'", below) == "KeyError: 'x' more of it"


def test_two_settings_that_the_message_found_are_named() -> None:
    cause = cause_of(
        "ValueError: --load_best_model_at_end requires the save and eval strategy to match, but found",
        "- Evaluation strategy: IntervalStrategy.NO",
        "- Save strategy: SaveStrategy.STEPS",
    )
    assert "evaluation is `NO`, saving `STEPS`" in cause.fix
