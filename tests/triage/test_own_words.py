"""An exception that no signature knows is told by its own words, its frame and its statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.triage import Match, first_cause, scan_files, scan_lines


def raised(file: str, function: str, statement: str, exception: str, head: str = "") -> list[str]:
    frame = f'  File "{file}", line 12, in {function}'
    lines = ["Traceback (most recent call last):", frame, f"    {statement}", exception]
    return [f"{head}{line}" for line in lines]


def cause_of(lines: list[str]) -> Match:
    cause = first_cause(scan_lines(lines))
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    ("file", "function", "statement", "exception", "kind", "verdict", "said"),
    [
        # Each was reported in public; names of folders are shortened.
        (
            "/x/trl/extras/vllm_client.py",
            "init_communicator",
            'raise Exception(f"Request failed: {response.status_code}, {response.text}")',
            'Exception: Request failed: 405, {"detail":"Method Not Allowed"}',
            "config",
            "Blocked",
            "not have the path",
        ),
        (
            "/x/client.py",
            "wake_up",
            "response.raise_for_status()",
            "aiohttp.client_exceptions.ClientResponseError: 404, message='Not Found',"
            " url='http://192.0.2.2:8100/wake_up'",
            "config",
            "Blocked",
            "not have the path",
        ),
        (
            "/x/client.py",
            "fetch",
            "response.raise_for_status()",
            "httpx.HTTPStatusError: Client error '404 Not Found' for url 'https://example.org/list'",
            "network",
            "Blocked",
            "over the network",
        ),
        (
            "/x/ppo/ray_trainer.py",
            "_validate",
            'assert len(lst) == len(sample_scores), f"{len(lst)=}, {len(sample_scores)=}"',
            "AssertionError: acc: len(lst)=30, len(sample_scores)=530",
            "exception",
            "Fail",
            "compute_score",
        ),
        (
            "/x/rollout.py",
            "merge",
            "assert len(prompts) == len(responses)",
            "AssertionError: len(prompts)=128 != len(responses)=1024",
            "exception",
            "Fail",
            "repeated on one side alone",
        ),
        (
            "/x/check_rm.py",
            "main",
            'assert acc >= args.min_accuracy, f"reward model accuracy {acc:.4f} < {args.min_accuracy}"',
            "AssertionError: reward model accuracy 0.6468 < 0.72",
            "learning",
            "Fail",
            "course of that metric",
        ),
        (
            "/x/openrlhf/cli/train_ppo_ray.py",
            "train",
            "assert actor_world_size % args.vllm_num_engines == 0",
            "AssertionError",
            "config",
            "Blocked",
            "how numbers divide",
        ),
        (
            "/x/slime/utils/http_utils.py",
            "init",
            "n = args.concurrency * args.rollout_num_gpus",
            "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'",
            "config",
            "Blocked",
            "mostly a setting",
        ),
        (
            "/x/verl/utils/dataset.py",
            "_build_messages",
            "prompt_str: str = example[self.prompt_key]",
            "KeyError: 'problem'",
            "data",
            "Blocked",
            "prompt_key",
        ),
        (
            "/x/train.py",
            "main",
            "show(train_dataset[0][INPUT_IDS_PROMPT_KEY], tokenizer)",
            "KeyError: 'input_ids_prompt'",
            "data",
            "Blocked",
            "a row of it does not find a key",
        ),
        (
            "/x/train.py",
            "main",
            'rows = raw_datasets["test"]',
            "KeyError: 'test'",
            "data",
            "Blocked",
            "split",
        ),
        (
            "/x/grpo_fast.py",
            "grpo_train",
            'truncated = repeated_batch["truncated"]',
            "KeyError: 'truncated'",
            "exception",
            "Fail",
            "an entry of a batch or of inputs",
        ),
        (
            "/x/src/grpo.py",
            "__init__",
            "self.num_iterations = args.num_iterations",
            "AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'",
            "image",
            "Blocked",
            "version",
        ),
        (
            "/x/torch_ops.py",
            "forward",
            "return a + b",
            "RuntimeError: The size of tensor a (768) must match the size of tensor b (3072)",
            "exception",
            "Fail",
            "shapes of one operation",
        ),
        (
            "/x/model.py",
            "forward",
            "y = F.linear(x, w)",
            "RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all",
            "exception",
            "Fail",
            "DTensor",
        ),
        (
            "/x/slime/megatron/core/optimizer_param_scheduler.py",
            "__init__",
            "assert self.lr_decay_steps > 0",
            "AssertionError",
            "config",
            "Blocked",
            "global batch",
        ),
        (
            "/x/llamafactory/data/parser.py",
            "get_dataset_list",
            'raise ValueError(f"Undefined dataset {name} in {DATA_CONFIG}.")',
            "ValueError: Undefined dataset mllm_demo in dataset_info.json.",
            "config",
            "Blocked",
            "dataset_dir",
        ),
        (
            "/x/llamafactory/data/parser.py",
            "get_dataset_list",
            'raise ValueError(f"Cannot open {config_path} due to {err}.")',
            "ValueError: Cannot open data/dataset_info.json due to [Errno 2] No such file or"
            " directory: 'data/dataset_info.json'.",
            "storage",
            "Blocked",
            "counts from the folder",
        ),
        (
            "/x/llamafactory/data/template.py",
            "get_template",
            'raise ValueError(f"Template {name} does not exist.")',
            "ValueError: Template qwen3_instruct does not exist.",
            "config",
            "Blocked",
            "none of those",
        ),
        (
            "/x/axolotl/prompters.py",
            "build_prompt",
            "assert role == conv.roles[j % 2]",
            "AssertionError",
            "data",
            "Blocked",
            "alternate",
        ),
        (
            "/x/train_ppo_ray.py",
            "train",
            "assert (",
            "AssertionError: num_nodes and num_gpus_per_node must be the same when colocate actor"
            " and ref model.",
            "config",
            "Blocked",
            "how some of these stand",
        ),
        (
            "/x/site-packages/transformers/tokenization_utils_fast.py",
            "_batch_encode_plus",
            "encodings = self._tokenizer.encode_batch(",
            "TypeError: TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence,"
            " InputSequence]]",
            "data",
            "Blocked",
            "no `str`",
        ),
        (
            "/x/site-packages/transformers/tokenization_utils_fast.py",
            "_decode",
            "text = self._tokenizer.decode(token_ids)",
            "OverflowError: out of range integral type conversion attempted",
            "exception",
            "Fail",
            "-100",
        ),
        (
            "/x/site-packages/transformers/trainer.py",
            "prediction_step",
            "raise ValueError(",
            "ValueError: The model did not return a loss from the inputs, only the following keys: logits.",
            "data",
            "Blocked",
            "mlm=False",
        ),
        (
            "/x/site-packages/transformers/models/llama/configuration_llama.py",
            "_rope_scaling_validation",
            "raise ValueError(",
            "ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {}",
            "image",
            "Blocked",
            "transformers_version",
        ),
        (
            "/x/grpo.py",
            "accuracy_reward",
            "for c, s in zip(completions, kwargs['solution']):",
            "KeyError: 'solution'",
            "data",
            "Blocked",
            "columns of the data",
        ),
        (
            "/x/reward.py",
            "get_custom_reward_fn",
            "raise AttributeError(",
            "AttributeError: Reward function 'compute' not found in '/w/math.py'.",
            "config",
            "Blocked",
            "top level",
        ),
        (
            "/x/site-packages/datasets/utils/py_utils.py",
            "iflatmap_unordered",
            "raise RuntimeError(",
            "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug"
            " the error, disable multiprocessing.",
            "exception",
            "Blocked",
            "host memory",
        ),
        (
            "/x/site-packages/transformers/trainer.py",
            "__init__",
            "raise ValueError(",
            "ValueError: You have set `args.eval_strategy` to steps but you didn't pass an"
            " `eval_dataset` to `Trainer`. Either set `args.eval_strategy` to `no`, or pass an"
            " `eval_dataset`.",
            "config",
            "Blocked",
            '"Either set `args.eval_strategy` to `no`',
        ),
        (
            "/x/site-packages/transformers/hf_argparser.py",
            "_add_dataclass_arguments",
            "type_hints = get_type_hints(dtype)",
            "NameError: name 'ParallelismConfig' is not defined. Did you mean: 'parallelism_config'?",
            "image",
            "Blocked",
            "too old",
        ),
        (
            "/x/retool.py",
            "reward_func",
            "text = sample.prompt + sample.response",
            'TypeError: can only concatenate list (not "str") to list',
            "exception",
            "Fail",
            "answers",
        ),
        (
            "/x/run.py",
            "main",
            "shutil.move(a, b)",
            "IsADirectoryError: [Errno 21] Is a directory: 'b'",
            "storage",
            "Blocked",
            "ls -ld",
        ),
        (
            "/x/client.py",
            "post",
            "r = self.http.post(url)",
            "TimeoutError: no answer in 60 s",
            "exception",
            "Fail",
            "what was waited for",
        ),
        (
            "/x/load.py",
            "load_config",
            "return json.load(f)",
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            "exception",
            "Fail",
            "LFS",
        ),
        (
            "/x/prepare.py",
            "main",
            "table = pq.read_table(path)",
            "pyarrow.lib.ArrowInvalid: Failed to parse string: 'n/a' as a scalar of type double",
            "data",
            "Blocked",
            "type in all files",
        ),
        (
            "/x/sandbox.py",
            "run",
            "tree = ast.parse(answer)",
            "SyntaxError: unterminated string literal (detected at line 3)",
            "exception",
            "Fail",
            "read as Python",
        ),
        (
            "/x/server.py",
            "serve",
            "loop.add_signal_handler(signal.SIGTERM, stop)",
            "ValueError: signal only works in main thread of the main interpreter",
            "exception",
            "Fail",
            "a handler of a signal",
        ),
        (
            "/x/sandbox.py",
            "run",
            "subprocess.run(cmd, timeout=5)",
            "subprocess.TimeoutExpired: Command 'x' timed out after 5 seconds",
            "exception",
            "Blocked",
            "a command that the program started",
        ),
        (
            "/x/clean.py",
            "stop",
            "child.wait(timeout=3)",
            "psutil.TimeoutExpired: timeout after 3 seconds (pid=41)",
            "exception",
            "Fail",
            "a wait ran out of time",
        ),
        (
            "/x/store.py",
            "fetch",
            "blob = bucket.get_blob(name)",
            "google.api_core.exceptions.NotFound: 404 no such bucket",
            "exception",
            "Fail",
            "an exception was raised: google",
        ),
    ],
)
def test_words_frame_and_statement_give_class_and_advice(
    file: str, function: str, statement: str, exception: str, kind: str, verdict: str, said: str
) -> None:
    cause = cause_of(raised(file, function, statement, exception, "[rank0]: "))
    assert (cause.line, cause.kind, cause.verdict) == (4, kind, verdict)
    assert said in f"{cause.title} {cause.fix}" and f"{file}:12 {function}" in cause.fix


def test_words_that_show_no_class_are_told_with_their_frame() -> None:
    cause = cause_of(raised("/x/grpo.py", "step", "self.check(x)", "LookupError: no answer of sample 7"))
    assert (cause.kind, cause.verdict) == ("exception", "Fail")
    assert cause.title.endswith("LookupError: no answer of sample 7, raised in or below grpo.py:12 step")


def test_statement_that_raises_is_told_as_where_it_was_raised() -> None:
    lines = raised("/x/grpo.py", "step", 'raise LookupError("no answer")', "LookupError: no answer")
    assert cause_of(lines).title.endswith("LookupError: no answer, raised in grpo.py:12 step")


def test_exception_that_a_pool_raises_again_is_told_with_its_first_place() -> None:
    first = raised("/x/prompts.py", "fields", 'row["text"]', "LookupError: no text")
    chain = ['"""', "", "The above exception was the direct cause of the following exception:", ""]
    again = raised(
        "/e/site-packages/multiprocess/pool.py", "get", "raise self._value", "LookupError: no text"
    )
    cause = cause_of(["multiprocess.pool.RemoteTraceback:", '"""', *first, *chain, *again])
    assert cause.title.endswith("LookupError: no text, raised in prompts.py:12 fields")


def test_frame_above_a_library_is_not_told_as_where_it_was_raised() -> None:
    lines = raised("/x/grpo.py", "step", "loss.backward()", "LookupError: no answer")
    lines = [*lines[:-1], '  File "/v/lib/python3.11/site-packages/torch/a.py", line 3, in run', lines[-1]]
    cause = cause_of(lines)
    assert cause.title.endswith("LookupError: no answer, raised below grpo.py:12 step")
    assert "look at /x/grpo.py:12 step (or what it calls):" in cause.fix


def test_statement_above_a_library_is_not_told_as_the_one_that_failed() -> None:
    lines = raised("/x/grpo.py", "step", "mean(scores)", "ZeroDivisionError: division by zero")
    lines = [*lines[:-1], '  File "/v/lib/python3.11/site-packages/torch/a.py", line 3, in run', lines[-1]]
    assert "the statement at /x/grpo.py:12 step (`mean(scores)`) or below shows" in cause_of(lines).fix


def test_traceback_of_a_notebook_is_read() -> None:
    cause = cause_of(
        [
            "LookupError                               Traceback (most recent call last)",
            "Cell In[14], line 2",
            "      1 model = load()",
            "----> 2 trainer.train()",
            "",
            "File ~/work/rewards.py:31, in Grader.score(self, answers)",
            "     30 for answer in answers:",
            "---> 31     self.check(answer)",
            "     32 return 1",
            "",
            "LookupError: no answer",
        ]
    )
    assert cause.title.endswith("LookupError: no answer, raised in rewards.py:31 Grader.score")


def test_silent_assert_is_told_by_its_statement() -> None:
    statement = "assert config.no_sync_func is None"
    lines = ["step 1 starts", *raised("/x/slime/model.py", "train", statement, "AssertionError")]
    cause = cause_of(lines)
    assert (cause.line, cause.text) == (5, f"AssertionError (`{statement}`)")
    assert f"`{statement}`" in cause.title and "model.py:12 train" in cause.title
    assert cause.facts == ("the frame /x/slime/model.py:12 train is line 3 of the log",)


def test_statement_that_rich_marks_is_found() -> None:
    lines = [
        "╭──────────────── Traceback (most recent call last) ─────────────────╮",
        "│ /x/train.py:71 in train                                            │",
        "│                                                                    │",
        "│   70 │                                                             │",
        "│ ❱ 71 │   │   assert len(self.parts) > 0                            │",
        "│   72 │                                                             │",
        "╰────────────────────────────────────────────────────────────────────╯",
        "AssertionError",
    ]
    assert cause_of(lines).text == "AssertionError (`assert len(self.parts) > 0`)"


def test_advice_that_speaks_of_a_statement_tells_it() -> None:
    code = "start_epoch = consumed_samples // args.train_batch_size // num_update_steps_per_epoch"
    lines = raised("/x/sft_trainer.py", "fit", code, "ZeroDivisionError: integer division or modulo by zero")
    assert f"/x/sft_trainer.py:12 fit (`{code}`)" in cause_of(lines).fix


@pytest.mark.parametrize(
    "head",
    [
        "2026-03-04T09:12:04.123456789Z ",  # kubectl and docker with --timestamps
        "2026-03-04T09:12:04.123456789Z stderr F ",  # containerd's files
        "[pod/trainer-0/main] ",
        "trainer-1  | ",
        "Mar 04 09:12:04 node7 python3[4123]: ",
    ],
)
def test_traceback_behind_heads_of_services_is_read(head: str) -> None:
    cause = cause_of(raised("/x/grpo.py", "step", "self.check(x)", "LookupError: no answer", head))
    assert cause.title.endswith("LookupError: no answer, raised in or below grpo.py:12 step")


def test_logs_of_two_jobs_are_only_inferred_to_be_tries_of_one_run(tmp_path: Path) -> None:
    ended = "slurmstepd: error: *** JOB 41 ON a CANCELLED AT 2026-03-04T09:53:00 DUE TO PREEMPTION ***"
    (tmp_path / "slurm-41.out").write_text(f"2026-03-04 09:12:00 INFO start\n{ended}\n")
    (tmp_path / "slurm-42.out").write_text("2026-03-04 11:00:00 INFO start\nLookupError: no answer\n")
    cause = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert cause is not None and cause.facts[0] == "inferred: this is attempt 2 in these logs"


def test_message_below_the_bare_name_says_more_than_the_frames() -> None:
    lines = raised("/x/megatron/bridge/models/a.py", "provide", "self.build()", "AssertionError:")
    cause = cause_of([*lines, "Torch not compiled with CUDA enabled"])
    assert (cause.signature, cause.line) == ("gpu.cpu-torch", 5)


def test_failure_between_two_good_ends_is_none() -> None:
    lines = [
        "step:1 - actor/pg_loss:0.1 - training/global_step:1",
        "Final validation metrics: {'val-core/x': 0.6}",
        "node_manager.cc:3065: 3 Workers (tasks / actors) killed due to memory pressure (OOM)",
        "2026-03-04 09:56:00,001 SUCC cli.py:64 -- Job 'raysubmit_1' succeeded",
    ]
    assert first_cause(scan_lines(lines)) is None
    assert first_cause(scan_lines(lines[:-1])) is not None


def test_the_good_end_of_one_job_is_not_that_of_the_next() -> None:
    """Two jobs of Ray after another in one log; no line of the first trainer says that it had ended."""
    first = [
        "Job 'raysubmit_1' submitted successfully",
        "step:1 - actor/pg_loss:0.1 - training/global_step:1",
        "Job 'raysubmit_1' succeeded",
    ]
    second = [
        "Job 'raysubmit_2' submitted successfully",
        "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.",
        "Job 'raysubmit_2' failed",
    ]
    cause = cause_of([*first, *second])
    assert (cause.signature, cause.line) == ("ray.runtime-env", 5)
    assert first_cause(scan_lines(first)) is None


@pytest.mark.parametrize(
    ("file", "function", "statement", "exception", "never"),
    [
        # The same words or class of exception in another situation than the rule was first written for.
        (
            "/x/PIL/PngImagePlugin.py",
            "read",
            "raise SyntaxError(msg)",
            "SyntaxError: broken PNG file",
            "Python",
        ),
        (
            "/x/loop.py",
            "show",
            'f"{r:.3f}"',
            "ValueError: Unknown format code 'f' for object of type 'str'",
            "none of",
        ),
        (
            "/x/loop.py",
            "step",
            "raise ValueError(",
            "ValueError: Invalid loss value nan at step 12",
            "none of",
        ),
        ("/x/loop.py", "step", "raise ValueError(", "ValueError: Invalid reward: None", "none of"),
        (
            "/x/agent.py",
            "call",
            "raise ValueError(",
            "ValueError: Function 'search' not found in tools",
            "file of",
        ),
        (
            "/x/parse.py",
            "last",
            "raise ValueError(",
            "ValueError: Could not find it in <think>a</think>",
            "path",
        ),
        (
            "/x/fetch.py",
            "get",
            "raise ValueError(",
            "ValueError: File size mismatch: expected 9, got 7",
            "shapes of",
        ),
        (
            "/x/state.py",
            "load",
            "raise ValueError(",
            "RuntimeError: world size mismatch: 16 and 8",
            "shapes of",
        ),
        (
            "/x/loop.py",
            "pair",
            "raise ValueError(",
            "ValueError: The two counts should be the same",
            "data type",
        ),
        (
            "/x/kl.py",
            "__init__",
            "raise ValueError(",
            "ValueError: KL loss coefficient must be >= 0",
            "result",
        ),
        ("/x/pick.py", "best", 'max(rows, key=lambda x: x["score"])', "KeyError: 'score'", "columns"),
        (
            "/x/state.py",
            "upgrade_state",
            "raise ValueError(",
            "ValueError: version 3 is not known",
            "answers",
        ),
        ("/x/nas.py", "save", "os.makedirs(p)", "OSError: [Errno 112] Host is down: '/mnt/nas/a'", "network"),
        ("/x/pool.py", "next", "self.q.get_nowait()", "_queue.Empty", "wait ran out"),
        (
            "/x/loop.py",
            "merge",
            "assert len(answers) == self.config.n",
            "AssertionError",
            "refuses its settings",
        ),
        (
            "/x/quant.py",
            "pack",
            "raise ValueError(",
            "ValueError: The data type is torch.float8",
            "a file of",
        ),
        (
            "/x/tool.py",
            "run",
            "subprocess.run(cmd)",
            "OSError: [Errno 7] Argument list too long: 'sh'",
            "or device",
        ),
        (
            "/x/pool.py",
            "wait",
            "raise E(",
            "RuntimeError: no answer. Set MY_LOG_LEVEL=DEBUG to see more.",
            "its own",
        ),
        (
            "/x/attn.py",
            "run",
            "raise E(",
            "ValueError: mask of shape (2, 1) is incompatible with (2, 7)",
            "setting",
        ),
    ],
)
def test_rule_is_silent_where_it_would_be_false(
    file: str, function: str, statement: str, exception: str, never: str
) -> None:
    cause = cause_of(raised(file, function, statement, exception))
    said = f"{cause.title.partition(': ')[0]} {cause.fix}"
    assert never not in said.replace(file, "")


def test_refusal_of_a_server_is_no_failed_connection() -> None:
    cause = cause_of(
        raised("/x/judge.py", "ask", "r.raise_for_status()", "openai.BadRequestError: Error code: 400 - {}")
    )
    assert "answered by a refusal" in cause.title


def test_launcher_that_sees_no_gpu_is_not_called_wrongly() -> None:
    file = "/x/torch/distributed/run.py"
    cause = cause_of(
        raised(file, "determine_local_world_size", "raise E", "ValueError: Cuda is not available.")
    )
    assert cause.kind == "gpu"


@pytest.mark.parametrize(
    ("file", "function", "statement", "exception", "said"),
    [
        ("/x/config.py", "from_name", "conf = name_to_config[name].copy()", "KeyError: 'TinyLlama'", "table"),
        ("/x/convert.py", "main", 'weights = lit_weights["model"]', "KeyError: 'model'", "print its keys"),
        (
            "/x/deepspeed/runtime/zero/partitioned_param_coordinator.py",
            "record_parameters",
            "step_id = fetched[module.id].popleft()",
            "IndexError: pop from an empty deque",
            "outside of the hooks",
        ),
        (
            "/x/lm_eval/models/huggingface.py",
            "__init__",
            "assert isinstance(pretrained, str)",
            "AssertionError",
            "another type",
        ),
        (
            "/x/train/parser.py",
            "get_train_args",
            "raise ValueError(",
            "ValueError: `predict_with_generate` cannot be set as True while training.",
            "refuses a setting",
        ),
        (
            "/x/transformers/trainer.py",
            "get_eval_dataloader",
            "raise ValueError(",
            "ValueError: Trainer: evaluation requires an eval_dataset.",
            "no data for it",
        ),
        ("/x/env/vec.py", "step", "self.pipe.recv()", "EOFError", "an exception was raised"),
        (
            "/usr/lib/python3.11/multiprocessing/connection.py",
            "_recv",
            "raise EOFError",
            "EOFError",
            "other end of a pipe",
        ),
    ],
)
def test_words_and_statement_name_what_is_not_there(
    file: str, function: str, statement: str, exception: str, said: str
) -> None:
    cause = cause_of(raised(file, function, statement, exception))
    assert said in f"{cause.title} {cause.fix}"
