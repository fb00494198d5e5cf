"""Hypothesis strategies that more than one test module uses."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

# No time limit for an example: a busy machine is not a broken law.
settings.register_profile("jobspec", deadline=None)
settings.load_profile("jobspec")

# Texts that some YAML reader takes for something else, or that a shell would act on.
TRAPS = (
    "", " ", "~", "null", "Null", "true", "False", "yes", "NO", "on", "y", "n", "010", "0x10", "0o17",
    "1_000", "1e3", "1e-6", ".5", "1.", "+1", "-0", ".inf", "-.INF", ".nan", "4:00:00", "190:20:30",
    "2024-01-01", "<<", "=", "-", "- a", "--flag", "? a", ": a", "a: b", "a:", "# a", "a # b", "a #b",
    "*a", "&a", "!a", "!!str a", "%a", "@a", "`id`", "{a}", "[a]", "{a: b}", "'", '"', "'a'", '"a"',
    "\\", "\\n", "a\\", "$(id)", "${HOME}", "$${x}", "a\nb", "a\n", "\n", "\na", "a\n\n", " a\n b",
    "a \nb", "\ta", "a\t", "a\r\nb", "\r", "|", ">", "|-", "---", "...", "--- a", "\x85", "\u2028",
    "\ufeff", "\xe9", "\U0001f680", "\x1b[31m", "\x7f", '{"a": [1]}',
)  # fmt: skip

texts = st.one_of(
    st.sampled_from(TRAPS),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.text("ab:-#'\"\\\n\t $`{}[]&*!|>%@,?0123456789.eE_~", max_size=20),
)
finite_floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), finite_floats, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
"""Any plain data that a spec may hold."""

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
env_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,15}", fullmatch=True)
positive = st.integers(1, 10_000)


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """Plain data of job specs that the schema accepts, with hostile texts in their free fields."""
    return st.fixed_dictionaries(
        {"version": st.just(1), "name": names, "framework": texts},
        optional={
            "cluster": texts,
            "coverage": _optional(
                level=st.one_of(texts, st.integers(0, 9)), variants=st.lists(texts, max_size=2)
            ),
            "resources": _optional(
                nodes=positive,
                gpus_per_node=st.integers(0, 16),
                memory=st.sampled_from(["1", "10G", "3T"]),
                time=st.sampled_from(["10", "4:00:00", "1-00", "2-12:30:00"]),
                exclusive=st.booleans(),
            ),
            "container": _optional(
                image=texts,
                env=st.dictionaries(env_names, texts, max_size=3),
                mounts=st.lists(
                    st.fixed_dictionaries(
                        {"source": texts, "target": texts}, optional={"read_only": st.booleans()}
                    ),
                    max_size=2,
                ),
            ),
            "train": _optional(
                steps=positive,
                seed=st.integers(-(2**31), 2**31),
                command=st.lists(texts, max_size=3),
                overrides=st.dictionaries(texts, values, max_size=3),
            ),
            "secrets": st.lists(env_names, max_size=2),
            "user": st.dictionaries(texts, values, max_size=2),
        },
    )
