"""How each number of a study's page is computed."""

DEFINITIONS = {
    "loss": "Held-out cross entropy after the last step, nats per token, on sequences that are the same for all runs on"
    " a store. Bits per byte: the same in bits, over the bytes of the text.",
    "arm, size, share": "An arm is a combination of levels of the axes. A share of the budget below 1 is a run that "
    "branches off the run of the whole budget and cools down earlier: it is a finished run of that many tokens. A "
    "size such as 4x16 has 4 layers of width 16.",
    "seed": "Decides the drawn weights and the order of the data; arms share seeds, so that their runs pair.",
    "sd, 95 % interval": "Over seeds: standard deviation (n − 1), and Student's t interval of the mean. It says how "
    "far seeds reach, not what another corpus, vocabulary or scale would give, nor what the choice of the rate adds: "
    "it was made on one seed, from a grid, and all seeds share it.",
    "difference, p": "Mean over seeds of loss of the level less that of the baseline, of runs of one seed; two-sided "
    "paired t test.",
    "p (Holm)": "Corrected by Holm's step-down over a family: all comparisons with the baseline at the same share of "
    "the budget. A smaller share is a family of its own.",
    "tokens": "Read: steps times batch times length, padding included. Learning curves count those that were "
    "predicted, a little fewer: the first of a document is not.",
    "tokens / param.": "Tokens of a run over all parameters, a tied head counted once; “without emb.”: over those "
    "outside embeddings and head. Of a difference, the level's own parameters.",
    "FLOPs": "Of forward and backward passes from the first step, counted on paper.",
    "end slope": "Change of the loss with a doubling of tokens, nats, mean over seeds: from the run of the next "
    "smaller share to this one, each with its own cooldown. Where a study has one share it is the slope over log2 "
    "tokens of the last half of a run, least squares; the cooldown makes that steeper than a longer run would be.",
    "a doubling": "Change of the difference with a doubling of tokens (shares of one size) or of parameters (sizes of "
    "one share): least-squares slope of each seed's differences over log2. Where a difference is negative, a positive "
    "change means that it shrinks.",
    "tokens, ratio": "Tokens that the learner needs to reach the other's final loss, over those that the other took; "
    "geometric mean over seeds. By ends: between the shares of the budget, each a run with its own cooldown; the "
    "parabola through the three nearest, in logarithms. By curves, where there is one share: along the run, whose "
    "rate is still high before its end, so that the ratio of a better learner comes out too near to 1.",
    "effective size": "N′, the number of parameters with which the baseline would have the level's loss at N. With "
    "five sizes or more from a fit L = E + A·N^−α of each seed, E and α shared by both; with fewer the baseline's log"
    " loss is interpolated over log N; never extrapolated. Where a level has parameters that the baseline lacks, N is"
    " the baseline's.",
    "optimum": "Lowest point of the polynomial through the five values around the lowest mean loss, with the values at "
    "which the slope is not told from zero over seeds.",
    "flow, masking, sink": "Residual flow r = ‖h − e‖/‖e‖ (S0, sections 2.4 and 5). Masking m = ε/(mean square + ε) "
    "of a norm (S0, section 2.1). Sink score of S0, equation 5; “uniform” is that of even attention at this length.",
    "gain, tenth of difficulty": "Loss of the baseline less the level's, nats, by tenths of the mean loss of both, "
    "over the held-out sequences that were looked at, in pairs of one seed; the gain of probability is (p − p′)/(p + "
    "p′).",
    "scores": "Of the models after their last step, as `seedbed eval` makes them: bits per byte and perplexity over "
    "all tokens of the documents of a subset, each read from its beginning; accuracy is the share of minimal pairs "
    "whose acceptable sentence is likelier. Intervals are over seeds, not over other documents.",
    "rank / width": "Entropy rank exp(−Σ p ln p), p = σ/Σσ, over the smaller side of the matrix.",
    "S0": "The paper on small initialization.",
}
