"""BatchSampler in loaders of torch and torchdata, and ranks that agree through a store."""

import itertools
import json

import pytest

import dflop

torch = pytest.importorskip("torch")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

COSTS = [1 + 7 * i % 31 for i in range(103)]


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return len(COSTS)

    def __getitem__(self, index):
        return index


def sampler(**options):
    return dflop.BatchSampler(COSTS, **{"gbs": 24, "microbatches": 3, "dp_size": 2, "dp_rank": 1, **options})


def loader(workers, kind=stateful.StatefulDataLoader):
    return kind(Data(), batch_sampler=sampler(), num_workers=workers, collate_fn=list)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_what_the_sampler_draws(workers):
    assert list(loader(workers, torch.utils.data.DataLoader)) == list(sampler())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [1, 3, 5, 11])
def test_a_stateful_loader_resumes_exactly(workers, taken):
    whole = list(sampler())
    first = loader(workers)
    head = list(itertools.islice(iter(first), taken))
    state = json.loads(json.dumps(first.state_dict(), default=str)) if workers == 0 else first.state_dict()
    second = loader(workers)
    second.load_state_dict(state)
    assert head + list(second) == whole
    assert list(second) == whole, "the next pass is a whole one"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_was_left_begins_anew(workers):
    one = loader(workers)
    next(iter(one))
    assert list(one) == list(sampler())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_at_the_end_begins_the_next_pass(workers):
    first = loader(workers)
    whole = list(first)
    second = loader(workers)
    second.load_state_dict(first.state_dict())
    passes = [list(second), list(second)]
    assert whole in passes and all(one in ([], whole) for one in passes)


def test_a_store_keeps_what_was_given_first(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
    hashes = torch.distributed.HashStore()
    for agreement in (dflop.StoreAgreement(store), dflop.StoreAgreement(hashes)):
        assert agreement.agree("0.1", b"[1,0]") == b"[1,0]"
        assert agreement.agree("0.1", b"[0,1]") == b"[1,0]"
        agreement.forget("0.1")
        agreement.forget("0.9")


def test_ranks_agree_through_a_store_where_one_has_no_child(broken, monkeypatch):
    store = dflop.StoreAgreement(torch.distributed.HashStore())
    ranks = [iter(sampler(dp_rank=rank, agreement=store)) for rank in range(2)]
    given = [next(ranks[0])]
    broken("exit 1")
    # The second rank's own answer would be LPT's, and differ.
    with pytest.warns(RuntimeWarning, match="LPT in Python takes over"):
        given.append(next(ranks[1]))
    assert given == [next(iter(sampler(dp_rank=rank, agreement=store))) for rank in range(2)]
