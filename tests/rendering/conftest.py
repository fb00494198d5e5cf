"""Fixtures and the option of the rendering tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.kits.render_kit import Stage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/rendering/golden from this run"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def no_reports() -> Iterator[None]:
    """The rendered job sees no installation, and so writes no reports at its end: a second for each start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobspec.rendering.files.PACKAGE", "/not/here")
        yield


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


@pytest.fixture
def write_scripts() -> Callable[[Path, Mapping[str, bytes]], Path]:
    def write(folder: Path, files: Mapping[str, bytes]) -> Path:
        for name, text in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
        return folder

    return write
