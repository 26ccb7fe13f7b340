"""A host clock in place of CUDA events, for children that run on the CPU."""

import time


class HostTimer:
    def __init__(self, device, policy, gpu_index):
        pass

    def samples(self, launch, count):
        taken = []
        for _ in range(count):
            started = time.perf_counter()
            launch()
            taken.append((time.perf_counter() - started) * 1000)
        return taken

    def about(self):
        return {"cold_l2": False}

    def reading(self):
        return {}
