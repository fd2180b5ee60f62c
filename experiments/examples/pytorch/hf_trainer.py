"""Hugging Face's Trainer with dflop's microbatches: torchrun --nproc-per-node 2 hf_trainer.py"""

import os

import torch
import transformers

import dflop

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
MICROBATCHES = 2
lengths = [3 + 7 * i % 29 for i in range(64)]
data = [{"x": torch.randn(length, 8), "item": i} for i, length in enumerate(lengths)]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, items):
        print("items", items.tolist())
        return {"loss": self.layer(x).square().mean()}


class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        # A loader that is not passed to prepare() is not sharded again: the sampler already knows its rank.
        sampler = dflop.BatchSampler(lengths, gbs=16, microbatches=MICROBATCHES, dp_rank=RANK, dp_size=RANKS)
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=pack)
        loader.set_epoch = sampler.set_epoch
        return loader


def pack(items):
    return {
        "x": torch.cat([one["x"] for one in items]),
        "items": torch.tensor([one["item"] for one in items]),
    }


if __name__ == "__main__":
    arguments = transformers.TrainingArguments(
        output_dir="out/hf_trainer",
        use_cpu=not torch.cuda.is_available(),
        gradient_accumulation_steps=MICROBATCHES,
        num_train_epochs=2,
        save_strategy="no",
        report_to="none",
    )
    Trainer(Model(), arguments, train_dataset=data).train()
