"""Vectors: `scontrol show hostnames` of Slurm 22.05.8 gives the same lists."""

import pytest

from jobspec.runtime.base.hostlist import MAX_HOSTS, HostlistError, expand

VECTORS = [
    ("", ()),
    ("n1", ("n1",)),
    ("n1,n2", ("n1", "n2")),
    ("n[1-3]", ("n1", "n2", "n3")),
    ("n[1-2,5]", ("n1", "n2", "n5")),
    ("n[08-11]", ("n08", "n09", "n10", "n11")),
    ("n[3,1]", ("n3", "n1")),
    ("rack[1-2]node[1-2]", ("rack1node1", "rack1node2", "rack2node1", "rack2node2")),
    ("gpu-[01-02]-eth,login", ("gpu-01-eth", "gpu-02-eth", "login")),
    ("a[1-2],b[003]", ("a1", "a2", "b003")),
    ("n[9-10]", ("n9", "n10")),
    ("127.0.0.2,127.0.0.3", ("127.0.0.2", "127.0.0.3")),
]


@pytest.mark.parametrize(("text", "hosts"), VECTORS)
def test_expand_vector(text: str, hosts: tuple[str, ...]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("n[1-", 4),
        ("n1]", 3),
        ("n[a]", 3),
        ("n[3-1]", 3),
        ("n[[1]]", 3),
        ("n[1,x]", 5),
        ("n[]", 3),
        ("n[1-99999999]", 3),
    ],
)
def test_bad_list_names_column(text: str, column: int) -> None:
    with pytest.raises(HostlistError, match=f"column {column}"):
        expand(text)


def test_product_of_brackets_is_bounded() -> None:
    with pytest.raises(HostlistError, match=str(MAX_HOSTS)):
        expand("n[1-300]m[1-300]")
