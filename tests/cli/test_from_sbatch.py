"""`jobspec init --from-sbatch`: batch scripts as people write them become a spec and a profile, unrun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.cli.from_sbatch.options import read_options
from tests.kits.project_kit import Done, Project

SECRET = "0123456789abcdef0123456789abcdef01234567"
APPTAINER = """\
#!/bin/bash -l
#SBATCH --job-name="my run"  # a comment
#SBATCH -N 2 --ntasks-per-node=1
#SBATCH --gres=gpu:h100:4,tmpfs:400G
#SBATCH -c 16 --mem=480GB -t 06:30:00 -p accel -A team
#SBATCH --exclude=n[1-2],n7
#SBATCH --output=logs/%j.log
##SBATCH --qos=express
code=/shared/code
mounts="--bind $code:/code --bind /shared/data:/data:ro"
export HF_HOME=/shared/hf NOTE="two words"
export NCCL_IB_HCA="=mlx5_0,mlx5_1"
touch ran-$(touch ran)
module load cuda
box="apptainer exec --nv $mounts /images/a.sif"
srun --nodes=1 -w "$first" $box ray start --head --port=6379 --block &
sleep 15
for ((n = 1; n < SLURM_NNODES; n++)); do
  srun -N1 $box ray start --address "$first:6379" --block &
done
srun --overlap -N1 $box python3 -m train data.files="['/a','/b c']" \\
  n=$((SLURM_NNODES * 4 / 2)) trainer.nnodes=1 2>&1 | tee out.txt
#SBATCH --reservation=late
"""
PYXIS = f"""\
#!/bin/bash
#SBATCH --job-name=arr --nodes=1 --gpus-per-node=8 --exclusive --array=0-1%1
#SBATCH --partition=a --partition=b --signal=B:USR1@600 --requeue --switches=1 --dependency=afterok:$JOB
SEEDS=(11 12)
LIST=("$HOME/.cache:/root/.cache" "$PWD:/here" "/models:/models:ro")
M=$(IFS=,; echo "${{LIST[*]}}")
function in_box() {{
  local where=$1
  shift
  srun -l --container-name=x --container-image="docker://team/img:1" \\
    --container-mounts="$M" --no-container-entrypoint "$@"
}}
read -r -d '' CMD <<EOC || true
cd /here && export WANDB_API_KEY={SECRET} && \\
python3 train.py --seed ${{SEEDS[$SLURM_ARRAY_TASK_ID]}} --name 'run $SLURM_JOB_ID' $1
EOC
in_box "$head" bash -c "$CMD" || echo failed
scontrol requeue "$SLURM_JOB_ID"
"""


def imported(
    project: Project, text: str, *options: str
) -> tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]], Done]:
    project.write("job.sbatch", text)
    done = project.cli("init", "--from-sbatch", "job.sbatch", "--json", *options)
    assert done.code == 0, done.text
    spec, site = (yaml.safe_load((project.root / name).read_text()) for name in done.json["files"])
    checked = project.cli("validate", done.json["files"][0], "--cluster-file", done.json["files"][1])
    assert checked.code == 0, checked.text
    return spec, site, [(note["kind"], note["text"]) for note in done.json["notes"]], done


def said(notes: list[tuple[str, str]], kind: str, words: str) -> bool:
    return any(of == kind and words in text for of, text in notes)


def test_directives_container_environment_and_command_have_their_places(project: Project) -> None:
    spec, site, _, _ = imported(project, APPTAINER)
    assert spec["name"] == "my-run"
    assert spec["resources"] == {
        "nodes": 2, "gpus_per_node": 4, "gpu_type": "h100",
        "cpus_per_node": 16, "memory": "480G", "time": "06:30:00",
    }  # fmt: skip
    assert spec["slurm"] == {"exclude": "n[1-2],n7"}
    assert site["slurm"] == {
        "gpus": "gres", "gpu_types": {"h100": {"gres": "h100"}}, "partition": "accel", "account": "team",
    }  # fmt: skip
    assert (spec["launch"], site["container"]) == ({"mode": "ray"}, {"runtime": "apptainer"})
    assert spec["container"] == {
        "image": "/images/a.sif",
        "mounts": [
            {"source": "/shared/code", "target": "/code"},
            {"source": "/shared/data", "target": "/data", "read_only": True},
        ],
        "env": {"NOTE": "two words"},
    }
    assert (site["env"], site["paths"]["hf_home"]) == ({"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}, "/shared/hf")
    assert site["hooks"] == {"setup": ["module load cuda"]}
    words = ["python3", "-m", "train", "data.files=['/a','/b c']", "n=4", "trainer.nnodes=1"]
    assert spec["train"] == {"command": words}


def test_nothing_of_the_script_is_run(project: Project) -> None:
    imported(project, APPTAINER)
    assert not list(project.root.glob("ran*"))


def test_what_has_no_place_is_listed_and_what_is_dangerous_told(project: Project) -> None:
    notes = imported(project, APPTAINER)[2]
    for kind, words in (
        ("listed", "`tmpfs:400G` of `--gres`"),
        ("listed", "`touch ran-$(touch ran)`"),
        ("replaced", "`ray start --head"),
        ("replaced", "`--output=logs/%j.log`"),
        ("danger", "needs the folder `logs`"),
        ("danger", "`sleep` instead of readiness"),
        ("danger", "a pipe without `pipefail`"),
        ("danger", "`trainer.nnodes=1` trains on 1"),
        ("danger", "on the first node alone"),
        ("told", "`##SBATCH --qos=express` is a comment"),
        ("told", "`#SBATCH --reservation=late` stands behind the first command"),
        ("told", "the name `my run` is written `my-run`"),
    ):
        assert said(notes, kind, words), (kind, words, notes)


def test_functions_heredocs_arrays_and_job_arrays_are_read(project: Project) -> None:
    spec, site, notes, _ = imported(project, PYXIS)
    assert spec["container"] == {
        "image": "team/img:1",
        "workdir": "/here",
        "mounts": [
            {"source": "${env:HOME}/.cache", "target": "/root/.cache"},
            {"source": "/models", "target": "/models", "read_only": True},
        ],
    }
    assert spec["train"] == {
        "command": ["set -u\npython3 train.py --seed \"$SEEDS\" --name 'run $SLURM_JOB_ID'"],
        "shell": True,
    } or spec["train"]["command"] == ['set -u\npython3 train.py --seed "$SEEDS" --name "run $SLURM_JOB_ID"']
    assert spec["sweep"] == {"list": [{"container.env.SEEDS": "11"}, {"container.env.SEEDS": "12"}]}
    assert spec["launch"]["requeue"] == {"grace": 600, "max_attempts": 3}
    assert site["slurm"] == {"gpus": "gpus-per-node", "partition": "b", "extra_sbatch": ["--switches=1"]}
    for kind, words in (
        ("told", "`--partition=a` is given again as `b`"),
        ("told", "mount `$PWD:/here`: only the job knows"),
        ("told", "`$1`: arguments of the script"),
        ("listed", "`--dependency=afterok:$JOB`"),
        ("danger", "`--container-name` survives a requeue"),
        ("danger", "`||` behind the driver"),
    ):
        assert said(notes, kind, words), (kind, words, notes)


def test_a_secret_is_named_and_never_written(project: Project) -> None:
    spec, _, notes, done = imported(project, PYXIS)
    assert spec["secrets"] == ["WANDB_API_KEY"]
    assert said(notes, "danger", "a secret stands in plain text, for `WANDB_API_KEY`")
    lines = PYXIS.splitlines()
    (told,) = [note for note in done.json["notes"] if "plain text" in note["text"]]
    assert SECRET in lines[told["line"] - 1]
    written = "".join(path.read_text() for path in project.root.glob("arr*.yaml"))
    assert SECRET not in done.text + written


def test_a_secret_as_an_argument_becomes_its_variable(project: Project) -> None:
    text = f"#!/bin/bash\n#SBATCH -J a -N 1 -t 60\npython3 train.py --use_wandb {SECRET}\n"
    spec = imported(project, text)[0]
    assert spec["train"] == {
        "command": ['set -u\npython3 train.py --use_wandb "$WANDB_API_KEY"'],
        "shell": True,
    }


def test_an_array_of_arguments_is_so_many_words(project: Project) -> None:
    text = (
        "#!/bin/bash\n#SBATCH -J a -N 2 -t 60\nARGS=(--lr 1e-6\n  --name 'two words')\nMODELS=(x y)\n"
        'if true; then\n  srun torchrun --nnodes=$SLURM_NNODES t.py "${ARGS[@]}" --model ${MODELS[1]}\nfi\n'
    )
    words = ["torchrun", "--nnodes=2", "t.py", "--lr", "1e-6", "--name", "two words", "--model", "y"]
    assert imported(project, text)[0]["train"] == {"command": words}


def test_files_are_never_overwritten_and_a_known_site_gets_none(project: Project) -> None:
    imported(project, APPTAINER)
    again = project.cli("init", "--from-sbatch", "job.sbatch")
    assert (again.code, "init.exists" in again.err) == (2, True)
    done = project.cli("init", "--from-sbatch", "job.sbatch", "--cluster", "slurm-generic", "--name", "mine")
    assert done.code == 0
    assert sorted(path.name for path in project.root.glob("mine*")) == ["mine.yaml"]


@pytest.mark.parametrize("text", ["#!/bin/bash\n#SBATCH -N 1\necho hello\n", "", "'"])
def test_a_script_without_a_command_is_refused(project: Project, text: str) -> None:
    project.write("job.sbatch", text)
    done = project.cli("init", "--from-sbatch", "job.sbatch")
    assert done.code == 2
    assert "no command that could be the run's" in done.err
    assert not Path(project.root / "imported.yaml").exists()


HEAD = "#!/bin/bash\n#SBATCH --nodes=1 --time=1:00:00\n"


def test_no_layer_of_a_script_hands_on_a_secret(project: Project) -> None:
    text = HEAD + (
        "#SBATCH --export=ALL,WANDB_API_KEY=hidden-1-export\n"
        "export DB_URL=https://me:hidden-2-password@host/db GH=github_pat_hidden3hidden3hidden3\n"
        'curl -H "Authorization: Bearer hidden-4-bearer" https://host\n'
        "wandb login hidden-5-login\n"
        "srun --export=ALL,HF_TOKEN=hidden-6-srun apptainer exec --env API_KEY=hidden-7-flag i.sif "
        "python train.py --api-key hidden-8-word +hub.hf_token=hidden-9-part tokenizer.pad_token=endoftext\n"
    )
    project.write("job.sbatch", text)
    done = project.cli("init", "--from-sbatch", "job.sbatch")
    written = "".join((project.root / name).read_text() for name in ("imported.yaml", "imported-site.yaml"))
    assert "hidden" not in done.text + written
    spec = yaml.safe_load(written.partition("version: 1")[2].partition("\nversion: 1")[0])
    assert spec["train"]["command"] == [
        'set -u\npython train.py --api-key "$API_KEY" "+hub.hf_token=$HF_TOKEN" tokenizer.pad_token=endoftext'
    ]
    assert {"API_KEY", "HF_TOKEN", "DB_URL"} <= set(spec["secrets"])
    assert "BEARER_TOKEN" not in spec["secrets"]  # the run has no use for it


@pytest.mark.parametrize("opening", ["$(", "${A:-", '"$(', "srun ", "env "])
def test_a_script_that_is_nested_without_end_is_refused(project: Project, opening: str) -> None:
    project.write("job.sbatch", HEAD + "python a.py " + opening * 5000 if "$" in opening else opening * 5000)
    done = project.cli("init", "--from-sbatch", "job.sbatch")
    assert (done.code, "nested too deeply" in done.text) == (2, True)


@pytest.mark.parametrize(
    "lines",
    ["A=xxxxxxxx\n" + "A=$A$A\n" * 60, "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60,
     "A=9\n" + "A=$((A*A))\n" * 60],
)  # fmt: skip
def test_a_value_that_grows_without_end_is_the_jobs_own(project: Project, lines: str) -> None:
    _, _, notes, _ = imported(project, HEAD + lines + 'python a.py x "${A[@]}" $A\n')
    assert said(notes, "told", "the batch script set it")


def test_dos_line_ends_and_odd_options_are_told(project: Project) -> None:
    project.write("a.py", "")
    script = HEAD + "#SBATCH --nice=low\n" + "python a.py \\\n  --steps 3\n"
    spec, _, notes, _ = imported(project, script.replace("\n", "\r\n"))
    assert spec["train"]["command"] == ["python", "a.py", "--steps", "3"]
    assert said(notes, "danger", "DOS line ends")
    assert said(notes, "listed", "`--nice=low`")


def test_neither_file_is_written_where_one_is_there(project: Project) -> None:
    project.write("job.sbatch", APPTAINER)
    project.write("my-run-site.yaml", "mine")
    done = project.cli("init", "--from-sbatch", "job.sbatch")
    assert (done.code, (project.root / "my-run.yaml").exists()) == (2, False)
    refused = project.cli("init", "other.yaml", "--from-sbatch", "job.sbatch")
    assert (refused.code, "`other.yaml` does not go with --from-sbatch" in refused.text) == (2, True)


@pytest.mark.parametrize("word", ["--wait", "-W", "--test-only"])
def test_an_option_without_a_value_takes_no_word_behind_it(word: str) -> None:
    options, rest = read_options([word, "job.sh", "x"])
    assert [str(option) for option in options] == ["--wait" if word == "-W" else word]
    assert rest == ["job.sh", "x"]
