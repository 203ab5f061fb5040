// Keys of a layer's mixer and of its rotary positions.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe(RopeScaling& k, FieldVisitor& s) {
  s.value(option("type",
                 "llama3: stretches long wavelengths, as Llama 3.1; linear: all wavelengths; ntk: "
                 "another base; yarn: wavelengths by how often they turn, and scores; longrope: "
                 "each by a factor of its own (`model.longrope`), as Phi-3"),
          k.type);
  s.value(real("factor", 1, "factor by which wavelengths are stretched; 1: no scaling"), k.factor);
  s.value(real("low_freq_factor", 0,
               "llama3: wavelengths above original_max_seq_len / low_freq_factor are stretched by "
               "the full factor"),
          k.low_freq_factor);
  s.value(real("high_freq_factor", 0,
               "llama3: wavelengths below original_max_seq_len / high_freq_factor are left "
               "unchanged"),
          k.high_freq_factor);
  s.value(number("original_max_seq_len", 1, "sequence length of the original pretraining"),
          k.original_max_seq_len);
  s.value(
      real("beta_fast", 0, "yarn: what turns more often in the original length is left unchanged"),
      k.beta_fast);
  s.value(real("beta_slow", 0, "yarn: what turns less often is stretched by the full factor"),
          k.beta_slow);
  s.value(flag("truncate", "yarn: round the ends of the ramp between these to whole indices"),
          k.truncate);
  s.value(with_word(real("attention_factor", 0,
                         "yarn, longrope: factor of queries and keys; auto: by `factor`"),
                    "auto"),
          k.attention_factor);
  s.value(real("mscale", 0,
               "yarn: with mscale_all_dim, factor of queries and keys by the quotient of both, as "
               "DeepSeek-V3; 0: not"),
          k.mscale);
  s.value(real("mscale_all_dim", 0, "yarn: see mscale; latent attention scales scores by it"),
          k.mscale_all_dim);
}

void describe(BlocksConfig& b, FieldVisitor& s) {
  s.value(number("size", 0,
                 "positions of a block, which sees those beside it and is seen by them; the first "
                 "and, unless causal, the last block see all and are seen by all; 0: no blocks",
                 1 << 28),
          b.size);
  s.value(number("random", 0, "further blocks that each block sees", 1024), b.random);
  s.value(number("seed", 0, "of the further blocks, which differ between layers"), b.seed);
  s.value(
      option("others",
             "drawn: further blocks are drawn; first, in encoders: each is the first block, "
             "which counts so often, and sequences of at most 5 + 2 `random` blocks see all, as "
             "transformers evaluates BigBird"),
      b.others);
}

void describe(StridedConfig& c, FieldVisitor& s) {
  s.value(number("step", 0,
                 "a query sees the keys that are a multiple of so many positions away, beyond the "
                 "window; 0: none",
                 1 << 28),
          c.step);
  s.value(number("reach", 0,
                 "of them those at most so many positions away; 0: all. With `window` 1 this is a "
                 "dilated window",
                 1 << 28),
          c.reach);
}

}  // namespace

void describe(RopeConfig& r, FieldVisitor& v) {
  v.value(Field{.name = "theta",
                .help = "base of the rotation frequencies",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          r.theta);
  v.value(Field{.name = "fraction",
                .help = "part of each head's columns that turn, its first ones",
                .kind = FieldKind::real,
                .low = 0,
                .high = 1,
                .low_open = true},
          r.fraction);
  v.section(section("scaling", "scaling to sequences longer than those of the pretraining"),
            [&r](FieldVisitor& s) { describe(r.scaling, s); });
}

void describe(AttentionConfig& c, FieldVisitor& v) {
  v.value(
      choice(
          "type", mixer_types(),
          "softmax: attention (Vaswani et al. 2017); latent: with keys and values of low rank, "
          "which a generation keeps (DeepSeek-V2); linear: sums over positions (Katharopoulos et "
          "al. 2020); gated_delta, in decoders: a state that decays and is corrected, after a "
          "short convolution (Yang et al. 2025), as Qwen3-Next; mamba2, in decoders: a state that "
          "decays by steps that the input chooses, after a short convolution (Dao and Gu 2024), as "
          "Bamba"),
      c.type);
  v.value(number("window", 0,
                 "self-attention, causal: number of keys that a query sees, itself included; else "
                 "half of it on each side; 0: all"),
          c.window);
  v.value(number("global_tokens", 0,
                 "so many first positions see all, and are seen by all, beyond the window (Beltagy "
                 "et al. 2020)"),
          c.global_tokens);
  v.value(flag("global_projections",
               "encoders: global tokens look at all with queries, keys and values of their own "
               "projections, as Longformer"),
          c.global_projections);
  v.section(section("strided",
                    "keys at multiples of a distance (Child et al. 2019; dilated windows of "
                    "Beltagy et al. 2020)"),
            [&c](FieldVisitor& s) { describe(c.strided, s); });
  v.section(section("blocks", "positions in blocks, in place of a window (Zaheer et al. 2020)"),
            [&c](FieldVisitor& s) { describe(c.blocks, s); });
  v.value(flag("prefix",
               "decoders, data of type prefix_lm: tokens of the first part see each other, before "
               "and behind them (Raffel et al. 2020, 3.2.1); of a generation those of the prompt"),
          c.prefix);
  v.value(real("softcap", 0,
               "c: a score x becomes c tanh(x / c), before biases and masks, as Gemma 2; 0: none"),
          c.softcap);
  v.value(
      flag("sinks", "each head learns one more score, of a key whose value is zero, as gpt-oss"),
      c.sinks);
  v.value(flag("output_gate",
               "multiply outputs of heads by sigmoids of a projection of the input, as Qwen3-Next; "
               "not of cross-attention"),
          c.output_gate);
  v.value(with_word(number("query_scalar", 1,
                           "`scale_attention` divides scores by its square root; auto: `d_head`"),
                    "auto"),
          c.query_scalar);
  v.value(number("q_rank", 0, "latent: rank of queries; 0: full", 1 << 20), c.q_rank);
  v.value(
      derived(number("kv_rank", 0, "latent: rank of keys and values", 1 << 20), "`4 * value_size`"),
      c.kv_rank);
  v.value(derived(number("rope_size", 0,
                         "latent: the last columns of each head, which have rotary positions and "
                         "of keys are the same in all heads",
                         65536),
                  "`d_head / 3`"),
          c.rope_size);
  v.value(derived(number("value_size", 0,
                         "latent, gated_delta, mamba2: dimension of each head's values; d_head is "
                         "that of queries and keys (of mamba2: C and B)",
                         65536),
                  "latent `d_head - rope_size`, gated_delta `d_head`, mamba2 `2 * d_model / "
                  "n_heads`"),
          c.value_size);
  v.value(derived(number("key_heads", 0,
                         "gated_delta, mamba2: number of heads of queries and keys, each of which "
                         "serves n_heads / key_heads heads of values",
                         65536),
                  "gated_delta `n_heads`, mamba2 `1`"),
          c.key_heads);
  v.value(derived(number("convolution", 0,
                         "gated_delta, mamba2: positions of the short convolution, 2 to 8", 8),
                  "`4`"),
          c.convolution);
}

}  // namespace tfm::config
