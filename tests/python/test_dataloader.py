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
def test_a_loader_yields_the_samplers_items(workers):
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
def test_an_abandoned_pass_starts_over(workers):
    one = loader(workers)
    next(iter(one))
    assert list(one) == list(sampler())


def epochs(one, numbers):
    """Returns a loader's batches in each of these epochs."""
    given = []
    for epoch in numbers:
        one.batch_sampler.set_epoch(epoch)
        given.append(list(one))
    return given


# 103 items are 4 batches of 24, of 3 microbatches each: 12. At 12 the loop has received the last one, at 13 it has
# ended.
LEFT = [(workers, taken) for workers in (0, 2) for taken in (5, 12, 13)]


def resumed(workers, taken):
    """Returns a loader with the state of one whose loop was left in epoch 1."""
    first, second = loader(workers), loader(workers)
    first.batch_sampler.set_epoch(1)
    list(itertools.islice(iter(first), taken))
    second.load_state_dict(first.state_dict())
    return second


@pytest.mark.parametrize("workers, taken", LEFT)
def test_a_state_at_the_end_resumes_with_the_next_epoch(workers, taken):
    whole = epochs(loader(0), range(3))
    rest = whole[1][taken:] if taken < 12 else whole[2]
    assert list(resumed(workers, taken)) == rest


@pytest.mark.parametrize("workers, taken", LEFT)
def test_a_loop_over_epochs_resumes_where_it_stopped(workers, taken):
    # The loader keeps the state until it is iterated, which is after set_epoch().
    whole = epochs(loader(0), range(4))
    assert epochs(resumed(workers, taken), range(1, 4)) == [whole[1][taken:], whole[2], whole[3]]
    if taken >= 12:
        assert epochs(resumed(workers, taken), range(2, 4)) == whole[2:]


@pytest.mark.parametrize("workers, taken", LEFT)
@pytest.mark.parametrize("epoch", [0, 3])
def test_set_epoch_drops_a_state_with_a_note(workers, taken, epoch):
    whole = epochs(loader(0), range(4))
    one = resumed(workers, taken)
    said = rf"the loaded state of epoch 1 \({min(taken, 12)} of 12 done\) is dropped, because set_epoch\({epoch}\) names another"
    with pytest.warns(RuntimeWarning, match=said):
        given = epochs(one, [epoch, 1])
    assert given == [whole[epoch], whole[1]]
    assert len(one.batch_sampler.log) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_loaded_after_a_pass_is_used(workers):
    one = loader(workers)
    whole = epochs(one, range(4))
    first = loader(workers)
    first.batch_sampler.set_epoch(1)
    list(itertools.islice(iter(first), 5))
    one.load_state_dict(first.state_dict())
    assert list(one) == whole[1][5:], "epoch 3 was named for a pass that is over"


def test_a_store_keeps_the_first_value(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
    hashes = torch.distributed.HashStore()
    for agreement in (dflop.StoreAgreement(store), dflop.StoreAgreement(hashes)):
        assert agreement.agree("0.1", b"[1,0]") == b"[1,0]"
        assert agreement.agree("0.1", b"[0,1]") == b"[1,0]"
        agreement.forget("0.1")
        agreement.forget("0.9")


def test_ranks_agree_through_a_store_if_one_has_no_child(broken, monkeypatch):
    store = dflop.StoreAgreement(torch.distributed.HashStore())
    ranks = [iter(sampler(dp_rank=rank, agreement=store)) for rank in range(2)]
    given = [next(ranks[0])]
    broken("exit 1")
    # The second rank's own answer would come from LPT and differ.
    with pytest.warns(RuntimeWarning, match="LPT in Python takes over"):
        given.append(next(ranks[1]))
    assert given == [next(iter(sampler(dp_rank=rank, agreement=store))) for rank in range(2)]
