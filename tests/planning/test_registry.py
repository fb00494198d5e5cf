"""Digests of tags from a registry on this machine, and what plan, lock and report say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import pipeline
from jobspec.judging.not_proved import limitations
from jobspec.pipeline import Request
from jobspec.plan import from_json
from jobspec.planning.registry import Tag, parse_tag, place_of, tag_digest
from tests.kits.fake_registry import FakeRegistry

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
Serve = Callable[..., FakeRegistry]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made: list[FakeRegistry] = []

    def start(**options: Any) -> FakeRegistry:
        made.append(FakeRegistry({"team/rl:v1": ONE}, **options))
        return made[-1]

    yield start
    for registry in made:
        registry.close()


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("registry.example.com#team/rl:v1", Tag("registry.example.com", "team/rl", "v1")),
        ("registry.example.com/team/rl:v1", Tag("registry.example.com", "team/rl", "v1")),
        ("docker://registry.example.com:5000/rl", Tag("registry.example.com:5000", "rl", "latest")),
        ("localhost:5000#rl:v1", Tag("localhost:5000", "rl", "v1")),
        ("team/rl:v1", Tag("", "team/rl", "v1")),
        ("rl", Tag("", "rl", "latest")),
        ("registry.example.com#rl@" + ONE, None),
        ("/images/rl.sqsh", None),
        ("oras://registry.example.com/rl:v1", None),
        ("localhost/rl:v1", None),
        ("rl:v1?x=1", None),
        ("user@registry.example.com#rl:v1", None),
    ],
)
def test_tag_of_an_image(image: str, tag: Tag | None) -> None:
    assert parse_tag(image) == tag


@pytest.mark.parametrize(
    ("image", "place"),
    [
        ("docker.io/python:3.11", ("registry-1.docker.io", "library/python")),
        ("docker.io/library/python", ("registry-1.docker.io", "library/python")),
        ("docker://index.docker.io/team/rl:v1", ("registry-1.docker.io", "team/rl")),
        ("registry.example.com/rl:v1", ("registry.example.com", "rl")),
    ],
)
def test_where_a_tag_is_asked_about(image: str, place: tuple[str, str]) -> None:
    tag = parse_tag(image)
    assert tag is not None and place_of(tag) == place


@pytest.mark.parametrize("token", ["", "t0ken"])
def test_digest_of_a_tag(serve: Serve, token: str) -> None:
    registry = serve(token=token)
    assert tag_digest(Tag(registry.host, "team/rl", "v1")) == (ONE, "")
    asked = "/token?service=registry&scope=repository%3Ateam%2Frl%3Apull"
    head = "HEAD /v2/team/rl/manifests/v1"
    assert registry.seen == ([head, f"GET {asked}", head] if token else [head])


def unknown(registry: FakeRegistry, tag: str = "v1", deadline_s: float = 30.0) -> str:
    digest, why = tag_digest(Tag(registry.host, "team/rl", tag), deadline_s)
    assert digest == ""
    return why.replace(registry.host, "HOST")


def test_tag_that_is_not_there_is_told(serve: Serve) -> None:
    assert unknown(serve(), "v2") == "`HOST` has no tag `v2` of `team/rl`"


def test_answer_of_another_type_is_no_digest(serve: Serve) -> None:
    why = unknown(serve(kind="text/html"))
    assert why == "`HOST` answers with `text/html`, which is no manifest of an image"


def test_slow_registry_ends_at_the_deadline(serve: Serve) -> None:
    assert unknown(serve(delay_s=20.0), deadline_s=0.3) == "`HOST` did not answer within 0.3 s"


@pytest.mark.parametrize("realm", ["file:///etc/passwd", "http://registry.example.com/token", "nonsense"])
def test_token_is_asked_for_by_https_alone(serve: Serve, realm: str) -> None:
    registry = serve(token="t0ken")
    registry.realm = realm
    assert unknown(registry) == "`HOST` wants a login for `team/rl`"
    assert len(registry.seen) == 1


@pytest.mark.parametrize(
    "answer", ["{", "[]", "null", '{"token": null}', '{"token": 7}', '{"token": "a\\nb"}', "[" * 500_000]
)
def test_answer_without_a_token_is_told(serve: Serve, answer: str) -> None:
    registry = serve(token="t0ken")
    registry.token_answer = answer.encode()
    assert unknown(registry) == "`127.0.0.1` gives no token for `team/rl`"


def test_digest_that_is_none_is_refused(serve: Serve) -> None:
    registry = serve()
    registry.tags["team/rl:v1"] = "sha256:zz"
    assert unknown(registry) == "`HOST` gives no digest for `team/rl:v1`"


def test_closed_port_is_told(serve: Serve) -> None:
    registry = serve()
    registry.close()
    assert "`HOST` cannot be asked: " in unknown(registry)


class Site:
    """A spec on a site with pyxis, for `registry`."""

    def __init__(
        self, root: Path, registry: FakeRegistry, image: str = "team/rl:v1", **container: Any
    ) -> None:
        self.root = root
        paths = {"runs": str(root / "runs")}
        container = {"runtime": "pyxis", "registry": registry.host, **container}
        profile = {"version": 1, "name": "site", "container": container, "paths": paths, "node": {"gpus": 0}}
        spec = {"version": 1, "name": "x", "framework": "command", "train": {"command": ["true"]}}
        spec |= {"resources": {"time": "10:00"}, "container": {"image": image}}
        (root / "site.yaml").write_text(yaml.safe_dump(profile))
        (root / "spec.yaml").write_text(yaml.safe_dump(spec))
        self.request = Request(root / "spec.yaml", cluster_file=root / "site.yaml")

    def rules(self, name: str = "out") -> list[str]:
        found = pipeline.render_run(self.request, self.root / name).findings
        return [item.rule for item in found if item.rule.startswith("container.")]

    def lock(self, name: str = "out") -> str:
        return str(yaml.safe_load((self.root / name / "spec.lock.yaml").read_text())["lock"]["image"])


def test_submission_puts_the_digest_into_plan_lock_and_report(serve: Serve, tmp_path: Path) -> None:
    site = Site(tmp_path, serve())
    assert site.rules() == []
    assert site.lock() == ONE
    container = from_json((tmp_path / "out/plan.json").read_text()).container
    assert (container.image, container.digest, container.by_tag) == ("team/rl:v1", ONE, True)
    assert f"team/rl:v1 ({ONE} at submission)" in pipeline.report_text(tmp_path / "out", "md")
    evidence = pipeline.judge_run(tmp_path / "out")[0]
    assert any(
        f"was {ONE} at submission, and its tag may have moved" in text for text in limitations(evidence)
    )


def test_validation_asks_nobody(serve: Serve, tmp_path: Path) -> None:
    registry = serve()
    found = pipeline.check(Site(tmp_path, registry).request)
    assert [item.rule for item in found] == ["container.image-tag"]
    assert registry.seen == []


def test_unknown_digest_is_a_warning_and_not_pinned(serve: Serve, tmp_path: Path) -> None:
    site = Site(tmp_path, serve(), image="team/rl:v2")
    assert site.rules() == ["container.tag-unknown", "container.image-tag"]
    assert site.lock() == "tag, not pinned"


def test_site_without_a_network_asks_nobody(serve: Serve, tmp_path: Path) -> None:
    registry = serve()
    site = Site(tmp_path, registry, ask_registry=False)
    assert site.rules() == ["container.image-tag"]
    assert (site.lock(), registry.seen) == ("tag, not pinned", [])


def test_latest_is_told_with_its_digest_too(serve: Serve, tmp_path: Path) -> None:
    registry = serve()
    registry.tags["team/rl:latest"] = TWO
    site = Site(tmp_path, registry, image=f"{registry.host}#team/rl")
    assert (site.rules(), site.lock()) == (["container.image-latest"], TWO)


def test_file_that_the_site_has_of_a_tag_is_named(serve: Serve, tmp_path: Path) -> None:
    registry = serve()
    (tmp_path / "team+rl+v1.sqsh").write_text("")
    site = Site(tmp_path, registry, image_cache=str(tmp_path))
    finding = {item.rule: item for item in pipeline.check(site.request)}["container.image-tag"]
    assert finding.fix == f"name the file that the site has of it, `{tmp_path}/team+rl+v1.sqsh`"


def test_lock_of_a_tag_that_moved_is_a_difference(serve: Serve, tmp_path: Path) -> None:
    from jobspec.planning.provenance import changed_since

    registry = serve()
    resolved = pipeline.resolve(Site(tmp_path, registry).request, fetch=True)
    lock = {"image": ONE}
    assert [item for item in changed_since(lock, resolved) if item.rule == "reproduce.image"] == []
    registry.tags["team/rl:v1"] = TWO
    moved = pipeline.resolve(Site(tmp_path, registry).request, fetch=True)
    (finding,) = (item for item in changed_since(lock, moved) if item.rule == "reproduce.image")
    assert finding.is_error and f"it was {ONE}, and is {TWO}" in finding.why
    assert moved.plan is not None
    asked_nobody = replace(moved.plan, container=replace(moved.plan.container, digest="", by_tag=False))
    (told,) = (
        item
        for item in changed_since(lock, replace(moved, plan=asked_nobody))
        if item.rule == "reproduce.image"
    )
    assert not told.is_error and ONE in told.why
