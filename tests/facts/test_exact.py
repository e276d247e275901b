"""Six families, parameter by parameter: role, widths, layer, branch, and where in the parameter each matrix lies."""

import pytest
import torch
from zoo import EXACT

from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts

# A line is a matrix: name, role, d_out x d_in (or the shape), layer/layers, and what else is said of it. {i} runs over
# the layers, {e} over the experts; "of" names the fused parameter that holds it, then the expert and the rows there.
GPT2 = """
transformer.wte.weight                   embed      64x32  -/2  tied lm_head.weight
transformer.wpe.weight                   pos        64x32  -/2
transformer.h.{i}.ln_1.weight            norm       32     {i}/2
transformer.h.{i}.ln_1.bias              norm.bias  32     {i}/2
transformer.h.{i}.attn.q.weight          attn.q     32x32  {i}/2  maps 2  transposed  of c_attn 0:32
transformer.h.{i}.attn.k.weight          attn.k     32x32  {i}/2  maps 2  transposed  of c_attn 32:64
transformer.h.{i}.attn.v.weight          attn.v     32x32  {i}/2  maps 2  transposed  of c_attn 64:96
transformer.h.{i}.attn.c_attn.bias       bias       96     {i}/2
transformer.h.{i}.attn.c_proj.weight     attn.o     32x32  {i}/2  writes  maps 2  transposed
transformer.h.{i}.attn.c_proj.bias       bias       32     {i}/2
transformer.h.{i}.ln_2.weight            norm       32     {i}/2
transformer.h.{i}.ln_2.bias              norm.bias  32     {i}/2
transformer.h.{i}.mlp.c_fc.weight        mlp.up     48x32  {i}/2  maps 2  transposed
transformer.h.{i}.mlp.c_fc.bias          bias       48     {i}/2
transformer.h.{i}.mlp.c_proj.weight      mlp.down   32x48  {i}/2  writes  maps 2  transposed
transformer.h.{i}.mlp.c_proj.bias        bias       32     {i}/2
transformer.ln_f.weight                  norm       32     -/2
transformer.ln_f.bias                    norm.bias  32     -/2
"""

LLAMA = """
model.embed_tokens.weight                           embed     64x32  -/2
model.layers.{i}.self_attn.q_proj.weight            attn.q    32x32  {i}/2  maps 2
model.layers.{i}.self_attn.k_proj.weight            attn.k    16x32  {i}/2  maps 2
model.layers.{i}.self_attn.v_proj.weight            attn.v    16x32  {i}/2  maps 2
model.layers.{i}.self_attn.o_proj.weight            attn.o    32x32  {i}/2  writes  maps 2
model.layers.{i}.mlp.gate_proj.weight               mlp.gate  48x32  {i}/2  maps 3
model.layers.{i}.mlp.up_proj.weight                 mlp.up    48x32  {i}/2  maps 3
model.layers.{i}.mlp.down_proj.weight               mlp.down  32x48  {i}/2  writes  maps 3
model.layers.{i}.input_layernorm.weight             norm      32     {i}/2
model.layers.{i}.post_attention_layernorm.weight    norm      32     {i}/2
model.norm.weight                                   norm      32     -/2
lm_head.weight                                      head      64x32  -/2
"""

QWEN3 = f"""{LLAMA}
model.layers.{{i}}.self_attn.q_norm.weight  norm  8  {{i}}/2
model.layers.{{i}}.self_attn.k_norm.weight  norm  8  {{i}}/2
"""

MIXTRAL = """
model.embed_tokens.weight                           embed       64x32  -/2
model.layers.{i}.self_attn.q_proj.weight            attn.q      32x32  {i}/2  maps 2
model.layers.{i}.self_attn.k_proj.weight            attn.k      16x32  {i}/2  maps 2
model.layers.{i}.self_attn.v_proj.weight            attn.v      16x32  {i}/2  maps 2
model.layers.{i}.self_attn.o_proj.weight            attn.o      32x32  {i}/2  writes  maps 2
model.layers.{i}.mlp.gate.weight                    moe.router  2x32   {i}/2
model.layers.{i}.mlp.experts.{e}.gate.weight        mlp.gate    48x32  {i}/2  maps 3  of gate_up_proj {e} 0:48
model.layers.{i}.mlp.experts.{e}.up.weight          mlp.up      48x32  {i}/2  maps 3  of gate_up_proj {e} 48:96
model.layers.{i}.mlp.experts.{e}.down.weight        mlp.down    32x48  {i}/2  writes  maps 3  of down_proj {e}
model.layers.{i}.input_layernorm.weight             norm        32     {i}/2
model.layers.{i}.post_attention_layernorm.weight    norm        32     {i}/2
model.norm.weight                                   norm        32     -/2
lm_head.weight                                      head        64x32  -/2
"""

# The decoder is one deeper than the encoder; only the first layer of each has a table of relative positions.
T5 = """
shared.weight  embed  64x32  -/3  tied encoder.embed_tokens.weight decoder.embed_tokens.weight lm_head.weight
encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight  pos.bias  32x4  0/2
encoder.block.{i}.layer.0.SelfAttention.q.weight      attn.q    32x32  {i}/2  maps 2
encoder.block.{i}.layer.0.SelfAttention.k.weight      attn.k    32x32  {i}/2  maps 2
encoder.block.{i}.layer.0.SelfAttention.v.weight      attn.v    32x32  {i}/2  maps 2
encoder.block.{i}.layer.0.SelfAttention.o.weight      attn.o    32x32  {i}/2  writes  maps 2
encoder.block.{i}.layer.0.layer_norm.weight           norm      32     {i}/2
encoder.block.{i}.layer.1.DenseReluDense.wi.weight    mlp.up    48x32  {i}/2  maps 2
encoder.block.{i}.layer.1.DenseReluDense.wo.weight    mlp.down  32x48  {i}/2  writes  maps 2
encoder.block.{i}.layer.1.layer_norm.weight           norm      32     {i}/2
encoder.final_layer_norm.weight                       norm      32     -/3
decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight  pos.bias  32x4  0/3
decoder.block.{j}.layer.0.SelfAttention.q.weight      attn.q    32x32  {j}/3  maps 2
decoder.block.{j}.layer.0.SelfAttention.k.weight      attn.k    32x32  {j}/3  maps 2
decoder.block.{j}.layer.0.SelfAttention.v.weight      attn.v    32x32  {j}/3  maps 2
decoder.block.{j}.layer.0.SelfAttention.o.weight      attn.o    32x32  {j}/3  writes  maps 2
decoder.block.{j}.layer.0.layer_norm.weight           norm      32     {j}/3
decoder.block.{j}.layer.1.EncDecAttention.q.weight    attn.q    32x32  {j}/3  maps 2
decoder.block.{j}.layer.1.EncDecAttention.k.weight    attn.k    32x32  {j}/3  maps 2
decoder.block.{j}.layer.1.EncDecAttention.v.weight    attn.v    32x32  {j}/3  maps 2
decoder.block.{j}.layer.1.EncDecAttention.o.weight    attn.o    32x32  {j}/3  writes  maps 2
decoder.block.{j}.layer.1.layer_norm.weight           norm      32     {j}/3
decoder.block.{j}.layer.2.DenseReluDense.wi.weight    mlp.up    48x32  {j}/3  maps 2
decoder.block.{j}.layer.2.DenseReluDense.wo.weight    mlp.down  32x48  {j}/3  writes  maps 2
decoder.block.{j}.layer.2.layer_norm.weight           norm      32     {j}/3
decoder.final_layer_norm.weight                       norm      32     -/3
"""

VIT = """
vit.embeddings.cls_token                          token      1x1x32    -/2
vit.embeddings.position_embeddings                pos        1x5x32    -/2
vit.embeddings.patch_embeddings.projection.weight patch      32x3x8x8  -/2
vit.embeddings.patch_embeddings.projection.bias   bias       32        -/2
vit.layers.{i}.attention.q_proj.weight            attn.q     32x32     {i}/2  maps 2
vit.layers.{i}.attention.q_proj.bias              bias       32        {i}/2
vit.layers.{i}.attention.k_proj.weight            attn.k     32x32     {i}/2  maps 2
vit.layers.{i}.attention.k_proj.bias              bias       32        {i}/2
vit.layers.{i}.attention.v_proj.weight            attn.v     32x32     {i}/2  maps 2
vit.layers.{i}.attention.v_proj.bias              bias       32        {i}/2
vit.layers.{i}.attention.o_proj.weight            attn.o     32x32     {i}/2  writes  maps 2
vit.layers.{i}.attention.o_proj.bias              bias       32        {i}/2
vit.layers.{i}.layernorm_before.weight            norm       32        {i}/2
vit.layers.{i}.layernorm_before.bias              norm.bias  32        {i}/2
vit.layers.{i}.layernorm_after.weight             norm       32        {i}/2
vit.layers.{i}.layernorm_after.bias               norm.bias  32        {i}/2
vit.layers.{i}.mlp.fc1.weight                     mlp.up     48x32     {i}/2  maps 2
vit.layers.{i}.mlp.fc1.bias                       bias       48        {i}/2
vit.layers.{i}.mlp.fc2.weight                     mlp.down   32x48     {i}/2  writes  maps 2
vit.layers.{i}.mlp.fc2.bias                       bias       32        {i}/2
vit.layernorm.weight                              norm       32        -/2
vit.layernorm.bias                                norm.bias  32        -/2
classifier.weight                                 head       5x32      -/2
classifier.bias                                   bias       5         -/2
"""

TABLES = {"gpt2": GPT2, "llama": LLAMA, "qwen3": QWEN3, "mixtral": MIXTRAL, "t5": T5, "vit": VIT}
RUNS = {"{i}": range(2), "{j}": range(3), "{e}": range(2)}


def expected(table: str) -> set[str]:
    lines = [" ".join(line.split()) for line in table.splitlines() if line.strip()]
    for mark, numbers in RUNS.items():
        lines = [line.replace(mark, str(n)) for line in lines for n in (numbers if mark in line else (0,))]
    return set(lines)


def told(fact: ParameterFact, part: ParameterFact) -> str:
    """The line of a matrix, as the tables above have it."""
    words = [part.name, part.role, "x".join(map(str, part.shape))]
    words.append(f"{'-' if part.layer is None else part.layer}/{part.n_layers}")
    words += ["writes"] * part.writes_residual
    words += [f"maps {part.maps}"] if part.maps else []
    words += ["transposed"] * part.transposed
    if fact.blocks:
        words += ["of", fact.name.removesuffix(".weight").rpartition(".")[2]]
        words += [] if part.expert is None else [str(part.expert)]
        words += ["{}:{}".format(*part.rows)] if part.rows else []
    words += [" ".join(("tied", *part.tied))] if part.tied else []
    return " ".join(words)


@pytest.mark.parametrize("family", EXACT)
def test_each_parameter_has_its_role(family):
    with torch.device("meta"):
        facts = parameter_facts(EXACT[family]())
    lines = [told(fact, part) for fact in facts for part in fact.parts()]
    assert len(lines) == len(set(lines))
    assert set(lines) == expected(TABLES[family])
    for part in (part for fact in facts for part in fact.parts()):
        if part.role in ("embed", "pos", "token"):
            assert part.d_in == 32
        elif part.is_matrix:
            assert part.d_in == torch.Size(part.shape[1:]).numel()
            assert part.d_out == part.shape[0]
        assert part.zero_row is None
        assert part.placement is None
