// Every key of a configuration: its member, what it may hold, what it means.
#include "config/fields.h"

namespace tfm::config {
namespace {

using Choices = std::vector<std::string_view>;

Field number(std::string_view name, double low, std::string_view help, double high = 2147483647.0) {
  return {.name = name, .help = help, .kind = FieldKind::count, .low = low, .high = high};
}
Field real(std::string_view name, double low, std::string_view help) {
  return {.name = name, .help = help, .kind = FieldKind::real, .low = low};
}
Field fraction(std::string_view name, std::string_view help) {  // [0, 1)
  return {
      .name = name, .help = help, .kind = FieldKind::real, .low = 0, .high = 1, .high_open = true};
}
Field flag(std::string_view name, std::string_view help) {
  return {.name = name, .help = help, .kind = FieldKind::boolean};
}
Field text(std::string_view name, std::string_view help) { return {.name = name, .help = help}; }
Field choice(std::string_view name, Choices choices, std::string_view help,
             std::vector<Refused> refused = {}) {
  return {.name = name,
          .help = help,
          .kind = FieldKind::choice,
          .choices = std::move(choices),
          .refused = std::move(refused)};
}
// One of the words of an enum of options.h.
Field option(std::string_view name, std::string_view help, std::vector<Refused> refused = {}) {
  return {.name = name, .help = help, .kind = FieldKind::choice, .refused = std::move(refused)};
}
Field section(std::string_view name, std::string_view help) { return {.name = name, .help = help}; }

Field required(Field f) { return f.required = true, f; }
Field derived(Field f, std::string_view from) { return f.fallback = from, f; }
Field up_to(double done, Field f, std::string_view why) {
  return f.high = done, f.refused = {{"*", why}}, f;
}
Field with_word(Field f, std::string_view word) { return f.automatic = word, f; }

void describe(DropoutConfig& d, FieldVisitor& v) {
  v.value(fraction("embedding", "probability after the embeddings"), d.embedding);
  v.value(fraction("attention", "probability on the attention weights"), d.attention);
  v.value(fraction("residual", "probability on the output of each sublayer"), d.residual);
  v.value(fraction("ffn", "probability on the hidden layer of the feed-forward network"), d.ffn);
}

void describe_dropout(DropoutConfig& d, FieldVisitor& v) {
  const Field f = fraction("dropout", "a number sets all four places, a section each");
  v.special(f, {.type = "a number >= 0 and < 1, or a section",
                .read =
                    [&d, f](FieldReader& reader, const YamlNode& node) {
                      if (double p = 0; reader.read_value(f, node, p)) d = {p, p, p, p};
                    },
                .flow =
                    [&d] {
                      if (d == DropoutConfig{d.embedding, d.embedding, d.embedding, d.embedding})
                        return number_text(d.embedding);
                      return "{embedding: " + number_text(d.embedding) +
                             ", attention: " + number_text(d.attention) +
                             ", residual: " + number_text(d.residual) +
                             ", ffn: " + number_text(d.ffn) + "}";
                    },
                .keys = [&d](FieldVisitor& inner) { describe(d, inner); }});
}

void describe(RopeConfig& r, FieldVisitor& v) {
  v.value(Field{.name = "theta",
                .help = "base of the wavelengths",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          r.theta);
  v.section(section("scaling", "frequency scaling as in Llama 3"), [&r](FieldVisitor& s) {
    RopeScaling& k = r.scaling;
    s.value(real("factor", 1, "long wavelengths are stretched by this; 1 switches the scaling off"),
            k.factor);
    s.value(real("low_freq_factor", 0,
                 "wavelengths above original_max_seq_len / this are stretched in full"),
            k.low_freq_factor);
    s.value(real("high_freq_factor", 0, "wavelengths below original_max_seq_len / this are kept"),
            k.high_freq_factor);
    s.value(number("original_max_seq_len", 1, "sequence length the model was first trained for"),
            k.original_max_seq_len);
  });
}

void describe_shape(ModelConfig& m, FieldVisitor& v) {
  v.value(required(number("vocab_size", 1,
                          "rows of the token embedding; the tokenizer's ids have to fit")),
          m.vocab_size);
  v.value(required(number("d_model", 1, "width of the residual stream", 1 << 20)), m.d_model);
  v.value(
      with_word(number("n_layers", 1,
                       "blocks; required but for an encoder_decoder that says both below", 10000),
                "auto"),
      m.n_layers);
  v.value(with_word(number("n_encoder_layers", 1,
                           "encoder_decoder: blocks of the encoder; auto: `n_layers`", 10000),
                    "auto"),
          m.n_encoder_layers);
  v.value(with_word(number("n_decoder_layers", 1,
                           "encoder_decoder: blocks of the decoder; auto: `n_layers`", 10000),
                    "auto"),
          m.n_decoder_layers);
  v.value(required(number("n_heads", 1, "attention heads", 65536)), m.n_heads);
  v.value(derived(number("n_kv_heads", 1,
                         "heads of keys and values; fewer: grouped-query, 1: multi-query", 65536),
                  "`n_heads`"),
          m.n_kv_heads);
  v.value(derived(number("d_head", 1, "width of a head", 65536), "`d_model / n_heads`"), m.d_head);
  v.value(derived(number("d_ff", 1, "width of the feed-forward network's hidden layer", 1 << 24),
                  "`4 d_model`; gated activations: `8/3 d_model` up to a multiple of 64"),
          m.d_ff);
  v.value(derived(number("max_seq_len", 1, "longest sequence; rows of a learned position table"),
                  "`train.seq_len`"),
          m.max_seq_len);
}

void describe_layers(ModelConfig& m, FieldVisitor& v) {
  v.value(option("position", "how positions enter"), m.position);
  v.value(number("position_offset", 0,
                 "row of a learned position table that the first position takes; BART: 2", 1 << 20),
          m.position_offset);
  v.value(option("sinusoid", "sine and cosine in turns, or all sines before all cosines"),
          m.sinusoid);
  v.section(section("rope", "rotary positions, for `position: rope`"),
            [&m](FieldVisitor& r) { describe(m.rope, r); });
  v.section(
      section("relative", "a bias of each head by distance, as in T5, for `position: relative`"),
      [&m](FieldVisitor& r) {
        r.value(number("buckets", 4, "entries of a head", 1 << 16), m.relative.buckets);
        r.value(number("max_distance", 4, "distances from here on share a bucket", 1 << 20),
                m.relative.max_distance);
      });
  v.value(option("norm", "normalization"), m.norm);
  v.value(option("norm_position", "before each sublayer, or after the residual sum"),
          m.norm_position);
  v.value(Field{.name = "norm_eps",
                .help = "added to the variance",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          m.norm_eps);
  v.value(option("activation", "of the feed-forward network"), m.activation);
  v.value(flag("bias", "linear layers and layernorms have biases"), m.bias);
  v.value(with_word(option("qkv_bias",
                           "of the layers that make queries, keys and values; auto: as `bias`"),
                    "auto"),
          m.qkv_bias);
  v.value(flag("qk_norm", "a norm of each head's queries and keys, before rotary positions"),
          m.qk_norm);
}

void describe_embeddings_and_head(ModelConfig& m, FieldVisitor& v) {
  v.value(option("tie_embeddings",
                 "the output layer shares the token embedding; encoder_decoder: all: source, "
                 "target and output; inputs: source and target; decoder: target and output; none"),
          m.tie_embeddings);
  v.value(flag("scale_embeddings", "multiplies token embeddings by sqrt(d_model)"),
          m.scale_embeddings);
  v.value(flag("embedding_norm", "a norm after the embeddings"), m.embedding_norm);
  v.value(number("decoder_start", -1,
                 "encoder_decoder: id that begins a target; -1: the tokenizer's begin"),
          m.decoder_start);
  v.value(number("padding_idx", -1,
                 "id whose embedding gets no gradient as an input, as in PyTorch; -1: none"),
          m.padding_idx);
  v.value(number("type_vocab_size", 0, "encoder: kinds of segments that have an embedding; 0: none",
                 1 << 16),
          m.type_vocab_size);
  v.value(flag("head_transform",
               "encoder: a dense layer, the activation and a norm before the output layer"),
          m.head_transform);
  v.value(flag("next_sentence",
               "encoder: has BERT's head for whether the second segment follows the first, which "
               "`data.train.next_sentence` trains"),
          m.next_sentence);
  v.value(
      with_word(option("head_bias", "of the output layer; auto: as `bias` where it is not tied"),
                "auto"),
      m.head_bias);
  v.value(flag("scale_attention", "divides attention scores by sqrt(d_head)"), m.scale_attention);
  v.value(flag("scale_logits", "divides the hidden state by sqrt(d_model) before the output layer"),
          m.scale_logits);
  v.value(Field{.name = "init_std",
                .help = "standard deviation of initial weights",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          m.init_std);
}

void describe(ModelConfig& m, FieldVisitor& v) {
  static const std::vector<std::string> names = preset_names();
  v.value(required(option("family",
                          "encoder: predicts masked tokens; decoder: the next token; "
                          "encoder_decoder: a target from a source")),
          m.family);
  v.value(with_word(choice("preset", Choices(names.begin(), names.end()),
                           "fills this section; anything written beside it wins"),
                    "none"),
          m.preset);
  v.value(text("init",
               "first weights: random, or a Hugging Face directory or a checkpoint, which also "
               "give the shape"),
          m.init);
  describe_shape(m, v);
  describe_layers(m, v);
  describe_embeddings_and_head(m, v);
  describe_dropout(m.dropout, v);
}

void describe(ParallelConfig& p, FieldVisitor& v) {
  v.value(number("tensor", 1, "ranks that split each layer", 65536), p.tensor);
  v.value(with_word(number("data", 1, "model replicas; auto: ranks / tensor", 65536), "auto"),
          p.data);
  v.value(up_to(1, number("pipeline", 1, "pipeline stages"),
                "layers cannot be split over ranks by depth"),
          p.pipeline);
  v.value(up_to(1, number("context", 1, "ranks that split a sequence"),
                "sequences cannot be split over ranks"),
          p.context);
  v.value(
      flag("sequence", "norms and dropout are split along the sequence inside the tensor group"),
      p.sequence);
  v.value(up_to(1, number("zero", 0, "1: optimizer state is split over the replicas"),
                "gradients and parameters cannot be split over the replicas"),
          p.zero);
  Field bytes = number("bucket_bytes", 1, "gradients are reduced in pieces of this size");
  bytes.kind = FieldKind::size;
  v.value(bytes, p.bucket_bytes);
  v.value(with_word(number("timeout", 1,
                           "seconds without progress in a collective after which the job ends with "
                           "exit code 75; auto: "
                           "ten times the longest step so far, between 30 and 300; CUDA graphs "
                           "over several ranks need more than a step takes",
                           1'000'000),
                    "auto"),
          p.timeout);
  v.value(option("backend",
                 "what moves tensors between GPUs; mpi: through memory of the host; auto: nccl "
                 "where it is built in and every rank has a GPU of its "
                 "own, else mpi; nccl where ranks share a GPU is for tests"),
          p.backend);
}

void describe(TrainConfig& t, FieldVisitor& v) {
  v.value(number("steps", 1, "optimizer steps"), t.steps);
  v.value(number("global_batch_size", 1, "sequences per optimizer step, over all ranks"),
          t.global_batch_size);
  v.value(number("global_batch_tokens", 0,
                 "pairs: tokens of a side per optimizer step, in batches of like length; replaces "
                 "global_batch_size; 0: off"),
          t.global_batch_tokens);
  v.value(with_word(number("micro_batch_size", 1,
                           "sequences per rank and pass; the rest is gradient accumulation"),
                    "auto"),
          t.micro_batch_size);
  v.value(number("seq_len", 1, "tokens per sequence", 1 << 24), t.seq_len);
  v.value(Field{.name = "seed",
                .help = "of initialization, dropout and shuffling",
                .kind = FieldKind::integer,
                .low = 0},
          t.seed);
}

void describe_betas(OptimizerConfig& o, FieldVisitor& v) {
  const Field f = fraction("betas", "decay of the averages of the gradient and of its square");
  v.special(
      f, {.type = "a list of two numbers >= 0 and < 1",
          .read =
              [&o, f](FieldReader& reader, const YamlNode& node) {
                if (node.kind != YamlNode::Kind::sequence || node.items.size() != 2)
                  return reader.error(
                      f, node,
                      "found " + describe(node) +
                          (node.items.empty() ? "" : " of " + std::to_string(node.items.size())) +
                          "; expected a list of two numbers, such as [0.9, 0.95]");
                reader.read_value(f, node.items[0], o.beta1);
                reader.read_value(f, node.items[1], o.beta2);
              },
          .flow = [&o] { return "[" + number_text(o.beta1) + ", " + number_text(o.beta2) + "]"; }});
}

void describe(OptimizerConfig& o, FieldVisitor& v) {
  const std::string_view legal = "an optimizer that works on each element alone is expected";
  v.value(option("type", "adamw decouples weight decay", {{"lamb", legal}, {"adafactor", legal}}),
          o.type);
  v.value(real("lr", 0, "highest learning rate"), o.lr);
  describe_betas(o, v);
  v.value(Field{.name = "eps",
                .help = "added to the root of the second average",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          o.eps);
  v.value(real("weight_decay", 0, "on matrices; not on biases, norms and position tables"),
          o.weight_decay);
  v.value(real("grad_clip", 0, "largest norm of the whole gradient; 0: off"), o.grad_clip);
  v.value(fraction("momentum", "of sgd"), o.momentum);
  v.value(fraction("ema",
                   "decay of an average of the weights, with which evaluation, generation and "
                   "export work; 0: off"),
          o.ema);
}

void describe(ScheduleConfig& s, FieldVisitor& v) {
  v.value(option("type", "course of the learning rate after warmup"), s.type);
  v.value(number("warmup_steps", 0, "steps of linear growth to `optimizer.lr`"), s.warmup_steps);
  v.value(real("min_lr", 0, "where the decay ends"), s.min_lr);
  v.value(number("decay_steps", 0,
                 "wsd: length of the final decay; cosine, linear: step at which min_lr is reached, "
                 "0: `train.steps`"),
          s.decay_steps);
}

bool read_source_path(FieldReader& reader, const YamlNode& node, SourcePath& out) {
  const Field path = text("path", "a file or a glob");
  if (node.kind != YamlNode::Kind::map) return reader.read_value(path, node, out.path);
  reader.read_section(node, "path", [&out](FieldVisitor& v) {
    v.value(required(text("path", "a file or a glob")), out.path);
    v.value(
        Field{
            .name = "weight", .help = "share", .kind = FieldKind::real, .low = 0, .low_open = true},
        out.weight);
  });
  return !out.path.empty();
}

void describe_paths(SourceConfig& s, FieldVisitor& v) {
  std::vector<SourcePath>& paths = s.paths;
  const Field f = required(text("path",
                                "a file, a glob, or a list of them; a weight is a source's share "
                                "of the samples; pairs: a file of "
                                "source, tab, target"));
  v.special(
      f, {.type = "text, or a list of text or {path, weight}",
          .read =
              [&s, &paths, f](FieldReader& reader, const YamlNode& node) {
                const bool list = node.kind == YamlNode::Kind::sequence;
                if (list && node.items.empty() && (s.source.empty() || s.target.empty()))
                  reader.error(f, node, "found an empty list; expected at least one path");
                paths.clear();
                for (const YamlNode& item : list ? node.items : std::vector<YamlNode>{node}) {
                  const YamlNode* written =
                      item.kind == YamlNode::Kind::map ? item.find("path") : nullptr;
                  reader.mark_item(f, paths.size(), written ? written->at : item.at);
                  if (SourcePath p; read_source_path(reader, item, p)) paths.push_back(p);
                }
              },
          .flow =
              [&paths] {
                if (paths.size() == 1 && paths[0].weight == 1) return quote_yaml(paths[0].path);
                std::string s = "[";
                for (const SourcePath& p : paths)
                  s += (s.size() > 1 ? ", {path: " : "{path: ") + quote_yaml(p.path) +
                       ", weight: " + number_text(p.weight) + "}";
                return s + "]";
              },
          .missing = [&s] { return s.paths.empty() && (s.source.empty() || s.target.empty()); }});
}

void describe(SourceConfig& s, FieldVisitor& v) {
  v.value(required(option("type",
                          "tokens: token files (llm.c, Megatron); text: tokenized while reading; "
                          "pairs: source and target lines; mlm, "
                          "span_corruption: token files or text of which a part is hidden")),
          s.type);
  v.value(with_word(text("source", "pairs: text file of the source lines"), "none"), s.source);
  v.value(with_word(text("target", "pairs: text file of the target lines"), "none"), s.target);
  describe_paths(s, v);
  v.value(
      with_word(fraction("mask_probability",
                         "mlm, span_corruption: share of the tokens that is hidden; auto: 0.15"),
                "auto"),
      s.mask_probability);
  v.value(
      with_word(real("mean_span_length", 1, "span_corruption: tokens of a hidden span; auto: 3"),
                "auto"),
      s.mean_span_length);
  v.value(flag("shuffle", "a new order each epoch, from the seed"), s.shuffle);
  v.value(
      option("documents",
             "tokens, text, mlm: separate: attention stays within a document, which the "
             "tokenizer's end-of-document id ends (`bytes`: 257); "
             "the next token of another document is no label; positions go on over the sequence"),
      s.documents);
  v.value(flag("next_sentence",
               "mlm: a sequence is [CLS] A [SEP] B [SEP], the halves of a sample; B is that of "
               "another sample half of the time, "
               "which `model.next_sentence` learns to tell"),
          s.next_sentence);
  v.value(text("field", "of `.jsonl` lines: the one that holds the text"), s.field);
}

void describe(DataConfig& d, FieldVisitor& v) {
  v.section(required(section("train", "'type' and 'path' of the training data")),
            [&d](FieldVisitor& s) { describe(d.train, s); });
  v.section(
      section("validation", "what `eval` measures"),
      [&d](FieldVisitor& s) {
        if (!d.validation) d.validation.emplace();
        describe(*d.validation, s);
      },
      !d.validation);
  v.value(
      text("tokenizer",
           "`bytes`, a `tokenizer.json`, a SentencePiece `.model`, or a directory with "
           "`tokenizer.json`, with MarianMT's "
           "`source.spm`, `target.spm` and `vocab.json`, or with `vocab.json` and `merges.txt`"),
      d.tokenizer);
}

void describe_metrics(EvalConfig& e, FieldVisitor& v) {
  constexpr auto metrics = words(Metric{});
  const Field f = choice("metrics", Choices(metrics.begin(), metrics.end()),
                         "loss, without label smoothing, and perplexity are always measured; "
                         "accuracy: share of the labels that are the most "
                         "likely id; bleu, chrf: of translations of pairs");
  v.special(f, {.type = "a list of `loss`, `perplexity`, `accuracy`, `bleu`, `chrf`",
                .read =
                    [&e, f](FieldReader& reader, const YamlNode& node) {
                      e.metrics = EvalConfig().metrics;
                      for (const YamlNode& item : node.kind == YamlNode::Kind::sequence
                                                      ? node.items
                                                      : std::vector<YamlNode>{node}) {
                        std::string text;
                        if (!reader.read_value(f, item, text)) continue;
                        const auto metric = value_of<Metric>(text);
                        if (metric && !e.has(*metric)) e.metrics.push_back(*metric);
                      }
                    },
                .flow =
                    [&e] {
                      std::string s;
                      for (const Metric m : e.metrics) s += (s.empty() ? "" : ", ") + word(m);
                      return "[" + s + "]";
                    }});
}

void describe(EvalConfig& e, FieldVisitor& v) {
  v.value(number("every", 0, "steps between measurements; 0: never"), e.every);
  v.value(number("batches", 0, "global batches per measurement; 0: the whole validation data"),
          e.batches);
  describe_metrics(e, v);
  v.value(number("beam", 1, "hypotheses kept at each step of a translation; 1: greedy", 1024),
          e.beam);
  v.value(real("length_penalty", 0,
               "X: the best translation has the highest sum of log-probabilities / tokens^X"),
          e.length_penalty);
  v.section(
      section("stop",
              "ends training when a metric gets no better; its best checkpoint is called `best` "
              "and stays"),
      [&e](FieldVisitor& s) {
        if (!e.stop) e.stop.emplace();
        s.value(option("metric", "the one to watch"), e.stop->metric);
        s.value(required(number(
                    "patience", 1,
                    "measurements in a row without a new best value after which training ends")),
                e.stop->patience);
      },
      !e.stop);
}

void describe_upkeep(Config& c, FieldVisitor& v) {
  v.section(section("eval", "measurement on the validation data"),
            [&c](FieldVisitor& s) { describe(c.eval, s); });
  v.section(section("checkpoint", "saving and resuming"), [&c](FieldVisitor& s) {
    s.value(with_word(text("dir", "folder of the checkpoints; none: no checkpoints"), "none"),
            c.checkpoint.dir);
    s.value(number("every", 0, "steps between checkpoints; 0: only at the end and on request"),
            c.checkpoint.every);
    s.value(number("keep", 1, "newest checkpoints that stay"), c.checkpoint.keep);
    s.value(text("resume", "auto: from the newest in `dir`; never; or the path of a checkpoint"),
            c.checkpoint.resume);
  });
  v.section(section("metrics", "what a run reports"), [&c](FieldVisitor& s) {
    s.value(with_word(text("jsonl", "file of one JSON object a line; none: no file"), "none"),
            c.metrics.jsonl);
    s.value(text("listen", "host:port of `/metrics` and `/healthz`; none: off"), c.metrics.listen);
    s.value(number("log_every", 1, "steps between logged steps"), c.metrics.log_every);
  });
}

}  // namespace

void describe_config(Config& c, FieldVisitor& v) {
  v.section(required(section("model", "'family' and the model's sizes, or a 'preset'")),
            [&c](FieldVisitor& s) { describe(c.model, s); });
  v.section(section("parallel", "how ranks share the work"),
            [&c](FieldVisitor& s) { describe(c.parallel, s); });
  v.value(option("precision",
                 "of parameters and activations; 16-bit ones have fp32 master weights, gradients "
                 "of parameters and moments, fp16 also dynamic loss scaling"),
          c.precision);
  v.value(flag("tf32", "products of fp32 on a GPU round their factors to 10 bits of fraction"),
          c.tf32);
  v.value(option("recompute", "activations computed again in the backward pass"), c.recompute);
  v.value(option("cuda_graphs",
                 "a micro-batch on a GPU as one launch; auto: where no collective inside it passes "
                 "through the host; on: an error elsewhere"),
          c.cuda_graphs);
  v.value(
      option(
          "numerics",
          "deterministic: bit-equal results from run to run; a GPU chooses nothing by measurement"),
      c.numerics);
  v.value(option("device",
                 "what a rank computes on; auto: cpu in this version, whose GPU code has not run "
                 "on a GPU yet"),
          c.device);
  v.section(section("train", "length, batch and seed of the run"),
            [&c](FieldVisitor& s) { describe(c.train, s); });
  v.section(section("optimizer", "the update rule"),
            [&c](FieldVisitor& s) { describe(c.optimizer, s); });
  v.section(section("schedule", "learning rate over steps"),
            [&c](FieldVisitor& s) { describe(c.schedule, s); });
  v.section(section("loss", "training objective"), [&c](FieldVisitor& s) {
    s.value(fraction("label_smoothing", "probability spread evenly over the vocabulary"),
            c.loss.label_smoothing);
    s.value(option("smoothing_denominator",
                   "the label has a part of what is spread, or only the other ids have"),
            c.loss.smoothing_denominator);
  });
  v.section(required(section("data", "'train' with 'type' and 'path'")),
            [&c](FieldVisitor& s) { describe(c.data, s); });
  describe_upkeep(c, v);
}

}  // namespace tfm::config
