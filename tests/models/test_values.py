"""Values on the meta device: they are those that a CPU computes, and what depends on weights has none."""

from __future__ import annotations

import pytest
import torch
from kernelroof.models.compat.values import Values, list_as_index, made_of_numbers, value_of
from kernelroof.models.errors import DriverError

META = torch.device("meta")


def weights(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device=META)


def test_what_python_asks_for() -> None:
    with Values():
        x = torch.arange(6, device=META).view(2, 3)
        assert x[1, 2].item() == 5
        assert x.sum(dim=0).tolist() == [3, 5, 7]
        assert bool((x >= 0).all())
        assert x.nonzero().shape == (5, 2)
        assert [t.tolist() for t in torch.where(x > 3)] == [[1, 1], [1, 2]]
        assert torch.bincount(x.flatten() % 2).tolist() == [3, 3]
        assert int(x.max()) == 5
        assert torch.repeat_interleave(x[0], x[0]).tolist() == [1, 2, 2]
        assert x.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_changes_in_place_reach_every_view_and_no_earlier_result() -> None:
    with Values():
        x = torch.zeros(4, dtype=torch.int64, device=META)
        view, before = x[1:3], x + 1
        view += 7
        x[0] = 9
        assert x.tolist() == [9, 7, 7, 0]
        assert before.tolist() == [1, 1, 1, 1]
        x[torch.full((1,), 3, device=META)] = torch.full((1,), 5, device=META)
        assert view.tolist() == [7, 7]
        assert x.tolist() == [9, 7, 7, 5]


def test_what_depends_on_weights_is_refused_by_name() -> None:
    with Values():
        w = weights(3)
        assert value_of(w) is None
        with pytest.raises(DriverError, match="_local_scalar_dense"):
            w.sum().item()
        with pytest.raises(DriverError, match="nonzero"):
            (w > 0).nonzero()
        x = torch.zeros(3, device=META)
        x.copy_(w)
        with pytest.raises(DriverError, match="_local_scalar_dense"):
            x[0].item()
        y = torch.zeros(3, dtype=torch.int64, device=META)
        y[(w > 0).to(torch.int64)] = 1
        assert value_of(y) is None


def test_masks_pick_rows_of_what_has_no_value() -> None:
    with Values():
        mask = torch.arange(5, device=META) % 2 == 0
        x = weights(5, 8)
        assert x[mask].shape == (3, 8)
        x[mask] = weights(3, 8)
        assert torch.masked_select(x, mask[:, None]).shape == (24,)
        with pytest.raises(DriverError, match="computed from weights"):
            x[x[:, 0] > 0]


@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(1, 8, 2), (5, 8, 3), (64, 4, 2)])
def test_routing_takes_turns(tokens: int, experts: int, chosen: int) -> None:
    with Values():
        _weights, index = weights(tokens, experts).softmax(-1).topk(chosen, dim=-1)
        rows = index.tolist()
        assert all(len(set(row)) == chosen for row in rows)
        load = torch.bincount(index.flatten(), minlength=experts).tolist()
        assert sum(load) == tokens * chosen
        assert max(load) - min(load) <= 1
        assert sum(n > 0 for n in load) == min(experts, tokens * chosen)
        assert weights(6, 3).argmax(dim=-1).tolist() == [0, 1, 2, 0, 1, 2]
        assert weights(2, 3).sort(dim=-1)[1].tolist() == [[0, 1, 2], [0, 1, 2]]


def test_numbers_are_finite() -> None:
    with Values():
        assert not bool(torch.isnan(weights(4)).any())
        assert not bool(torch.isinf(weights(4)).any())


def test_lists_as_indices_have_values() -> None:
    with Values():
        x = torch.arange(4, device=META).view(1, 4)
        index = list_as_index((slice(None), [-1, 0]), META)
        assert x[index].tolist() == [[3, 0]]
        assert made_of_numbers([2, 3], device=META).tolist() == [2, 3]
    assert list_as_index([1], torch.device("cpu")) == [1]
