"""An engine's end in real logs: SkyRL with vLLM 0.26 on two GPUs (docs/gpu.md), lines left out between."""

import pytest

from jobspec.triage import first_cause, scan_lines

ENTRY = "\x1b[36m(skyrl_entrypoint pid=29230)\x1b[0m"
SERVER = "\x1b[36m(VLLMServerActor pid=29990)\x1b[0m"
ENDED = (
    f"{SERVER} WARNING 11-28 19:41:15 [core_client.py:702] [shutdown] MPClient: engine core exited"
    " unexpectedly; starting cleanup"
)
CLIENT = (
    "aiohttp.client_exceptions.ClientResponseError: 500, message='EngineCore encountered an issue. See stack"
    " trace (above) for the root cause.', url='http://192.0.2.2:8100/wake_up?tags=weights'"
)
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)."
PICKLE = "TypeError: can't pickle multidict._multidict.CIMultiDictProxy objects"

KILLED = f"""\
ray.exceptions.RayTaskError(ClientResponseError): ray::skyrl_entrypoint() (pid=29230, ip=192.0.2.2)
  File "/opt/SkyRL/skyrl/train/entrypoints/main_base.py", line 321, in run
    asyncio.run(trainer.train())
  File "/opt/SkyRL/skyrl/train/trainer.py", line 494, in train
    await self.dispatch.save_weights_for_sampler()
{CLIENT}
{ENTRY} 2026-11-28 19:41:16.072 | ERROR    | skyrl.train.utils.tracking:log_exception:117 - Training failed
{ENTRY} The original cause of the RayTaskError (aiohttp.…ClientResponseError) isn't serializable.
{ENTRY} Traceback (most recent call last):
{ENTRY}   File "/opt/ray/exceptions.py", line 186, in __init__
{ENTRY}     pickle.dumps(cause)
{ENTRY}   File "/opt/ray/cloudpickle/cloudpickle.py", line 1313, in dump
{ENTRY}     return super().dump(obj)
{ENTRY} {PICKLE}
{ENDED}
{SERVER} ERROR 11-28 19:41:15 [async_llm.py:704] {DEAD}
"""


def cause_of(text: str) -> str:
    found = first_cause(scan_lines(text.splitlines()))
    return found.signature if found else ""


def test_engine_that_was_killed() -> None:
    """Not the driver's complaint, nor Ray's about pickling it, though both stand first."""
    assert cause_of(KILLED) == "effect.engine-died"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("CUDA error: out of memory", "gpu.out-of-memory"),
        ("RuntimeError: NCCL error: unhandled cuda error", "network.nccl"),
    ],
)
def test_what_the_engine_died_of_comes_first(line: str, cause: str) -> None:
    own = f"{SERVER} (EngineCore pid=30541) {line}\n"
    assert cause_of(KILLED + own) == cause


def test_engine_that_ends_with_the_run() -> None:
    """Ray kills the actors of a program that is done; each engine calls that unexpected."""
    done = f"{ENTRY} 2026-11-28 19:41:14.083 | INFO     | skyrl.train.trainer:train:601 - Training done!\n"
    assert cause_of(f"{done}{ENDED}\n") == ""
    assert cause_of(f"{ENDED}\n") == "effect.engine-died"
