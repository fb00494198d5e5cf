"""A trainer actor broadcasts weights over gloo to two engine actors, of which one still decodes without an end token.
---
ray: true
expect: {kind: [ray, busy, collective-differs], frame: generate, never: [SIGSTOP]}
"""

import socket

import _kit
import ray
import torch


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, rank: int, port: int) -> None:
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
        self.dist, self.weights = dist, torch.rand(256, 256)

    def sync(self) -> None:
        self.dist.broadcast(self.weights, src=0)
        self.dist.barrier()

    def generate(self, limit: int) -> int:
        token, length, end = torch.rand(256), 0, -1
        while int(token.argmax()) != end and length < limit:
            token = torch.softmax(self.weights @ token, 0)
            length += 1
        return length


ray.init()
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
workers = [Worker.remote(rank, port) for rank in range(3)]
for step in range(1, 4):
    ray.get([worker.sync.remote() for worker in workers])
    print(f"step {step}", ray.get([worker.generate.remote(10) for worker in workers[1:]]), flush=True)
workers[1].generate.remote(10)
workers[2].generate.remote(10**12)
_kit.here()
ray.get([worker.sync.remote() for worker in workers])
