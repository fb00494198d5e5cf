# %% [markdown]
# # Which learning rate?
# Three runs of `bandit.yaml` side by side, by the names that `docs/python.md` lists. VS Code, PyCharm and
# Jupyter (with jupytext) open this file as a notebook; `python examples/notebook.py` runs it as a script.
# There is nothing to install, and it takes seconds.

# %%
import time
from pathlib import Path

import jobspec

SPEC = next(path for path in (Path("bandit.yaml"), Path("examples/bandit.yaml")) if path.is_file())
RATES = (0.01, 0.1, 0.4)


def request(rate: float) -> jobspec.Request:
    return jobspec.Request(
        SPEC, cluster="local", runs="runs", sets=["name=bandit-api", f"container.env.LR='{rate}'"]
    )


# %% [markdown]
# Every mistake at once, before anything runs:

# %%
wrong = jobspec.Request(SPEC, cluster="local", sets=["metrics.requires=[]", "train.stesp=3"])
for finding in jobspec.check(wrong):
    print(finding.text(), "\n")

# %% [markdown]
# Submit all, then wait: with `cluster="..."` of a Slurm site these lines are the same.

# %%
runs = {rate: jobspec.submit(request(rate))[0] for rate in RATES}
while not all(jobspec.status(run).state.final for run in runs.values()):
    time.sleep(0.5)

# %% [markdown]
# A verdict is made from the run's files. Its figures have the first and the last value of a metric, and its
# limitations say what is not proved.

# %%
verdicts = {rate: jobspec.judge(run.root) for rate, run in runs.items()}
for rate, verdict in verdicts.items():
    figures = {figure.metric: figure for figure in verdict.figures}
    reward = figures["reward"]
    print(f"LR {rate}: {verdict.result}, reward {reward.first:.2f} -> {reward.last:.2f}; {verdict.reason}")
print("not proved:", *verdicts[0.4].limitations, sep="\n  ")

# %% [markdown]
# The report in any form; the job has left its files beside the run. In a notebook,
# `IPython.display.HTML(filename=page)` shows the page with its curves.

# %%
best = next(rate for rate, verdict in verdicts.items() if verdict.result == "Pass")
page = runs[best].root / "report.html"
print(jobspec.report_text(runs[best].root, "summary"))
print("open", page)
