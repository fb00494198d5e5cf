"""What a process that waits for something does, in words, with the advice that fits every such process."""

from __future__ import annotations

import re
from typing import Dict, Tuple

from jobspec.runtime.stalls import kinds
from jobspec.runtime.stalls.waits import Wait

# Of whom something should come, and it does not: what nothing in a dump tells.
OPEN = "does that one run, wait itself, or never come to it; was it started at all, or has it ended"

# kind -> (what such a process does, advice, whether the cause lies outside of what is tested)
DOES: Dict[str, Tuple[str, str, bool]] = {
    kinds.COLLECTIVE: (
        "waits in the collective `{op}`",
        "see whether a rank does not come to it: the stacks of all its ranks",
        False,
    ),
    kinds.RENDEZVOUS: (
        "waits in the making of a process group (`{op}`)",
        "see whether a rank does not come to it, and whether all reach MASTER_ADDR and MASTER_PORT of this"
        " run",
        True,
    ),
    kinds.DEVICE: (
        "waits for its GPU",
        "look at the GPU (`nvidia-smi`, Xid in the kernel's log) and at the kernel that it ran last",
        True,
    ),
    kinds.RAY: (
        "waits for a result of Ray",
        "look at the actor or task that it waits for: `ray list actors`, `ray list tasks`",
        True,
    ),
    kinds.PLACEMENT: (
        "waits for a placement group of Ray",
        "compare the group's bundles with the nodes: `ray status`",
        True,
    ),
    kinds.IDLE: ("waits for work", "see who should give it some", True),
    kinds.LOOP: (
        "waits in its event loop",
        "see what the loop's tasks wait for: a peer, a program, a future",
        True,
    ),
    kinds.LOADER: (
        "waits in its data loader",
        "see the stacks of the loader's workers and threads; try `num_workers=0`",
        True,
    ),
    kinds.QUEUE: (
        "waits at a queue between processes",
        "see who should put into it, or take from it",
        True,
    ),
    kinds.CHILD: ("waits for a process that it has started", "see what that process does", True),
    kinds.JOIN: ("waits for one of its threads", "see the stack of that thread", True),
    kinds.FUTURE: (
        "waits for a future",
        "see who should set its result; of one that was cancelled, whether that was told to who waits",
        True,
    ),
    kinds.NETWORK: (
        "waits for the network",
        "look at the peer; give the request a time limit",
        True,
    ),
    kinds.STORE: (
        "waits for a key in a store of torch.distributed",
        "see which rank should set that key, and whether one has deleted it",
        True,
    ),
    kinds.LOCK: (
        "waits for a lock or a semaphore",
        "see who has taken it, and whether it is released on every path, also after an error",
        False,
    ),
    kinds.FILE_LOCK: (
        "waits for a lock on a file",
        "see who has the locked file open (`fuser`, `lslocks`), and whether a child has inherited it; of a"
        " soft lock see whether an ended process has left its file behind",
        True,
    ),
    kinds.PIPE: (
        "waits at a pipe or a FIFO",
        "see who should write to it or read from it, or close it",
        True,
    ),
    kinds.SLEEP: (
        "sleeps",
        "see why it sleeps at this line: for how long, or, if a loop is around it, what ends that",
        True,
    ),
    kinds.DISK: (
        "waits in the kernel ({op})",
        "look at that file system: its server, its mount on that node, the kernel's log",
        True,
    ),
    kinds.STOPPED: (
        "is stopped (state T)",
        "see who stopped it (SIGSTOP, a debugger, Slurm's suspend, its terminal); SIGCONT may let it go on,"
        " unless something stops it again",
        True,
    ),
    kinds.BUSY: (
        "uses the CPU",
        "see whether this code ends: profile it (`py-spy record`), or give it a time limit",
        True,
    ),
    kinds.SIGNALLED: (
        "waits for a signal",
        "see who should send it, whether it came before this wait, and whether a handler took it; block it"
        " first and take it by `signal.sigtimedwait`, or use an event or a pipe",
        True,
    ),
    kinds.OTHER: ("stands", "look at its stack", True),
}
_STREAM = (
    "waits at a stream of asyncio (a connection, or the pipe of a program)",
    "look at the other end; give the request a time limit",
    True,
)
# (kind, op) of waits that have words of their own
SPECIAL: Dict[Tuple[str, str], Tuple[str, str, bool]] = {
    (kinds.QUEUE, kinds.DRAIN): (
        "waits at its end for the thread that puts the rest of its multiprocessing queue into the pipe",
        "see whether all is taken from the queue before that process is joined",
        False,
    ),
    (kinds.NETWORK, kinds.JOINED): (
        "waits in the opening of a store of torch.distributed",
        "see whether one of its world has not opened that store, or with another address, port or world size",
        True,
    ),
    (kinds.FILE_LOCK, kinds.BATON): (
        "waits for the lock file of a kernel's build (`FileBaton`)",
        "remove the stale `lock` file in the build folder (TORCH_EXTENSIONS_DIR) when no build runs",
        True,
    ),
    (kinds.PIPE, kinds.DEBUGGER): (
        "waits for input (a debugger or an interactive console)",
        "answer its prompt, or see whether a breakpoint was left in (`breakpoint()`, `pdb.set_trace()`)",
        False,
    ),
    (kinds.STOPPED, kinds.TERMINAL): (
        "is stopped (state T) in a call at its terminal",
        "see whether it is in the background of its terminal, which may stop it at each read there (SIGTTIN):"
        " answer its prompt beforehand, by an option or a variable, or leave it in the foreground's process"
        " group; else see who stopped it",
        False,
    ),
    (kinds.PIPE, kinds.TERMINAL): (
        "waits for input from a terminal",
        "answer the prompt beforehand, by an option or a variable",
        False,
    ),
    (kinds.QUEUE, kinds.INNER): (
        "waits at a queue of its own process",
        f"see who should put into it: {OPEN}; or does it put into another one (a fork has its own copy)?",
        True,
    ),
    (kinds.PIPE, kinds.CONNECTION): (
        "waits for a message at a pipe or connection of `multiprocessing`",
        "see whether the other end still runs, and whether it answers every message",
        True,
    ),
    (kinds.PIPE, kinds.FULL): (
        "waits for room in a full pipe or connection of `multiprocessing`",
        "see who should receive from it",
        True,
    ),
    (kinds.PIPE, kinds.SELECT): (
        "waits for one of its pipes, connections or processes (`multiprocessing.connection.wait`)",
        "see which of them it has been given, and who should write to it or end",
        True,
    ),
    (kinds.PIPE, kinds.HANDSHAKE): (
        "waits in the authentication of a connection of `multiprocessing`",
        "see who is at the other end; a listener may serve nobody else meanwhile: give it a time limit",
        True,
    ),
    (kinds.QUEUE, kinds.OF_RAY): (
        "waits at a queue of Ray (`ray.util.queue`)",
        "see who should put into it or take from it, whether that one has ended, and the queue's own actor",
        True,
    ),
    (kinds.QUEUE, kinds.RESULTS): (
        "waits for results of its multiprocessing pool",
        "see what the pool's workers do, and whether one was killed (a pool does not do its task again) or"
        " none of them has a task",
        True,
    ),
    (kinds.JOIN, kinds.PROCESS): DOES[kinds.CHILD],
    (kinds.CHILD, kinds.OUTPUT): (
        "is in `communicate()` with a program that it has started",
        "see what that program does, and who else has its output open",
        True,
    ),
    (kinds.NETWORK, kinds.STREAM): _STREAM,
    (kinds.PIPE, kinds.STREAM): _STREAM,
    (kinds.NETWORK, kinds.SOCKET): (
        "waits at a socket",
        "look at the other end; give the request a time limit",
        True,
    ),
    (kinds.LOCK, kinds.OF_QUEUE): (
        "waits for the inner lock of a queue",
        "see who has taken it; if the handler of a signal puts into that queue, set a flag there instead",
        False,
    ),
    (kinds.IDLE, kinds.SHUTDOWN): (
        "serves calls of torch RPC until all its workers are in `shutdown()`",
        "see whether a worker does not come to `rpc.shutdown()`",
        True,
    ),
    (kinds.IDLE, kinds.BEGUN): (
        "is in a call that it has begun, at no line of the program",
        "see what that call waits for: its arguments, or whoever takes what it yields",
        True,
    ),
    (kinds.IDLE, kinds.UNUSED): (
        "runs no code of the program",
        "see whether a call of it is queued, and for which arguments (`ray list tasks`)",
        True,
    ),
    (kinds.IDLE, kinds.RESULTS): (
        "waits to hand over a result of its pool",
        "see what the parent does with the results",
        True,
    ),
    (kinds.JOIN, kinds.RESULTS): (
        "waits for the end of its multiprocessing pool",
        "see what the pool's workers do",
        True,
    ),
    (kinds.FUTURE, kinds.RPC): (
        "waits for a future of torch, as its RPC gives",
        "if it is a call's, see what the rank that is asked does for it, and give `timeout=` to the call",
        True,
    ),
    (kinds.OTHER, kinds.SELECT): (
        "waits in `select` or `poll`",
        "see what it has registered there, if anything, and who should write to each of these or read from"
        " it; what a buffered reader has taken already is not seen there",
        True,
    ),
    (kinds.NETWORK, kinds.CONNECTS): (
        "waits until its connection is made",
        "see whether its address is right, who listens there, and whether that one still accepts",
        True,
    ),
    (kinds.IDLE, kinds.ACCEPT): (
        "waits for a connection",
        "see who should connect, and to which address",
        True,
    ),
    (kinds.COLLECTIVE, kinds.WORK): (
        "waits for an operation with other ranks, begun before (`wait`)",
        "see whether a rank does not come to it: the stacks of all its ranks",
        False,
    ),
    (kinds.PIPE, kinds.PROMPT): (
        "waits for input (`input()`)",
        "answer the prompt beforehand, by an option or a variable",
        False,
    ),
    (kinds.PIPE, kinds.PTY): (
        "waits for the output of a program at its pseudo terminal",
        "see what that program waits for: an answer, a key of a pager, the end of its input",
        True,
    ),
    (kinds.QUEUE, kinds.PROXY): (
        "waits at a queue or another object of a multiprocessing manager",
        "see who should put into it, take from it or answer there",
        True,
    ),
    (kinds.LOCK, kinds.PROXY): (
        "waits for a lock of a multiprocessing manager",
        "see who took it, and whether that one ended without `release()`",
        False,
    ),
    (kinds.NETWORK, kinds.POOLED): (
        "waits until a connection of its own client's pool is free",
        "see which requests have them, and whether each response is closed or read on every path; or allow"
        " more",
        False,
    ),
    (kinds.LOOP, kinds.TURN): (
        "waits in its event loop for a lock or a semaphore",
        "see who has taken it, and whether it is released on every path, also after an error",
        False,
    ),
    (kinds.LOOP, kinds.SIGNAL): (
        "waits in its event loop for an event, a condition or a barrier",
        f"see who should set or reach it: {OPEN} (by an error or a timeout);"
        " or was it set, and cleared again?",
        False,
    ),
    (kinds.LOCK, kinds.NATIVE): (
        "waits in a C function for another thread or process (futex)",
        "take its stack with `py-spy dump --native` or GDB; if it was forked, it has none of its parent's"
        " threads",
        False,
    ),
    (kinds.LOCK, kinds.SIGNAL): (
        "waits for an event, a condition or a barrier",
        f"see which thread or process should set or reach it: {OPEN}; or was it set, and cleared again?",
        False,
    ),
    (kinds.LOCK, kinds.SHARED): (
        "waits in `wait()` of an event, a condition or a barrier of `multiprocessing`",
        "see who should set or reach it; or, where that is done already, who has the lock beneath it: a"
        " process in `set()` or `notify()` keeps it until all that it wakes have answered",
        False,
    ),
    (kinds.LOCK, kinds.BENEATH): (
        "waits for the lock beneath an event, a condition or a barrier",
        "see who has it; a process in `set()` or `notify()` of `multiprocessing` keeps it until all that it"
        " wakes have answered",
        False,
    ),
    (kinds.LOCK, kinds.NOTIFIES): (
        "waits inside of `set()`, `clear()` or `notify()` of `multiprocessing`",
        "see who has the lock beneath it, and whether a process was killed while it waited there: whoever"
        " wakes it waits for its answer; make such an event anew once one of its processes has ended",
        False,
    ),
    (kinds.QUEUE, kinds.FULL): (
        "waits for room in a full queue",
        "see who should take from it",
        True,
    ),
    (kinds.QUEUE, kinds.UNDONE): (
        "waits until `task_done()` is said of each item of its queue",
        "see whether the workers call `task_done()` for each item on every path, also after an error"
        ", and whether they still run",
        False,
    ),
    (kinds.COLLECTIVE, kinds.BACKWARD): (
        "waits in `backward()`, as for an all_reduce of gradients",
        "see whether ranks have fewer batches, or parameters without a gradient",
        False,
    ),
}


# Of two ranks, the end of what was begun before, and a library's own functions around several.
_NO_COLLECTIVE = re.compile(r"i?send|i?recv|batch_|wait_|_")


def phrase(wait: Wait) -> Tuple[str, str, bool]:
    """What the wait is, advice, and whether the cause lies outside of what is tested."""
    told = SPECIAL.get((wait.kind, wait.op)) or DOES[wait.kind]
    if wait.kind == kinds.COLLECTIVE and _NO_COLLECTIVE.match(wait.op):
        return (told[0].replace("the collective ", ""), *told[1:])
    return told
