import pytest
import torch

from seedbed.config.model import ModelConfig
from seedbed.measure.attention import attention_sums
from seedbed.measure.sink import sink_report, uniform_score
from seedbed.model.decoder import Decoder


def decoder(**attention) -> Decoder:
    config = ModelConfig.model_validate(
        {"vocab_size": 50, "d_model": 16, "n_layers": 2, "max_seq_len": 64, "attention": {"n_heads": 4, **attention}}
    )
    model = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(generator=generator)
            if "norm" in name:
                parameter.fill_(1.0)
    return model


def by_hand(scores: dict[tuple[int, int], float], length: int) -> torch.Tensor:
    weights = torch.zeros(1, 1, length, length)
    for (query, key), weight in scores.items():
        weights[0, 0, query, key] = weight
    return weights


def sink_scores(weights: torch.Tensor, doc_ids: torch.Tensor) -> torch.Tensor:
    """Of each head, [H], of weights [B, H, T, T] (queries by keys), each document seeing itself."""
    index = torch.arange(doc_ids.shape[1])
    visible = (doc_ids[:, :, None] == doc_ids[:, None]) & (index[:, None] >= index)  # [B, T, T]

    def weigh(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        return weights[:, :, rows, : rows.stop], visible[:, None, rows, : rows.stop]

    sums = attention_sums(weigh, doc_ids, weights.shape[1])
    assert float(sums.uniform_sink.sum() / sums.queries.sum()) == pytest.approx(uniform_score(doc_ids))
    return sums.sink.sum(0) / sums.queries.sum()


def test_one_document_by_hand():
    weights = by_hand({(0, 0): 1, (1, 0): 0.5, (1, 1): 0.5, (2, 0): 0.2, (2, 2): 0.8}, 3)
    assert sink_scores(weights, torch.tensor([[0, 0, 0]])).tolist() == pytest.approx([0.35])


def test_packed_documents_by_hand():
    # documents of 2, 3 and 1 tokens; the lone token is no query
    weights = by_hand(
        {(0, 0): 1, (1, 0): 0.6, (1, 1): 0.4, (2, 2): 1, (3, 2): 0.3, (3, 3): 0.7, (4, 2): 0.0, (4, 4): 1, (5, 5): 1}, 6
    )
    doc_ids = torch.tensor([[7, 7, 8, 8, 8, 9]])
    assert sink_scores(weights, doc_ids).tolist() == pytest.approx([0.3])
    assert uniform_score(doc_ids) == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3)


def test_case_50_left_padding_is_not_position_zero():
    # two padded positions, then a document of three
    weights = by_hand({(0, 0): 1, (1, 0): 1, (2, 2): 1, (3, 2): 0.9, (3, 3): 0.1, (4, 2): 0.7, (4, 4): 0.3}, 5)
    doc_ids = torch.tensor([[-1, -1, 0, 0, 0]])
    assert sink_scores(weights, doc_ids).tolist() == pytest.approx([0.8])
    assert uniform_score(doc_ids) == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_heads_and_rows_are_weighted_by_queries():
    weights = torch.zeros(2, 2, 3, 3)
    weights[0, 0, 1:, 0] = 1.0  # head 0, row 0: two queries at 1
    weights[1, 0, 1, 0] = 0.25  # head 0, row 1: one query (its second document is a lone token)
    weights[1, 1, 1, 0] = 0.5
    doc_ids = torch.tensor([[0, 0, 0], [0, 0, 1]])
    assert sink_scores(weights, doc_ids).tolist() == pytest.approx([2.25 / 3, 0.5 / 3])


@pytest.mark.parametrize(("length", "over_all_queries"), [(64, 0.074), (2048, 0.004)])
def test_uniform_baseline_is_the_harmonic_number(length, over_all_queries):
    ours = uniform_score(torch.zeros(1, length, dtype=torch.int64))
    harmonic = sum(1 / t for t in range(1, length + 1))
    assert ours == pytest.approx((harmonic - 1) / (length - 1), rel=1e-6)
    assert (ours * (length - 1) + 1) / length == pytest.approx(over_all_queries, abs=5e-4)


def test_no_query_is_an_error():
    with pytest.raises(ValueError, match="second token"):
        sink_scores(torch.ones(1, 1, 2, 2), torch.tensor([[0, 1]]))


@pytest.mark.parametrize("attention", [{}, {"n_kv_heads": 2}, {"qk_norm": "head", "gate": "headwise"}])
def test_packed_rows_score_as_their_documents_alone(attention):
    model = decoder(**attention)
    ids = torch.randint(50, (1, 12), generator=torch.Generator().manual_seed(1))
    packed = sink_report(model, ids, torch.tensor([[0] * 5 + [1] * 7]))
    alone = [sink_report(model, part) for part in ids.split([5, 7], dim=1)]
    for layer in range(2):
        for head in range(4):
            mean = (alone[0].scores[layer][head] * 4 + alone[1].scores[layer][head] * 6) / 10
            assert packed.scores[layer][head] == pytest.approx(mean, abs=1e-5)
    assert (packed.queries, packed.length) == (10, 12)
    assert packed.layers[0] == pytest.approx(sum(packed.scores[0]) / 4)


def test_zero_queries_attend_uniformly():
    model = decoder()
    with torch.no_grad():
        for layer in model.layers:
            layer.attn.qkv.weight[:16] = 0
    doc_ids = torch.tensor([[0] * 9 + [1] * 3, [0] * 12])
    report = sink_report(model, torch.ones(2, 12, dtype=torch.int64), doc_ids)
    assert [score for layer in report.scores for score in layer] == pytest.approx([report.uniform] * 8, rel=1e-5)
    assert report.share_above(report.uniform * 0.9) == 1
    assert report.share_above(report.uniform * 1.1) == 0


def test_model_is_left_as_it_was_even_after_an_error():
    model = decoder()
    before = [layer.attn.attend for layer in model.layers]
    model.layers[1].eval()
    with pytest.raises(IndexError):
        sink_report(model, torch.full((1, 4), 999))
    assert [layer.attn.attend for layer in model.layers] == before
    assert model.training
    assert not model.layers[1].training


def test_another_attention_function_is_refused():
    model = decoder()
    model.layers[0].attn.attend = lambda q, k, v, visible: v
    with pytest.raises(RuntimeError, match="not the softmax"):
        sink_report(model, torch.arange(8)[None])
