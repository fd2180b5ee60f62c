"""DeepSpeed's engine with dflop's microbatches: torchrun --nproc-per-node 2 deepspeed_engine.py"""

import deepspeed
import torch

import dflop

MICROBATCHES = 2
lengths = [3 + 7 * i % 29 for i in range(64)]
data = [(i, torch.randn(length, 8)) for i, length in enumerate(lengths)]


def pack(items):
    return [i for i, _ in items], torch.cat([x for _, x in items])


if __name__ == "__main__":
    deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    sampler = dflop.BatchSampler(lengths, gbs=16, microbatches=MICROBATCHES, dp_rank=rank, dp_size=ranks)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=pack)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    # The engine counts microbatches; the sampler decides how many items each of them has.
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": MICROBATCHES}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for items, x in loader:
            print("items", items)
            engine.backward(engine(x.to(engine.device)).square().mean())
            engine.step()
