"""Kernel files that nobody packaged: with the file that they import, with a torch function beside them, and one that lies."""

SOFTMAX = '''
import torch, triton, triton.language as tl
from near import scaled

@triton.jit
def softmax_kernel(out_ptr, in_ptr, n_cols, stride, scale, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        at = tl.arange(0, BLOCK)
        x = tl.load(in_ptr + row * stride + at, mask=at < n_cols, other=-float("inf")).to(tl.float32) * scale
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * stride + at, e / tl.sum(e, axis=0), mask=at < n_cols)

def softmax(x):
    out = torch.empty_like(x)
    rows, cols = x.shape
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
    softmax_kernel[grid](out, x, cols, x.stride(0), scaled(1.0), BLOCK=triton.next_power_of_2(cols), ROWS=4)
    return out

def softmax_torch(x):
    return torch.softmax(x, dim=1)
'''
NEAR = "def scaled(x):\n    return 1.0 * x\n"

ADD = '''
import torch, triton, triton.language as tl
from near import WIDTH

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (at < n) | (BLOCK > 256)             # a larger block reaches beyond the end
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)

def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    add_kernel[grid](x, y, out, n, BLOCK=WIDTH)
    return out

def add_torch(x, y):
    return x + y
'''
WIDTH = "WIDTH = 256\n"
CALL = "add(randn(3000, dtype=fp16), randn(3000, dtype=fp16))"       # the interpreter does not compute with bf16

# a host that computes numbers and a flag from its block, and an autotuner with one configuration
FOLLOWING = '''
import torch, triton, triton.language as tl

@triton.jit
def row_sums(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for step in range(STEPS):
        at = step * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(x_ptr + row * n_cols + at)
        else:
            x = tl.load(x_ptr + row * n_cols + at, mask=at < n_cols, other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    tl.store(out_ptr + row, total)

def sum_rows(x):
    BLOCK = 512
    rows, cols = x.shape
    out = torch.empty(rows, dtype=torch.float32, device=x.device)
    row_sums[(rows,)](x, out, rows, cols, BLOCK=BLOCK, STEPS=triton.cdiv(cols, BLOCK), EVEN=cols % BLOCK == 0)
    return out

def sum_torch(x):
    return x.float().sum(dim=1)

@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def scaled(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale, mask=at < n)

def scale_rows(x, power=-0.5):
    y = torch.empty_like(x)
    n = x.numel()
    scaled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 1.5 * x.shape[1] ** power)
    return y

def scale_torch(x):
    return x * (1.5 * x.shape[1] ** -0.5)
'''

# two kernels compute whole numbers for the host and for the third
SORTING = '''
import torch, triton, triton.language as tl

@triton.jit
def count_kernel(ids_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts_ptr + tl.load(ids_ptr + o, mask=o < n), 1, mask=o < n)

@triton.jit
def place_kernel(ids_ptr, next_ptr, order_ptr, n, STEP: tl.constexpr):
    for at in range(0, n):
        e = tl.load(ids_ptr + at)
        to = tl.load(next_ptr + e)
        tl.store(next_ptr + e, to + STEP)
        tl.store(order_ptr + to, at)

@triton.jit
def rows_kernel(x_ptr, order_ptr, offsets_ptr, y_ptr, longest, width, BLOCK: tl.constexpr):
    e = tl.program_id(0)
    begin = tl.load(offsets_ptr + e)
    end = tl.load(offsets_ptr + e + 1)
    for at in range(begin + tl.program_id(1), end, tl.num_programs(1)):
        o = tl.arange(0, BLOCK)
        row = tl.load(order_ptr + at)
        tl.store(y_ptr + at * width + o, tl.load(x_ptr + row * width + o, mask=o < width), mask=o < width)

def sort_rows(x, ids, experts, block=1024):
    counts = torch.zeros(experts, dtype=torch.int32, device=x.device)
    count_kernel[(triton.cdiv(ids.numel(), 64),)](ids, counts, ids.numel(), BLOCK=64)
    offsets = torch.zeros(experts + 1, dtype=torch.int32, device=x.device)
    offsets[1:] = counts.cumsum(0)
    longest = counts.max().item()
    order = torch.empty_like(ids)
    place_kernel[(1,)](ids, offsets[:-1].clone(), order, ids.numel(), STEP=1)
    y = torch.empty_like(x)
    rows_kernel[(experts, longest)](x, order, offsets, y, longest, x.shape[1], BLOCK=block)
    return y
'''
