"""`sitecustomize` of every Python process of a run: it lets the node's agent ask for the stacks by a signal.

Travels as `sitecustomize.py` in `runtime.pyz`, on the programs' PYTHONPATH; then it runs the `sitecustomize`
that it hides. faulthandler writes into memory (memfd), so nothing is left on a disk. Nothing here may break a
program: what fails is left out.
"""

import os
import sys

SIGNAL_ABOVE_MIN = 8  # SIGRTMIN + 8: Slurm, NCCL and the frameworks use others
NAME = "jobspec-stacks"
HIGH_FD = 200  # programs expect the low numbers for themselves
PR_SET_PTRACER = 0x59616D61  # prctl(2), Yama

_file = -1


def _arm() -> None:
    """Register the handler, in a forked child with a file of its own."""
    global _file
    import faulthandler
    import fcntl
    import signal

    old, made = _file, os.memfd_create(NAME)
    _file = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    os.close(made)
    faulthandler.register(signal.SIGRTMIN + SIGNAL_ABOVE_MIN, file=_file, all_threads=True, chain=False)
    if old >= 0:
        os.close(old)
    _allow()


def _allow() -> None:
    """Where Yama lets only ancestors look into a process, let the node's agent do so as well."""
    agent = os.environ.get("JOBSPEC_AGENT_PID", "")
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:  # noqa: PTH123 - at every start of a Python
            if file.read().strip() != "1" or not agent.isdecimal():
                return
    except OSError:
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PTRACER, int(agent), 0, 0, 0)


def _run_hidden() -> None:
    """Run the `sitecustomize` of the image, which this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p) != own])  # noqa: PTH100
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("JOBSPEC_SCRATCH"):
        try:
            _arm()
            os.register_at_fork(after_in_child=_arm)
        except Exception:  # noqa: BLE001 - an old kernel, no descriptor left: the run goes on without it
            pass
    _run_hidden()
