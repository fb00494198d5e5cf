"""The tables by which a frame, a coroutine or a C function tells what is waited for."""

from __future__ import annotations

import re
from typing import Pattern, Tuple

from jobspec.runtime.stalls import kinds, texts

# Debuggers, at whose prompt somebody is waited for; those of Ray wait for a connection first.
_PROMPTS = r"(?:pdb|cmd|code)\.py|IPython/\S+\.py|ray/util/(?:rpdb|debugpy)\.py|debugpy/\S+\.py"
FRAMES: Tuple[Tuple[str, Pattern[str], Pattern[str]], ...] = tuple(
    (kind, re.compile(rf"(?:^|/)(?:{file})$"), re.compile(rf"(?:{function})$"))
    for kind, file, function in (
        (kinds.RENDEZVOUS, r"torch/distributed/\S+\.py",
         r"init_process_group|_new_process_group_helper|next_rendezvous|_env_rendezvous_handler|_create_c10d_store"
         r"|_store_based_barrier|rendezvous"),
        # Those of checkpoints and of torchrun have such names for what is another one inside.
        (kinds.COLLECTIVE, r"torch/distributed/(?!checkpoint/|elastic/)\S+\.py", texts.COLLECTIVES),
        (kinds.COLLECTIVE, r"torch/nn/parallel/distributed\.py|torch/distributed/utils\.py",
         r"_sync_\w+|_verify_param_shape_across_processes|_\w+_broadcast_coalesced|_pre_forward"),
        (kinds.COLLECTIVE, r"\S*(?:pynccl|custom_all_reduce|device_communicators/\w+)\.py",
         texts.COLLECTIVES),
        (kinds.DEVICE, r"torch/cuda/(?:__init__|streams)\.py", r"synchronize|wait"),
        (kinds.PLACEMENT, r"ray/util/placement_group\.py", r"wait|ready|_call_placement_group_ready"),
        (kinds.RAY, r"ray/_private/worker\.py", r"get|get_objects|wait"),
        (kinds.LOADER, r"torch/utils/data/dataloader\.py",
         r"_try_get_data|_get_data|_next_data|_shutdown_workers"),
        (kinds.FILE_LOCK, r"torch/utils/file_baton\.py", r"wait"),
        (kinds.FILE_LOCK, r"filelock/\S+\.py", r"_?acquire|__enter__|_poll_until_acquired"),
        (kinds.PIPE, _PROMPTS, r"interaction|interact|_?cmdloop|listen|set_trace|wait_for_client"
         r"|_?do_wait_suspend"),
        (kinds.CHILD, r"subprocess\.py|multiprocessing/popen_\w+\.py",
         r"wait|_wait|_try_wait|communicate|poll|_communicate"),
        (kinds.IDLE, r"torch/distributed/rpc/api\.py", r"shutdown|_wait_all_workers"),
        (kinds.FUTURE, r"torch/distributed/rpc/api\.py|torch/futures/__init__\.py",
         r"rpc_sync|wait\w*|value"),
        (kinds.IDLE, r"socket\.py|socketserver\.py|grpc/_server\.py",
         r"accept|serve_forever|wait_for_termination"),
        (kinds.JOIN, r"multiprocessing/(?:pool|process)\.py", r"join"),
        (kinds.QUEUE, r"queue\.py|multiprocessing/(?:queues|pool)\.py", r"get|put|join|next|wait|poll"),
        (kinds.PIPE, r"multiprocessing/connection\.py",
         r"\w+_challenge|recv\w*|_recv\w*|_?send\w*|wait|poll"),
        (kinds.FUTURE, r"concurrent/futures/\w+\.py", r"result|exception|wait|as_completed"),
        (kinds.JOIN, r"threading\.py", r"join|_wait_for_tstate_lock|_shutdown"),
        (kinds.LOCK, r"threading\.py|multiprocessing/synchronize\.py", r"wait|acquire|__enter__|wait_for"),
        (kinds.LOCK, r"multiprocessing/synchronize\.py", r"set|clear|notify\w*"),
        (kinds.LOOP, r"asyncio/(?:base_events|runners)\.py|uvloop/\S+",
         r"run_forever|run_until_complete|_run_once|run"),
        (kinds.NETWORK, r"socket\.py|ssl\.py|http/client\.py",
         r"readinto|recv\w*|read\w*|accept|connect|create_connection|send\w*"),
        (kinds.NETWORK, r"zmq/\S+", r"recv\w*|send\w*|poll"),
        (kinds.NETWORK, r"urllib3/connectionpool\.py|httpcore/\S+", r"_get_conn|wait_for_connection"),
        (kinds.NETWORK, r"grpc/_channel\.py", r"_blocking|__call__|_next|result|wait"),
    )
)  # fmt: skip
# What a queue or a connection calls to wait; anything else that it calls makes an object of what has come.
WAITING = re.compile(
    r"multiprocessing/(?:queues|connection|synchronize|pool|managers|popen_\w+|process)\.py:(?!\w*[rR]ebuild)"
    r"|(?:^|/)(?:threading|queue|selectors|socket|contextlib|weakref|util)\.py:"
)
TASKS = tuple(
    (kind, re.compile(rf"(?:^|/)(?:{file})"), frozenset(functions))
    for kind, file, functions in (
        (kinds.SLEEP, r"asyncio/tasks\.py", ("sleep",)),
        (kinds.QUEUE, r"asyncio/queues\.py", ("get", "put", "join")),
        (kinds.CHILD, r"asyncio/subprocess\.py", ()),
        (
            kinds.NETWORK,
            r"asyncio/streams\.py|aiohttp/(?:client|web_ws)|httpcore/|httpx/|websockets/|grpc/aio/",
            (),
        ),
        (kinds.LOOP, r"asyncio/locks\.py", ()),
    )
)
CONNECT = ("open_connection", "open_unix_connection")
OF_PIPES = (kinds.CONNECTION, kinds.FULL, kinds.HANDSHAKE)
TASK_OPS = {
    kinds.QUEUE: {"join": kinds.UNDONE, "put": kinds.FULL, "get": kinds.INNER},
    kinds.LOOP: {
        "acquire": kinds.TURN,
        "__aenter__": kinds.TURN,
        "wait": kinds.SIGNAL,
        "wait_for": kinds.SIGNAL,
    },
    kinds.CHILD: {"communicate": kinds.OUTPUT},
}
RAY_CALL = re.compile(r"^ray::[^.\s(]+\.\w+")
# Where a client of HTTP waits until one of its own connections is free.
POOLS = re.compile(
    r"aiohttp/connector\.py:_wait_for_available_connection|urllib3/connectionpool\.py:_get_conn"
    r"|httpcore/\S+:wait_for_connection"
)
# What exactly is waited for, by the frame that says the kind.
FRAME_OPS: Tuple[Tuple[str, Pattern[str], str], ...] = (
    (kinds.LOCK, re.compile(r":wait(?:_for)?$"), kinds.SIGNAL),
    (kinds.LOCK, re.compile(r":(?:set|clear|notify\w*)$"), kinds.NOTIFIES),
    (kinds.LOCK, re.compile(r"queues?\.py:"), kinds.OF_QUEUE),
    (kinds.CHILD, re.compile(r"subprocess\.py:_?communicate$"), kinds.OUTPUT),
    (kinds.QUEUE, re.compile(r"ray/util/queue\.py:"), kinds.OF_RAY),
    (kinds.QUEUE, re.compile(r"multiprocessing/pool\.py:"), kinds.RESULTS),
    (kinds.PIPE, re.compile(r":\w+_challenge$"), kinds.HANDSHAKE),
    (kinds.PIPE, re.compile(r"multiprocessing/connection\.py:_?send"), kinds.FULL),
    (kinds.PIPE, re.compile(r"multiprocessing/connection\.py:wait$"), kinds.SELECT),
    (kinds.PIPE, re.compile(r"multiprocessing/connection\.py:"), kinds.CONNECTION),
    (kinds.QUEUE, re.compile(r":join$"), kinds.UNDONE),
    (kinds.QUEUE, re.compile(r":put$"), kinds.FULL),
    (kinds.QUEUE, re.compile(r"(?:^|/)queue\.py:"), kinds.INNER),
    (kinds.JOIN, re.compile(r"multiprocessing/pool\.py:"), kinds.RESULTS),
    (kinds.JOIN, re.compile(r"multiprocessing/process\.py:"), kinds.PROCESS),
    (kinds.FUTURE, re.compile(r"torch/(?:distributed/rpc/api|futures/__init__)\.py:"), kinds.RPC),
    (kinds.IDLE, re.compile(r":accept$"), kinds.ACCEPT),
    (kinds.IDLE, re.compile(r"distributed/rpc/api\.py:"), kinds.SHUTDOWN),
    (kinds.FILE_LOCK, re.compile(r"file_baton\.py:"), kinds.BATON),
    (kinds.PIPE, re.compile(""), kinds.DEBUGGER),
    (kinds.NETWORK, POOLS, kinds.POOLED),
    (kinds.NETWORK, re.compile(r"(?:^|/)zmq/"), kinds.SOCKET),  # often of Unix
)
# Frames of asyncio in which a coroutine waits for others.
GATHERS = re.compile(r"asyncio/(?:tasks\.py:(?:_wait|wait_for)|taskgroups\.py:\w+)$")
# autograd's engine in C++: it runs hooks of the program in threads of its own, and waits there for DDP's.
ENGINE = re.compile(r"torch/autograd/(?:graph\.py:_engine_run_backward|__init__\.py:(?:backward|grad))$")
NATIVE: Tuple[Tuple[Pattern[str], str], ...] = (
    (re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Send|Recv|GroupEnd)"), kinds.COLLECTIVE),
    (re.compile(r"ProcessGroup\w+::(allreduce|allgather|broadcast|barrier|alltoall|reduce_scatter|send|recv)"),
     kinds.COLLECTIVE),
    (re.compile(r"c10d::\S*Work\w*::(?:wait|synchronize)|gloo::\S*[wW]ait"), kinds.COLLECTIVE),
    (re.compile(r"cu(?:da)?(?:Stream|Device|Event|Ctx)Synchronize"), kinds.DEVICE),
    (re.compile(r"lock_PyThread_acquire_lock|PyThread_acquire_lock_timed"), kinds.LOCK),
)  # fmt: skip
FORKED = re.compile(r"multiprocessing/popen_fork\.py:[\w.]*_launch$")  # further out are the parent's frames
IDLE = re.compile(
    r"ray/_private/workers/default_worker\.py|multiprocessing/pool\.py:worker"
    r"|multiprocessing/managers\.py:[\w.]*_run_server|futures/process\.py:_process_worker"
    r"|futures/thread\.py:_worker|torch/utils/data/_utils/worker\.py:_worker_loop"
)
