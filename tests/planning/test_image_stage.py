"""Images of a real registry, in a site's cache: by real Enroot where it is built, and by stand-ins."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.planning.container import moved_tag
from jobspec.planning.image_stage import ImageItem, bring_image, image_item
from jobspec.planning.registry import parse_reference
from jobspec.runtime.base import procs
from jobspec.runtime.staging import image_cache, image_import
from jobspec.runtime.staging.image_import import Brought, is_whole
from jobspec.spec.site import SiteContainer
from tests.kits import images_kit
from tests.kits.other_user import as_nobody, in_child
from tests.kits.programs_kit import needs, skip_or_fail
from tests.kits.registry_kit import Registry

pytestmark = needs("docker-registry")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user or mount a tmpfs")
ONE = "sha256:" + "1" * 64


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    made = Registry(tmp_path_factory.mktemp("registry") / "open")
    yield made
    made.stop()


@pytest.fixture
def pyxis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images_kit.use("stand-in enroot", tmp_path, monkeypatch)


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that other users can enter: each start of pytest closes its own to them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        images_kit.use("stand-in enroot", folder, monkeypatch)
        yield folder


def item_of(registry: Registry, folder: Path, name: str, runtime: str = "pyxis") -> ImageItem:
    site = SiteContainer(runtime=runtime, image_cache=str(folder))  # type: ignore[arg-type]
    item = image_item(f"docker://{registry.host}/{name}", site)
    assert item is not None
    return item


def bring(item: ImageItem, timeout_s: float = 60) -> tuple[Brought, list[str]]:
    said: list[str] = []
    return bring_image(item, timeout_s, said.append), said


def refused(item: ImageItem, timeout_s: float = 60) -> tuple[str, str]:
    """Rule and text of the error that bringing the item ends with."""
    with pytest.raises(JobspecError) as caught:
        bring(item, timeout_s)
    (finding,) = caught.value.findings
    return finding.rule, finding.text()


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ("registry.example#rl/trainer:1.0", "registry.example/rl/trainer:1.0"),
        ("docker://registry.example/rl/trainer", "registry.example/rl/trainer:latest"),
        (f"registry.example#rl/trainer@{ONE}", f"registry.example/rl/trainer@{ONE}"),
        (f"registry.example#rl/trainer:1.0@{ONE}", f"registry.example/rl/trainer@{ONE}"),
        ("rl/trainer:1.0", "mirror.example/rl/trainer:1.0"),
        ("registry.example#rl/trainer@sha256:12", None),
        ("oras://registry.example/rl:1.0", None),
        ("/images/rl.sqsh", None),
    ],
)
def test_references_have_one_form(image: str, reference: str | None) -> None:
    tag = parse_reference(image, "mirror.example")
    assert (tag and tag.reference) == reference


def test_name_without_a_host_is_of_docker_hub() -> None:
    tag = parse_reference("python:3.11", "")
    assert tag is not None and tag.reference == "docker.io/python:3.11"


@pytest.mark.parametrize("way", images_kit.WAYS)
def test_image_is_imported_once_and_named_by_its_digest(
    registry: Registry, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = images_kit.use(way, tmp_path, monkeypatch)
    os.umask(0o077)
    try:
        digest = registry.push("rl/trainer", "1.0", b"the first")
        item = item_of(registry, tmp_path / "images", "rl/trainer:1.0", runtime)
        brought, said = bring(item)
    finally:
        os.umask(0o022)
    file = Path(brought.image.file)
    suffix = ".sif" if runtime == "apptainer" else ".sqsh"
    assert file.name == f"rl+trainer+{digest.replace(':', '-')}{suffix}"
    assert (brought.imported, brought.image.digest, brought.before) == (True, digest, "")
    assert brought.image.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert is_whole(file) and brought.image.bytes == file.stat().st_size
    assert said[0].startswith(f"importing `{item.reference}` at {digest} by ")
    assert item.images() == [brought.image]
    again, said = bring(item)
    assert (again.imported, again.image, said) == (False, brought.image, [])
    shown = {path.name for path in file.parent.iterdir() if not path.name.endswith(".lock")}
    assert shown == {file.name, f"{registry.host.replace(':', '+')}+rl+trainer+1.0.1.json"}


@pytest.mark.parametrize("way", images_kit.WAYS)
def test_image_of_several_architectures_is_named_by_the_digest_of_all(
    registry: Registry, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `submit` asks for it: else each submission would say that the tag has moved."""
    runtime = images_kit.use(way, tmp_path, monkeypatch)
    index, ours = registry.push_index("rl/both", "1.0", b"of two architectures")
    item = item_of(registry, tmp_path / "images", "rl/both:1.0", runtime)
    image = bring(item)[0].image
    assert (image.digest, image.digest != ours) == (index, True)
    assert is_whole(Path(image.file)) and moved_tag(image) == []


def test_image_of_a_user_with_a_strict_umask_can_be_read_by_all(
    registry: Registry, tmp_path: Path, pyxis: None
) -> None:
    registry.push("rl/modes", "1.0", b"modes")
    folder = tmp_path / "images"
    folder.mkdir()
    before = os.umask(0o077)
    try:
        brought, _ = bring(item_of(registry, folder, "rl/modes:1.0"))
    finally:
        os.umask(before)
    modes = {
        stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.suffix in (".sqsh", ".json")
    }
    assert modes == {0o644} and Path(brought.image.file).exists()


@pytest.mark.parametrize("way", images_kit.WAYS)
def test_tag_that_moved_is_told_and_both_images_are_kept(
    registry: Registry, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = images_kit.use(way, tmp_path, monkeypatch)
    item = item_of(registry, tmp_path / "images", "rl/moves:nightly", runtime)
    digests, files = [], []
    for content in (b"monday", b"tuesday", b"monday"):
        digests.append(registry.push("rl/moves", "nightly", content))
        brought, said = bring(item)
        files.append(brought.image.file)
        assert brought.before == (digests[-2] if len(digests) > 1 else "")
        assert item.images()[0] == brought.image, "the newest import counts"
        assert bool(said) == (len(digests) < 3), "the first image is still there"
    assert files[0] == files[2] != files[1]
    assert all(Path(file).exists() for file in files)
    assert [record.digest for record in image_cache.records(item.folder, item.reference)] == digests


@pytest.mark.parametrize("way", images_kit.WAYS)
def test_unknown_tag_is_told(
    registry: Registry, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = images_kit.use(way, tmp_path, monkeypatch)
    rule, text = refused(item_of(registry, tmp_path / "images", "rl/trainer:2.0", runtime))
    assert rule == "stage.image-unknown"
    assert "has no tag `2.0` of `rl/trainer`" in text and "check the name and the tag" in text
    rule, text = refused(item_of(registry, tmp_path / "images", f"rl/trainer@{ONE}", runtime))
    assert rule == "stage.image-unknown"
    assert [path for path in (tmp_path / "images").iterdir() if path.suffix != ".lock"] == []


def test_private_image_needs_the_login_of_enroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images_kit.use("enroot", tmp_path, monkeypatch)
    registry = Registry(tmp_path / "registry", ("alice", "s3cret"))
    try:
        digest = registry.push("rl/private", "1.0", b"private")
        item = item_of(registry, tmp_path / "images", "rl/private:1.0")
        rule, text = refused(item)
        assert rule == "stage.image-login"
        fix = "add `machine 127.0.0.1 login USER password TOKEN` to ~/.config/enroot/.credentials"
        assert fix in text and f"`{registry.host}` wants a login for `rl/private`" in text
        credentials = Path(os.environ["ENROOT_CONFIG_PATH"], ".credentials")
        credentials.write_text(f"machine {registry.host.partition(':')[0]} login alice password s3cret\n")
        brought, _ = bring(item)
        assert (brought.image.digest, brought.imported) == (digest, True)
        assert not any(b"s3cret" in path.read_bytes() for path in (tmp_path / "images").iterdir())
    finally:
        registry.stop()


def test_private_tag_for_apptainer_is_named_by_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images_kit.use("stand-in apptainer", tmp_path, monkeypatch)
    registry = Registry(tmp_path / "registry", ("alice", "s3cret"))
    try:
        registry.push("rl/private", "1.0", b"private")
        rule, text = refused(item_of(registry, tmp_path / "images", "rl/private:1.0", "apptainer"))
        assert rule == "stage.image-login" and "name its digest in the spec, `rl/private@sha256:…`" in text
        rule, text = refused(item_of(registry, tmp_path / "images", f"rl/private@{ONE}", "apptainer"))
        assert rule == "stage.image-login"
        assert f"`apptainer registry login --username USER docker://{registry.host}`" in text
    finally:
        registry.stop()


def test_registry_that_is_away_is_told(tmp_path: Path, pyxis: None) -> None:
    registry = Registry(tmp_path / "registry")
    registry.stop()
    rule, text = refused(item_of(registry, tmp_path / "images", "rl/trainer:1.0"))
    assert rule == "stage.image-import"
    assert "`--job` imports on a node" in text and "refused" in text


def test_login_node_without_enroot_is_told(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = registry.push("rl/trainer", "no-program", b"no program")
    item = item_of(registry, tmp_path / "images", "rl/trainer:no-program")
    monkeypatch.setenv("PATH", str(tmp_path))
    rule, text = refused(item)
    assert rule == "stage.image-program"
    assert "`enroot` was not found on this machine" in text and "add `--job`" in text
    file = tmp_path / "images" / image_cache.file_name("rl/trainer", digest, ".sqsh")
    file.parent.mkdir()
    file.write_bytes(b"whole")
    image_cache.add(item.folder, image_cache.Record(item.reference, digest, file.name, "0" * 64, 5), 0o644)
    assert bring(item)[0].image.file == str(file), "what is there needs no program"


@NEEDS_ROOT
@pytest.mark.parametrize("way", images_kit.WAYS)
def test_full_disk_is_told_and_leaves_nothing(
    registry: Registry, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = images_kit.use(way, tmp_path, monkeypatch)
    registry.push("rl/large", "1.0", os.urandom(2 * 1024**2))
    folder = tmp_path / "images"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if subprocess.run(mount, check=False).returncode:
        skip_or_fail("needs the right to mount a tmpfs")
    try:
        item = item_of(registry, folder, "rl/large:1.0", runtime)
        rule, text = refused(item)
        assert rule == "stage.image-space"
        assert "No space left on device" in text and "free space there (`df -h`)" in text
        assert f"`{folder}` has 0.0 GiB free" in text
        assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == []
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


@pytest.mark.parametrize(
    "said", ["No space left on device", "no space left on device", "disk quota exceeded"]
)
def test_full_disk_in_the_words_of_c_and_of_go(said: str, tmp_path: Path) -> None:
    text = f"FATAL:   While making image from oci registry: write /tmp/x: {said}"
    (finding,) = image_import.complaint("registry.example/x:1", "apptainer", text, str(tmp_path)).findings
    assert finding.rule == "stage.image-space" and said in finding.why


@NEEDS_ROOT
def test_user_without_a_name_is_recorded_by_number(
    registry: Registry, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    folder = open_folder / "images"
    folder.mkdir()
    folder.chmod(0o777)
    registry.push("rl/nameless", "1.0", b"nameless")
    item = item_of(registry, folder, "rl/nameless:1.0")
    assert in_child(lambda: bring(item)[0].imported, lambda: os.setuid(54321))
    assert [record.by for record in image_cache.records(item.folder, item.reference)] == ["uid 54321"]


@NEEDS_ROOT
def test_cache_that_others_cannot_write_is_told(registry: Registry, open_folder: Path) -> None:
    digest = registry.push("rl/trainer", "rights", b"rights")
    folder = open_folder / "images"
    folder.mkdir(mode=0o755)
    item = item_of(registry, folder, f"rl/trainer@{digest}")
    rule, text = in_child(lambda: refused(item), as_nobody)
    assert rule == "stage.image-folder"
    assert f"`{folder}` is root's, mode 0755" in text and "chmod g+rwxs" in text
    folder.chmod(0o775)
    brought, _ = bring(item)
    assert [finding.rule for finding in brought.findings] == ["stage.image-group"]
    assert f"chmod g+s {folder}" in brought.findings[0].fix
    folder.chmod(0o755)
    assert in_child(lambda: bring(item)[0].imported, as_nobody) is False, "it is there, and may be read"


@NEEDS_ROOT
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_second_user_finds_the_image_of_the_first(registry: Registry, open_folder: Path, mode: int) -> None:
    """A sticky folder too, where the kernel refuses O_CREAT on another user's lock."""
    registry.push("rl/shared", "1.0", b"of the first user")
    folder = open_folder / "images"
    folder.mkdir()
    folder.chmod(mode)
    item = item_of(registry, folder, "rl/shared:1.0")
    first, _ = bring(item)
    registry.push("rl/shared", "1.0", b"moved meanwhile")

    def second() -> list[object]:
        brought, said = bring(item)
        return [brought.imported, brought.before, len(said)]

    assert in_child(second, as_nobody) == [True, first.image.digest, 1]
    assert len(item.images()) == 2
    again, said = bring(item)
    assert (again.imported, said) == (False, []), "and the first finds that of the second"


def test_half_an_image_is_imported_anew(registry: Registry, tmp_path: Path, pyxis: None) -> None:
    digest = registry.push("rl/half", "1.0", b"half")
    item = item_of(registry, tmp_path / "images", "rl/half:1.0")
    folder = tmp_path / "images"
    folder.mkdir()
    target = folder / image_cache.file_name("rl/half", digest, ".sqsh")
    target.write_bytes(b"hsqs" + b"\0" * 36 + (9000).to_bytes(8, "little"))
    dead = folder / f".{digest.replace(':', '-')}.0123456789abcdef.tmp"
    dead.write_bytes(b"of a process that was killed")
    brought, _ = bring(item)
    assert [finding.rule for finding in brought.findings] == ["stage.image-broken"]
    assert is_whole(target) and target.stat().st_size < 9000
    assert not dead.exists()


def test_whole_file_without_a_record_gets_one(registry: Registry, tmp_path: Path, pyxis: None) -> None:
    """As after a death between the rename and the record."""
    registry.push("rl/unrecorded", "1.0", b"whole")
    item = item_of(registry, tmp_path / "images", "rl/unrecorded:1.0")
    image = bring(item)[0].image
    for record in Path(item.folder).glob("*.json"):
        record.unlink()
    assert item.images() == []
    brought, said = bring(item)
    assert (brought.imported, said, item.images()) == (False, [], [image])


def test_image_that_was_removed_or_cut_off_is_not_there(
    registry: Registry, tmp_path: Path, pyxis: None
) -> None:
    registry.push("rl/removed", "1.0", b"removed")
    item = item_of(registry, tmp_path / "images", "rl/removed:1.0")
    image = bring(item)[0].image
    with Path(image.file).open("r+b") as file:
        file.truncate(100)
    assert item.images() == []
    assert bring(item)[0].imported
    Path(image.file).unlink()
    assert item.images() == []
    assert bring(item)[0].imported and len(item.images()) == 3, "three records, one file"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"reference": "x"}', '{"reference": 1, "digest": "", "file": "", "sha256": ""}']
)
def test_what_is_no_record_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "registry.example+rl+1.0.1.json").write_text(text)
    assert image_cache.records(str(tmp_path), "registry.example/rl:1.0") == []


def test_record_leads_to_no_file_outside_its_folder(tmp_path: Path) -> None:
    record = image_cache.Record("registry.example/rl:1.0", ONE, "../secret.sqsh", "0" * 64, 1)
    image_cache.add(str(tmp_path), record, 0o644)
    assert image_cache.records(str(tmp_path), record.reference) == []


STAGE = """\
import sys
from jobspec.finding import JobspecError
from jobspec.planning.image_stage import bring_image, image_item
from jobspec.spec.site import SiteContainer
item = image_item(sys.argv[1], SiteContainer(runtime="pyxis", image_cache=sys.argv[2]))
try:
    made = bring_image(item, float(sys.argv[3]), lambda text: print(text, flush=True))
    print("imported", made.imported, flush=True)
except JobspecError as problem:
    print(problem.findings[0].text(), flush=True)
"""


def start(python: str, item: ImageItem, timeout_s: float, pause_s: float) -> subprocess.Popen[str]:
    words = [python, "-c", STAGE, f"docker://{item.reference}", item.folder, str(timeout_s)]
    env = {**os.environ, "STAND_IN_PAUSE_S": str(pause_s)}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_two_users_at_once_import_once(registry: Registry, tmp_path: Path, pyxis: None, python: str) -> None:
    registry.push("rl/race", "1.0", b"race")
    item = item_of(registry, tmp_path / "images", "rl/race:1.0")
    first = start(python, item, 60, pause_s=5)
    assert line(first).startswith("importing ")
    second = start(python, item, 60, pause_s=0)
    assert f"waiting for process {first.pid} of " in line(second)
    assert second.communicate()[0] == "imported False\n"
    assert first.communicate()[0] == "imported True\n"
    assert len(image_cache.records(item.folder, item.reference)) == 1


def test_wait_for_another_ends_at_the_deadline_and_names_it(
    registry: Registry, tmp_path: Path, pyxis: None, python: str
) -> None:
    registry.push("rl/slow", "1.0", b"slow")
    item = item_of(registry, tmp_path / "images", "rl/slow:1.0")
    first = start(python, item, 600, pause_s=600)
    try:
        assert line(first).startswith("importing ")
        rule, text = refused(item, timeout_s=1)
        assert rule == "stage.locked"
        assert f"is still held by process {first.pid} of " in text
    finally:
        first.terminate()
        first.communicate()


def test_import_that_takes_too_long_is_ended(
    registry: Registry, tmp_path: Path, pyxis: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.push("rl/slow", "2.0", b"slow")
    monkeypatch.setenv("STAND_IN_PAUSE_S", "600")
    rule, _ = refused(item_of(registry, tmp_path / "images", "rl/slow:2.0"), timeout_s=1)
    assert rule == "stage.timeout"
    assert [path.name for path in (tmp_path / "images").iterdir() if path.suffix != ".lock"] == []


def test_children_of_a_program_are_ended_with_it_though_they_would_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_import, "END_S", 0.5)
    stays = f"trap '' TERM; echo $BASHPID > {tmp_path}/pid; while :; do sleep 0.1; done"
    words = ["bash", "-c", f"trap 'exit 1' TERM; ({stays}) & while :; do sleep 0.1; done"]
    with pytest.raises(JobspecError, match="was not done in time"):
        image_import.output(words, False, time.monotonic() + 2, lambda text: None)
    pid = int((tmp_path / "pid").read_text())
    assert procs.wait_gone([pid], 30) == set()


def test_killed_import_leaves_no_lock_and_no_half_image(
    registry: Registry, tmp_path: Path, pyxis: None, python: str
) -> None:
    registry.push("rl/killed", "1.0", b"killed")
    item = item_of(registry, tmp_path / "images", "rl/killed:1.0")
    first = start(python, item, 60, pause_s=3)
    assert line(first).startswith("importing ")
    while not list(Path(item.folder).glob(".*.tmp")):
        time.sleep(0.05)
    first.kill()
    first.communicate()
    brought, _ = bring(item)
    assert brought.imported and list(Path(item.folder).glob(".*.tmp")) == []


@pytest.fixture
def python() -> str:
    import sys

    return sys.executable
