#!/usr/bin/env python3
"""The peer: PyTorch with transformers trains on dflop's samples, weights and batches, and logs its steps in the same
way.

    python3 peer.py text|vlm FOLDER --log FILE [--precision master|autocast|f32] [--attention stock|packed] [--compile]

--precision master: bf16 weights with f32 gradient sums, master weights and moments, like dflop's bf16; autocast: f32
    weights, gradients and moments, with passes in bf16, like transformers' Trainer(bf16=True).
--attention stock: transformers' own, on padded rows with a mask, and with a call for each window in the encoder;
packed:
    rows without padding and torch.nn.attention.varlen (Flash) in encoder and LLM.
"""

import argparse
import inspect
import json
import os
import sys
import time

import data
import torch
import transformers
from batches import steps_of
from torch.utils.data import DataLoader

LIMITS = {}  # of the current microbatch: "now", as returned by batches.pack()
WORKERS = 4  # that read and decode, as many as dflop's threads


# Attention without padding


def attend(q, k, v, limits, longest, causal):
    """Attention within sequences; q, k, v: tokens x heads x width."""
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        # Versions without this option accept fewer KV heads directly.
        grouped = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
        return varlen_attn(q, k, v, limits, limits, longest, longest, window_size=(-1, 0 if causal else -1), **grouped)
    parts = []
    for first, last in zip(limits.tolist(), limits.tolist()[1:]):
        rows = (x[first:last].transpose(0, 1)[None] for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(*rows, is_causal=causal, enable_gqa=True)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def packed_attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """Attention for transformers' LLM layers: 1 x heads x tokens x width."""
    limits, longest = LIMITS["now"]
    return attend(*(x[0].transpose(0, 1) for x in (query, key, value)), limits, longest, True)[None], None


def packed_encoder_attention(self, hidden_states, cu_seqlens, position_embeddings=None, **kwargs):
    """Attention for transformers' encoder layers; cu_seqlens: the boundaries of windows, or pictures."""
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision

    q, k, v = self.qkv(hidden_states).reshape(len(hidden_states), 3, self.num_heads, -1).unbind(1)
    q, k = apply_rotary_pos_emb_vision(q, k, *position_embeddings)
    if not hasattr(cu_seqlens, "longest"):  # layers share the tensor, and reading it makes the host wait for the GPU
        cu_seqlens.longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
    out = attend(q.to(v.dtype), k.to(v.dtype), v, cu_seqlens.to(torch.int32), cu_seqlens.longest, False)
    return self.proj(out.reshape(len(hidden_states), -1))


def pack_attention(model):
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLVisionAttention

    Qwen2_5_VLVisionAttention.forward = packed_encoder_attention
    transformers.AttentionInterface.register("packed", packed_attention)
    model.model.language_model.config._attn_implementation = "packed"


# Training


class Optimizer:
    """torch's AdamW, fused on a GPU, with gradients clipped to a norm of 1."""

    def __init__(self, model, precision, device):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.masters = self.parameters
        if precision == "master":
            self.masters = [torch.nn.Parameter(p.detach().float()) for p in self.parameters]
            for master, parameter in zip(self.masters, self.parameters):
                master.grad = torch.zeros_like(master)
                parameter.register_post_accumulate_grad_hook(self.adder(master))
        rates = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0}
        self.adamw = torch.optim.AdamW(self.masters, **rates, fused=device == "cuda")

    @staticmethod
    def adder(master):
        def add(parameter):
            master.grad.add_(parameter.grad)
            parameter.grad = None

        return add

    def step(self):
        norm = torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.adamw.step()
        if self.masters is self.parameters:
            self.adamw.zero_grad(set_to_none=True)
        else:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
                torch._foreach_zero_([master.grad for master in self.masters])
        return norm


def compile_text(model):
    """Compiles the layers one by one, which takes less time than the whole model, and the head with its loss."""
    backend = os.environ.get("PEER_BACKEND", "inductor")
    for layer in model.model.layers:
        layer.compile(dynamic=False, backend=backend)

    @torch.compile(backend=backend)
    def loss_of(rows, weight, targets, trained):
        logits = (rows @ weight.t()).float().view(-1, weight.shape[0])
        return torch.nn.functional.cross_entropy(logits, targets.view(-1), reduction="sum") / trained

    def forward(input_ids, labels, shift_labels, num_items_in_batch, use_cache):
        rows = model.model(input_ids=input_ids, use_cache=use_cache).last_hidden_state
        return {"loss": loss_of(rows, model.lm_head.weight, shift_labels, num_items_in_batch)}

    model.forward = forward


def load(options):
    folder = os.path.join(options.folder, options.kind)
    config = transformers.AutoConfig.from_pretrained(folder)
    dtype = torch.bfloat16 if options.precision == "master" else torch.float32
    kind = getattr(transformers, config.architectures[0])
    model = kind.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(options.device).train()
    if options.attention == "packed":
        pack_attention(model)
    if options.compile:
        compile_text(model)
    return model


def tokens_of(batches):
    """Returns the counts in dflop's log, without padding."""
    masked = [batch.get("attention_mask", batch["input_ids"] >= 0) for batch in batches]
    patches = [len(batch["pixel_values"]) for batch in batches if "pixel_values" in batch]
    return {"llm_tokens": sum(int(mask.sum()) for mask in masked), "encoder_tokens": sum(patches)}


def train_step(model, optimizer, batches, options):
    """Returns the loss and the gradient norm, as tensors on the device."""
    targets = [batch.get("shift_labels", batch["labels"]) for batch in batches]
    trained = torch.tensor(float(sum(int((row >= 0).sum()) for row in targets)), device=options.device)
    total = torch.zeros((), device=options.device)
    for batch in batches:
        if "limits" in batch:
            limits, longest = batch.pop("limits")
            LIMITS["now"] = limits.to(options.device), longest
        batch = {key: value.to(options.device, non_blocking=True) for key, value in batch.items()}
        with torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "autocast"):
            loss = model(**batch, num_items_in_batch=trained, use_cache=False)["loss"]
        loss.backward()
        total += loss.detach()
        del loss
    return total, optimizer.step()


def train(options):
    cuda = options.device == "cuda"
    dtype = torch.bfloat16 if options.precision == "master" else torch.float32
    steps = steps_of(options.kind, options.folder, options.attention == "packed", dtype)
    loader = iter(DataLoader(steps, batch_size=None, num_workers=WORKERS if cuda else 0, pin_memory=cuda))
    model = load(options)
    optimizer = Optimizer(model, options.precision, options.device)
    if cuda:
        torch.cuda.synchronize()
    with open(options.log, "w", encoding="utf-8") as log:
        for step in range(1, len(steps) + 1):
            waiting = time.perf_counter()
            batches = next(loader)
            begin = time.perf_counter()
            counts = tokens_of(batches)
            loss, norm = (float(value) for value in train_step(model, optimizer, batches, options))
            if cuda:
                torch.cuda.synchronize()
            line = {"step": step, "loss": loss, "gradient_norm": norm, "iteration_s": time.perf_counter() - begin}
            line.update(data_wait_s=begin - waiting, **counts)
            line["peak_memory_bytes"] = torch.cuda.max_memory_allocated() if cuda else None
            log.write(json.dumps(line) + "\n")
            log.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("text", "vlm"))
    parser.add_argument("folder", help="that data.py has written, with the schedule of dflop")
    parser.add_argument("--log", required=True, metavar="FILE")
    parser.add_argument("--precision", default="master", choices=("master", "autocast", "f32"))
    parser.add_argument("--attention", default="stock", choices=("stock", "packed"))
    parser.add_argument("--compile", action="store_true", help="of text models")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    if options.kind == "text" and options.attention == "packed" or options.kind == "vlm" and options.compile:
        sys.exit("peer.py: text samples are of one length, and only text models are compiled")
    torch.manual_seed(data.SEED)
    train(options)


if __name__ == "__main__":
    main()
