"""Train a small character-level transformer on several ranks, watched by rankscope.

    torchrun --nproc-per-node 4 -m rankscope.examples.train_chars --steps 60 --seed 7

Everything that rankscope needs is in the lines that name it: `init`, `watch`, `step`, `log_metrics`.
Unless `--no-faults` is given, the training is ill in two ways (`faults.py`) that the seed decides.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import rankscope
from rankscope.examples.chars import CharModel, Text
from rankscope.examples.faults import Faults, SlowReads, draw_faults, overflow_in

CONTEXT = 64
BATCH = 16
LAYERS = 4
MAX_NORM = 1.0

Batch = tuple[Tensor, Tensor]


def main() -> None:
    """Read the arguments, join the other ranks, train."""
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    dist.init_process_group("gloo")
    try:
        train(options)
    finally:
        dist.destroy_process_group()


def train(options: argparse.Namespace) -> None:
    """Train for the number of steps asked for."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    faults = Faults()
    if not options.no_faults:
        faults = draw_faults(options.seed, ranks=ranks, steps=options.steps, layers=LAYERS)
    if options.injected_json and rank == 0:
        options.injected_json.write_text(json.dumps(faults.as_json()), encoding="utf-8")

    text = Text(CONTEXT)
    model = CharModel(text.vocabulary, context=CONTEXT, layers=LAYERS)
    dataset = with_faults(faults, rank=rank, model=model, text=text)
    sampler: DistributedSampler[Batch] = DistributedSampler(text, shuffle=True, seed=options.seed)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    with rankscope.init(config={"steps": options.steps, "seed": options.seed}) as run:
        run.watch(parallel, optimizer=optimizer, loader=loader, loss=criterion)
        for index, (codes, targets) in enumerate(first(options.steps, loader)):
            with run.step(index):
                loss = criterion(parallel(codes), targets.flatten())
                norm = update(parallel, optimizer, loss=loss)
                run.log_metrics({"loss": loss.item(), "grad_norm": norm})
            if rank == 0 and index % 10 == 0:
                print(f"step {index:3d}  loss {loss.item():.3f}", flush=True)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, *, loss: Tensor) -> float:
    """One optimizer step, skipped (on all ranks alike) when the gradient's norm is not finite."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    if norm.isfinite():
        optimizer.step()
    return norm.item()


def with_faults(faults: Faults, *, rank: int, model: CharModel, text: Text) -> Dataset[Batch]:
    """The dataset to train on, after this rank's share of the faults has been put in."""
    if faults.nonfinite is not None and faults.nonfinite.rank == rank:
        overflow_in(model.get_submodule(faults.nonfinite.layer), faults.nonfinite.step)
    if faults.straggler is not None and faults.straggler.rank == rank:
        return SlowReads(text, batch_size=BATCH, since_step=faults.straggler.since_step)
    return text


def first(steps: int, loader: DataLoader[Batch]) -> Iterator[Batch]:
    """So many batches, from as many epochs as that takes."""
    while steps > 0:
        for batch in loader:
            yield batch
            steps -= 1
            if steps == 0:
                return


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="decides data order, weights and faults (default: 1)")
    parser.add_argument("--no-faults", action="store_true", help="train without the two faults")
    parser.add_argument("--injected-json", type=Path, help="where rank 0 writes which faults it put in")
    return parser.parse_args()


if __name__ == "__main__":
    main()
