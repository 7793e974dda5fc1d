"""Makes dequant.gguf: for every readable type a tensor of random blocks, and the fp32 values that the gguf package's
dequantize gives for them. Scales include zero, subnormal, largest, infinite and NaN halves.

    python tests/golden/make_dequant.py        (needs numpy and gguf; made with gguf 0.19.0, numpy 2.4.6)
"""
import os

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

ROWS, BLOCKS = 6, 4
HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]
# where the half-precision scales of a block stand
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q6_K: [208]}

rng = np.random.default_rng(20240229)
writer = gguf.GGUFWriter(os.path.join(os.path.dirname(__file__), "dequant.gguf"), "none")
for t in [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q8_0, T.Q4_K, T.Q6_K]:
    block_n, block_bytes = gguf.GGML_QUANT_SIZES[t]
    blocks = BLOCKS if block_n > 1 else 61
    raw = rng.integers(0, 256, (ROWS, blocks, block_bytes), dtype=np.uint8)
    for at in SCALES.get(t, []):
        # most scales are ordinary, so that the values differ in many bits
        ordinary = rng.normal(0, 0.02, (ROWS, blocks)).astype(np.float16).view(np.uint8).reshape(ROWS, blocks, 2)
        raw[:, :, at : at + 2] = ordinary
        for i, h in enumerate(HALVES):
            raw.reshape(-1, block_bytes)[i, at : at + 2] = np.array([h], np.uint16).view(np.uint8)
    raw = np.ascontiguousarray(raw.reshape(ROWS, blocks * block_bytes))
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(raw, t)
    assert values.shape == (ROWS, blocks * block_n) and values.dtype == np.float32
    writer.add_tensor(t.name, raw, raw_dtype=t)
    writer.add_tensor(t.name + ".expect", values)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
