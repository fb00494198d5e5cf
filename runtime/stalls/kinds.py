"""The kinds of waits, and `op`: what exactly is waited for. Any other `op` is a name: of a lock, a file or
a collective."""

from __future__ import annotations

COLLECTIVE, RENDEZVOUS, DEVICE = "collective", "rendezvous", "device"
RAY, PLACEMENT, IDLE, LOOP = "ray", "placement", "idle", "event-loop"
LOADER, QUEUE, CHILD, JOIN, FUTURE, NETWORK = "loader", "queue", "subprocess", "join", "future", "network"
STORE = "store"  # a key in a store of torch.distributed
LOCK, FILE_LOCK, PIPE, SLEEP = "lock", "file-lock", "pipe", "sleep"
DISK, STOPPED, BUSY, OTHER, SIGNALLED = "disk", "stopped", "busy", "other", "signal"

# `op`: what exactly is waited for
WORK, BACKWARD = "wait", "backward"  # a collective that was begun before, and those of gradients
ACCEPT = "accept"  # of who is idle: a connection
DRAIN, UNDONE, FULL, HANDSHAKE = "drain", "task_done", "full", "handshake"  # of a queue
INNER, RESULTS, OF_RAY = "inner", "results", "of Ray"  # a queue of its own process, a pool's, Ray's
PROXY = "proxy"  # a queue or a lock of a manager
PROCESS, RPC = "process", "rpc"  # who is joined, and a future of torch
JOINED, POOLED, CONNECTS = "joined", "pooled", "connects"  # of the network
STREAM, SOCKET = "stream", "socket"  # of the network too, for all that is known
OUTPUT = "output"  # of a child
SHUTDOWN, BEGUN, UNUSED = "shutdown", "begun", "unused"  # of who is idle
OF_QUEUE = "of a queue"  # a lock
BATON = "baton"  # of a file's lock
DEBUGGER, TERMINAL, PROMPT, PTY = "debugger", "terminal", "prompt", "pty"  # of a pipe
CONNECTION = "connection"  # a pipe of multiprocessing
ON_PEOPLE = (DEBUGGER, TERMINAL, PROMPT)
TURN, SIGNAL, NATIVE = "turn of others", "signal of others", "C function"  # of locks: none is a lock's name
SHARED, BENEATH, NOTIFIES = "shared signal", "beneath", "notifies"  # of locks, too
NO_LOCK = (SIGNAL, SHARED, BENEATH, NOTIFIES, OF_QUEUE)  # these name a lock of their own
NO_NAMES = ("", SIGNAL, NATIVE, SHARED, BENEATH, NOTIFIES)
SELECT = "select"  # of others

ON_RANKS = frozenset({COLLECTIVE, RENDEZVOUS, DEVICE})  # these wait for other ranks
OUTWARD = (NETWORK, RAY, PLACEMENT, CHILD)  # for another process
AT_ONE = (NETWORK, PIPE, FILE_LOCK)  # `op` is the one connection or file
