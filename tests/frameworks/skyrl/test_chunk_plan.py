"""Separate engines: accepted where one generator makes the order of what is announced and of what is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.frameworks.skyrl.chunk_plan import has_one_plan
from jobspec.frameworks.skyrl.weight_sync import WORKER
from tests.frameworks.skyrl.test_adapter import OVER, errors, resolved
from tests.kits.fake_skyrl import make_fake_skyrl

HEAD = """\
FP32 = ("gate.e_score_correction_bias",)

class Extractor:
    def _ensure(self):
        self.buckets = []

"""
# As pull request 1816 has it at 290466b8.
TWO_PASSES = (
    HEAD
    + """\
    def get_weight_metadata(self, dtype):
        self._ensure()
        return [name for name, tensor in self.bridge.export_hf_weights(self.module)]

    def extract_weights(self, dtype):
        self._ensure()
        groups = {}
        for name, tensor in self.bridge.export_hf_weights(self.module):
            groups.setdefault(tensor.dtype, []).append(tensor)
        yield from groups.values()
"""
)
# As its review asks for.
ONE_PLAN = (
    HEAD
    + """\
    def _iter_chunk_plan(self, dtype, *, materialize):
        self._ensure()
        for name, tensor in self.bridge.export_hf_weights(self.module):
            yield name, tensor

    def get_weight_metadata(self, dtype):
        return [name for name, _ in self._iter_chunk_plan(dtype, materialize=False)]

    def extract_weights(self, dtype):
        for name, tensor in self._iter_chunk_plan(dtype, materialize=True):
            yield tensor
"""
)
HALF = ONE_PLAN.replace("self._iter_chunk_plan(dtype, materialize=False)", "self.bridge.export_hf_weights(0)")
NO_GENERATOR = ONE_PLAN.replace("            yield name, tensor", "            self.seen = name")


@pytest.mark.parametrize(
    ("source", "accepted"),
    [(TWO_PASSES, False), (ONE_PLAN, True), (HALF, False), (NO_GENERATOR, False), ("def broken(:", False)],
    ids=["two passes", "one plan", "half", "no generator", "broken"],
)
def test_one_generator_for_both_passes(tmp_path: Path, source: str, accepted: bool) -> None:
    checkout = make_fake_skyrl(tmp_path / "skyrl")
    (checkout / WORKER).write_text(source)
    assert has_one_plan(checkout / WORKER) == accepted
    if source in (ONE_PLAN, TWO_PASSES):
        found = errors(resolved(checkout, tmp_path, change={f"{OVER}/trainer.placement.colocate_all": False}))
        assert ("skyrl.sync-broadcast" not in found) == accepted


def test_a_file_that_is_not_there_is_no_plan(tmp_path: Path) -> None:
    assert not has_one_plan(tmp_path / "nothing.py")
