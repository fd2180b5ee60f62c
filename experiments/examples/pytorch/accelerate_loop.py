"""A training loop of accelerate with dflop's microbatches: torchrun --nproc-per-node 2 accelerate_loop.py"""

import accelerate
import torch

import dflop

MICROBATCHES = 2
lengths = [3 + 7 * i % 29 for i in range(64)]
data = [(i, torch.randn(length, 8)) for i, length in enumerate(lengths)]


def pack(items):
    return [i for i, _ in items], torch.cat([x for _, x in items])


if __name__ == "__main__":
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=MICROBATCHES)
    rank, ranks = accelerator.process_index, accelerator.num_processes
    sampler = dflop.BatchSampler(lengths, gbs=16, microbatches=MICROBATCHES, dp_rank=rank, dp_size=ranks)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=pack)
    model = torch.nn.Linear(8, 1)
    # The loader is not passed to prepare(), which would shard it again: the sampler already knows its rank.
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for items, x in loader:
            print("items", items)
            with accelerator.accumulate(model):
                accelerator.backward(model(x.to(accelerator.device)).square().mean())
                optimizer.step()
                optimizer.zero_grad()
    accelerator.end_training()
