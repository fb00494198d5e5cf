"""The environment variables that commands read: their meaning, and a check for mistyped names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobspec.finding import Finding, warning

# As `docs/cli.md` has them. Those of a job, which jobspec sets itself, are in docs/runtime.md.
VARIABLES: Mapping[str, str] = {
    "JOBSPEC_CLUSTER": "site profile where `--cluster` is not given; wins over the spec's `cluster`",
    "JOBSPEC_CLUSTERS": "folders and files of site profiles, separated by `:`; an empty one is reported",
    "JOBSPEC_RUNS": "the folder of new runs, instead of the profile's; RUN is looked up there",
    "NO_COLOR": "switches colour and the live screen off; `TERM=dumb` does the same",
    "HF_HOME": "the Hugging Face cache where neither `hf_cache.home` nor the profile names one",
    "HF_ENDPOINT": "the hub that commands ask and download from, instead of the Hugging Face Hub",
    "HOME": "`~`, and the base of the defaults of the two XDG variables",
    "XDG_CONFIG_HOME": "its `jobspec/clusters` holds the user's site profiles (default `~/.config`)",
    "XDG_STATE_HOME": "its `jobspec`: folders and index of runs, nodes to avoid (default `~/.local/state`)",
    "USER": "`${user}` of a site profile; else LOGNAME, or the password database",
    "SLURM_CONF": "passed on to sbatch; all other SLURM_ and SBATCH_ variables are dropped",
    "SCRATCH": "the folder of runs that `cluster detect` proposes",
    "ENROOT_CONFIG_PATH": "the folder where `triage` looks for Enroot's credentials of registries",
    "TMPDIR": "the folder for temporary files and for the traceback of a bug",
}
_OWN = tuple(name for name in VARIABLES if name.startswith("JOBSPEC_"))


def mistyped(env: Mapping[str, str]) -> Iterator[Finding]:
    """A warning for each variable with nearly the name of one of jobspec's own; none inside a job."""
    if "JOBSPEC_RUN_DIR" in env:  # a job has its own variables, some with similar names
        return
    for name in sorted(env):
        if name.startswith("JOBSPEC") and name not in _OWN:
            from difflib import get_close_matches

            close = get_close_matches(name, _OWN, n=1, cutoff=0.85)
            if close:
                what = f"jobspec reads no variable `{name}`"
                yield warning("usage.variable", what, fix=f"did you mean `{close[0]}`?", file=f"${name}")
