// The rules between keys, in one place: what follows from what, and what fits together.
#include <algorithm>
#include <set>

#include "config/fields.h"

namespace tfm::config {
namespace {

constexpr std::int64_t kAutoTokens = 4096;  // tokens of a micro-batch that `auto` does not exceed

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// At most twelve values, those nearest to `around`.
std::string listed(std::vector<std::int64_t> values, std::int64_t around) {
  constexpr std::size_t kMost = 12;
  const auto distance = [around](std::int64_t v) { return v > around ? v - around : around - v; };
  const bool cut = values.size() > kMost;
  std::stable_sort(values.begin(), values.end(),
                   [&](auto a, auto b) { return distance(a) < distance(b); });
  if (cut) values.resize(kMost);
  std::sort(values.begin(), values.end());
  return join(values) + (cut ? ", ..." : "");
}

std::string text(std::int64_t n) { return std::to_string(n); }

void check_heads(const ModelConfig& m, const Report& report) {
  if (m.d_head == 0 && m.n_heads > 0 && m.d_model % m.n_heads != 0)
    report({"model.n_heads", "model.d_model", "model.preset"},
           "d_model " + text(m.d_model) + " is not divisible by n_heads " + text(m.n_heads) + " (" +
               text(m.d_model) + " = " + text(m.d_model / m.n_heads) + " * " + text(m.n_heads) +
               " + " + text(m.d_model % m.n_heads) + "); legal values of n_heads are " +
               listed(divisors(m.d_model), m.n_heads),
           "or set d_head");
  if (m.n_kv_heads > 0 && m.n_heads % m.n_kv_heads != 0)
    report({"model.n_kv_heads", "model.n_heads", "model.preset"},
           "n_heads " + text(m.n_heads) + " is not divisible by n_kv_heads " + text(m.n_kv_heads) +
               "; legal values of n_kv_heads are " + listed(divisors(m.n_heads), m.n_kv_heads),
           "");
  if (m.position == Position::rope && m.d_head % 2 != 0)
    report({"model.d_head", "model.position", "model.n_heads"},
           "d_head " + text(m.d_head) +
               " is odd, but position rope rotates pairs; expected an even d_head",
           "");
  if (m.position == Position::sinusoidal && m.d_model % 2 != 0)
    report({"model.d_model", "model.position"},
           "d_model " + text(m.d_model) +
               " is odd, but position sinusoidal fills pairs; expected an even d_model",
           "");
  const RopeScaling& s = m.rope.scaling;
  if (m.position == Position::rope && s.factor != 1 &&
      !(s.low_freq_factor > 0 && s.low_freq_factor < s.high_freq_factor))
    report({"model.rope.scaling.low_freq_factor", "model.rope.scaling.high_freq_factor",
            "model.rope.scaling.factor"},
           "low_freq_factor " + number_text(s.low_freq_factor) + " and high_freq_factor " +
               number_text(s.high_freq_factor) +
               " leave no band between them; expected 0 < low_freq_factor < high_freq_factor",
           "");
}

// Reports a key that is given where it does not fit.
using Only = std::function<void(bool given, bool fits, const std::string& key,
                                const std::string& where, const std::string& instead)>;

Only only_with(const Report& report) {
  return [&report](bool given, bool fits, const std::string& key, const std::string& where,
                   const std::string& instead) {
    if (given && !fits)
      report({key, "model.preset"},
             quoted(key) + " is expected with " + where + " only" +
                 (instead.empty() ? "" : "; use " + instead),
             "");
  };
}

// A data source and the model's family.
void check_source(const Config& c, const SourceConfig& s, const std::string& section,
                  const Report& report) {
  const ModelConfig& m = c.model;
  const bool encoder = m.family == Family::encoder;
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where) {
    only_with(report)(given, fits, key, where, "");
  };
  const bool fits = encoder ? s.type == SourceType::mlm
                    : m.translates()
                        ? s.type == SourceType::pairs || s.type == SourceType::span_corruption
                        : s.type == SourceType::tokens || s.type == SourceType::text;
  if (!fits && s.type != SourceType::unset)
    report({section + ".type", "model.family"},
           section + ".type " + word(s.type) + " does not train family " + word(m.family) +
               "; expected " +
               (encoder          ? "mlm"
                : m.translates() ? "pairs or span_corruption"
                                 : "tokens or text"),
           "");
  only(!s.source.empty() || !s.target.empty(), s.type == SourceType::pairs,
       section + (s.source.empty() ? ".target" : ".source"), "type pairs");
  only(s.mask_probability > 0, s.type == SourceType::mlm || s.type == SourceType::span_corruption,
       section + ".mask_probability", "types mlm and span_corruption");
  only(s.documents == Documents::separate,
       s.type == SourceType::tokens || s.type == SourceType::text || s.type == SourceType::mlm,
       section + ".documents", "types tokens, text and mlm");
  only(s.next_sentence, s.type == SourceType::mlm, section + ".next_sentence", "type mlm");
  only(s.next_sentence && s.type == SourceType::mlm, m.next_sentence, section + ".next_sentence",
       "model.next_sentence true");
  only(s.next_sentence, s.documents == Documents::joined, section + ".next_sentence",
       "documents joined");
  only(s.next_sentence, m.type_vocab_size != 1, section + ".next_sentence",
       "model.type_vocab_size 0 (none) or 2");
  only(s.next_sentence, c.train.seq_len >= 5, section + ".next_sentence", "train.seq_len >= 5");
  only(s.mean_span_length > 0, s.type == SourceType::span_corruption, section + ".mean_span_length",
       "type span_corruption");
  if (s.type == SourceType::pairs && !s.paths.empty() && (!s.source.empty() || !s.target.empty()))
    report({section + ".path", section + ".source"},
           "both 'path' and 'source' or 'target' are given; expected one file of pairs, or two "
           "files",
           "");
}

// What belongs to one family, or to one kind of position, is refused elsewhere.
void check_family(const Config& c, const Report& report) {
  const ModelConfig& m = c.model;
  const auto missing = [&](const std::string& key, std::int64_t value) {
    if (value == 0)
      report({key, "model"}, quoted(key) + " is missing; expected a whole number >= 1", "");
  };
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where,
                        const std::string& instead = "") {
    only_with(report)(given, fits, key, where, instead);
  };
  if (m.translates()) {
    missing("model.n_encoder_layers", m.n_encoder_layers);
    missing("model.n_decoder_layers", m.n_decoder_layers);
  } else {
    missing("model.n_layers", m.n_layers);
    only(m.n_encoder_layers > 0, false, "model.n_encoder_layers", "family encoder_decoder",
         "'n_layers'");
    only(m.n_decoder_layers > 0, false, "model.n_decoder_layers", "family encoder_decoder",
         "'n_layers'");
    only(m.tie_embeddings == TieEmbeddings::decoder || m.tie_embeddings == TieEmbeddings::inputs,
         false, "model.tie_embeddings", "family encoder_decoder", "true or false");
  }
  if (m.init != "random" && !m.preset.empty())
    report({"model.init", "model.preset"},
           "model.init and model.preset both give the shape; expected one of them, or model.preset "
           "none",
           "");
  const bool encoder = m.family == Family::encoder;
  const std::int64_t exact = m.relative.buckets / (m.decodes() ? 2 : 4);
  if (m.position == Position::relative && m.relative.max_distance <= exact)
    report({"model.relative.max_distance", "model.relative.buckets", "model.position"},
           "max_distance " + text(m.relative.max_distance) + " is within the " + text(exact) +
               " distances that have a bucket each; expected more than " + text(exact),
           "");
  only(m.type_vocab_size > 0, encoder, "model.type_vocab_size", "family encoder");
  only(m.decoder_start >= 0, m.translates(), "model.decoder_start", "family encoder_decoder");
  only(m.head_transform, encoder, "model.head_transform", "family encoder");
  only(m.next_sentence, encoder, "model.next_sentence", "family encoder");
  only(m.position_offset > 0, m.position == Position::learned, "model.position_offset",
       "position learned");
  only(m.sinusoid == Sinusoid::halves, m.position == Position::sinusoidal, "model.sinusoid",
       "position sinusoidal");
  check_source(c, c.data.train, "data.train", report);
  if (c.data.validation) check_source(c, *c.data.validation, "data.validation", report);
  if (c.data.validation && m.translates() && c.data.validation->type != c.data.train.type)
    report({"data.validation.type", "data.train.type"},
           "data.validation.type " + word(c.data.validation->type) +
               " differs from data.train.type " + word(c.data.train.type) +
               "; expected the same objective",
           "");
  only(c.train.global_batch_tokens > 0, c.data.train.type == SourceType::pairs,
       "train.global_batch_tokens", "data of type pairs", "global_batch_size");
}

void check_schedule(const Config& c, const Report& report) {
  const ScheduleConfig& s = c.schedule;
  const std::string steps = text(c.train.steps);
  if (s.min_lr > c.optimizer.lr)
    report({"schedule.min_lr", "optimizer.lr"},
           "min_lr " + number_text(s.min_lr) + " is above optimizer.lr " +
               number_text(c.optimizer.lr) + "; expected min_lr <= lr",
           "");
  if (s.type == ScheduleType::wsd && s.decay_steps == 0)
    report({"schedule.decay_steps", "schedule.type"},
           "schedule wsd needs decay_steps, the length of its final decay; expected 1 to "
           "train.steps - warmup_steps = " +
               text(c.train.steps - s.warmup_steps),
           "");
  if (s.type == ScheduleType::wsd && s.decay_steps > 0 &&
      s.warmup_steps + s.decay_steps > c.train.steps)
    report({"schedule.decay_steps", "schedule.warmup_steps", "train.steps"},
           "warmup_steps " + text(s.warmup_steps) + " + decay_steps " + text(s.decay_steps) +
               " = " + text(s.warmup_steps + s.decay_steps) + " exceeds train.steps " + steps +
               "; expected a sum of at most " + steps,
           "");
  const bool decays = s.type == ScheduleType::cosine || s.type == ScheduleType::linear;
  if (decays && s.decay_steps > 0 && s.decay_steps <= s.warmup_steps)
    report({"schedule.decay_steps", "schedule.warmup_steps"},
           "decay_steps " + text(s.decay_steps) + " is not above warmup_steps " +
               text(s.warmup_steps) +
               "; expected the decay to end after the warmup, or 0 for train.steps",
           "");
  if ((s.type == ScheduleType::noam || s.type == ScheduleType::inverse_sqrt) && s.warmup_steps == 0)
    report({"schedule.warmup_steps", "schedule.type"},
           "schedule " + word(s.type) +
               " falls with the steps after warmup; expected warmup_steps >= 1",
           "");
}

void check_listen(const Config& c, const Report& report) {
  const std::string& listen = c.metrics.listen;
  if (listen == "none") return;
  const auto colon = listen.rfind(':');
  const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (colon == 0 || !digits || std::stoi(port) > 65535)
    report(
        {"metrics.listen"},
        quoted(listen) + " is no address; expected none or host:port, such as \"127.0.0.1:9750\"",
        "");
}

void check_device(const Config& c, const Report& report) {
  if (c.tf32 && (c.device != DeviceKind::cuda || c.precision != Precision::fp32))
    report(
        {"tf32", "device", "precision"},
        "TF32 is of fp32 products on a GPU; expected device cuda and precision fp32, or tf32 false",
        "");
  if (c.cuda_graphs == CudaGraphs::on && c.device != DeviceKind::cuda)
    report({"cuda_graphs", "device"},
           "graphs are of work on a GPU; expected device cuda, or cuda_graphs auto", "");
  if (c.parallel.backend == Backend::nccl && c.device != DeviceKind::cuda)
    report({"parallel.backend", "device"},
           "NCCL moves tensors between GPUs; expected device cuda, or parallel.backend auto or mpi",
           "");
}

void check_metrics(const Config& c, const Report& report) {
  const EvalConfig& e = c.eval;
  if (e.translates() && c.data.validation && c.data.validation->type != SourceType::pairs)
    report({"eval.metrics", "eval.stop.metric", "data.validation.type"},
           "bleu and chrf are of translations; expected data.validation of type pairs, or another "
           "metric",
           "");
  if (e.stop && e.every == 0)
    report({"eval.stop", "eval.every"},
           "eval.stop looks at measurements, but eval.every is 0; expected the steps between them",
           "");
  if ((e.beam != 1 || e.length_penalty != 1) && !e.translates())
    report({e.beam != 1 ? "eval.beam" : "eval.length_penalty", "eval.metrics"},
           "no translations are made; expected bleu or chrf in eval.metrics, or the default 1", "");
}

void check_data(const Config& c, const Report& report) {
  const ModelConfig& m = c.model;
  if (m.position == Position::learned && c.train.seq_len > m.max_seq_len)
    report(
        {"train.seq_len", "model.max_seq_len", "model.preset"},
        "train.seq_len " + text(c.train.seq_len) + " exceeds model.max_seq_len " +
            text(m.max_seq_len) +
            ", the rows of the learned position table; expected seq_len <= " + text(m.max_seq_len),
        "");
  const auto reads_text = [&](const SourceConfig& s) { return s.type == SourceType::text; };
  const bool tokenizes =
      reads_text(c.data.train) || (c.data.validation && reads_text(*c.data.validation));
  if (tokenizes && c.data.tokenizer == "bytes" && m.vocab_size < 256)
    report({"model.vocab_size", "data.tokenizer"},
           "vocab_size " + text(m.vocab_size) +
               " is too small for the tokenizer bytes, whose ids are 0 to 255; expected >= 256",
           "");
  if (c.eval.every > 0 && !c.data.validation)
    report({"eval.every", "data.validation"},
           "eval.every is " + text(c.eval.every) +
               " but there is no data.validation; expected both, or eval.every 0",
           "");
  check_metrics(c, report);
  if (c.checkpoint.every > 0 && c.checkpoint.dir.empty())
    report({"checkpoint.every", "checkpoint.dir"},
           "checkpoint.every is " + text(c.checkpoint.every) +
               " but there is no checkpoint.dir; expected both, or checkpoint.every 0",
           "");
}

// A rule that the number of ranks breaks, with the keys involved, the likeliest culprit first.
using Refuse = std::function<void(const std::vector<std::string>& keys, const std::string&)>;

void check_tensor(const Config& c, int ranks, const Refuse& refuse) {
  const std::int64_t t = c.parallel.tensor;
  const ModelConfig& m = c.model;
  std::vector<std::int64_t> legal;
  for (std::int64_t d : divisors(ranks))
    if (m.n_heads % d == 0 && m.n_kv_heads % d == 0 && m.d_ff % d == 0) legal.push_back(d);
  const std::string values =
      "; legal values of parallel.tensor on " + text(ranks) + " ranks are " + listed(legal, t);
  if (ranks % t != 0)
    refuse(
        {"parallel.tensor"},
        "the " + text(ranks) + " ranks are not divisible by parallel.tensor " + text(t) + values);
  const auto check = [&](const char* name, std::int64_t size) {
    if (size % t == 0) return;
    std::vector<std::int64_t> divide = divisors(size);
    refuse({"parallel.tensor", "model." + std::string(name)},
           std::string(name) + " " + text(size) + " is not divisible by parallel.tensor " +
               text(t) + "; parallel.tensor has to be one of " + listed(divide, t) + values);
  };
  check("n_heads", m.n_heads);
  check("n_kv_heads", m.n_kv_heads);
  check("d_ff", m.d_ff);
}

void resolve_micro_batch(Config& c, const Refuse& refuse) {
  if (c.train.global_batch_tokens > 0) return;  // any number of sequences: the rest is padding
  const std::int64_t data = c.parallel.data, tensor = c.parallel.tensor,
                     batch = c.train.global_batch_size, length = c.train.seq_len;
  if (batch % data != 0) {
    std::vector<std::int64_t> near;
    for (std::int64_t k : {batch / data, batch / data + 1})
      if (k > 0) near.push_back(k * data);
    return refuse({"train.global_batch_size", "parallel.data", "parallel.tensor"},
                  "train.global_batch_size " + text(batch) + " is not divisible by the " +
                      text(data) + " replicas (parallel.data); the nearest legal values are " +
                      join(near));
  }
  const std::int64_t local = batch / data;
  const bool split = c.parallel.sequence && tensor > 1;
  std::vector<std::int64_t> legal;
  for (std::int64_t m : divisors(local))
    if (!split || m * length % tensor == 0) legal.push_back(m);
  const std::string rule =
      "sequence parallelism splits micro_batch_size * seq_len positions over parallel.tensor " +
      text(tensor);
  if (legal.empty())
    return refuse(
        {"parallel.sequence", "train.seq_len", "train.global_batch_size", "parallel.tensor"},
        rule + ", but no divisor of the " + text(local) +
            " sequences of a replica times train.seq_len " + text(length) + " is a multiple of " +
            text(tensor) + "; expected a seq_len that is, or parallel.sequence false");
  std::int64_t& micro = c.train.micro_batch_size;
  if (micro == 0) {
    micro = legal.front();
    for (std::int64_t m : legal)
      if (m * length <= kAutoTokens) micro = m;
  } else if (local % micro != 0) {
    refuse({"train.micro_batch_size"},
           "the " + text(local) + " sequences of a replica (train.global_batch_size " +
               text(batch) + " / parallel.data " + text(data) +
               ") are not divisible by train.micro_batch_size " + text(micro) +
               "; legal values are auto, " + listed(legal, micro));
  } else if (split && micro * length % tensor != 0) {
    refuse({"train.micro_batch_size"},
           rule + ", but train.micro_batch_size " + text(micro) + " * train.seq_len " +
               text(length) + " = " + text(micro * length) +
               " is not divisible by it; legal values of micro_batch_size are auto, " +
               listed(legal, micro));
  }
}

}  // namespace

void fill_derived(Config& c) {
  ModelConfig& m = c.model;
  if (m.n_kv_heads == 0) m.n_kv_heads = m.n_heads;
  if (m.d_head == 0 && m.n_heads > 0 && m.d_model % m.n_heads == 0)
    m.d_head = m.d_model / m.n_heads;
  if (m.d_ff == 0) m.d_ff = m.gated() ? round_up(ceil_div(8 * m.d_model, 3), 64) : 4 * m.d_model;
  if (m.max_seq_len == 0) m.max_seq_len = c.train.seq_len;
  const auto hides = [](SourceConfig& s) {
    if (s.mask_probability == 0 &&
        (s.type == SourceType::mlm || s.type == SourceType::span_corruption))
      s.mask_probability = 0.15;
    if (s.mean_span_length == 0 && s.type == SourceType::span_corruption) s.mean_span_length = 3;
  };
  hides(c.data.train);
  if (c.data.validation) hides(*c.data.validation);
  if (c.eval.stop && !c.eval.has(c.eval.stop->metric))
    c.eval.metrics.push_back(c.eval.stop->metric);
  if (m.translates()) {
    if (m.n_encoder_layers == 0) m.n_encoder_layers = m.n_layers;
    if (m.n_decoder_layers == 0) m.n_decoder_layers = m.n_layers;
    if (m.tie_embeddings == TieEmbeddings::yes) m.tie_embeddings = TieEmbeddings::all;
    if (m.tie_embeddings == TieEmbeddings::no) m.tie_embeddings = TieEmbeddings::none;
  } else {
    if (m.tie_embeddings == TieEmbeddings::none) m.tie_embeddings = TieEmbeddings::no;
    if (m.tie_embeddings == TieEmbeddings::all) m.tie_embeddings = TieEmbeddings::yes;
  }
}

void check_consistency(const Config& c, const Report& report) {
  check_family(c, report);
  check_heads(c.model, report);
  check_data(c, report);
  check_schedule(c, report);
  check_listen(c, report);
  check_device(c, report);
}

void resolve_for_ranks(Config& c, int ranks) {
  fill_derived(c);
  Problems problems(c.places,
                    "configuration on " + text(ranks) + (ranks == 1 ? " rank" : " ranks"));
  const Refuse refuse = [&](const std::vector<std::string>& keys, const std::string& message) {
    problems.add(keys, message);
  };
  const std::int64_t tensor = c.parallel.tensor;
  check_tensor(c, ranks, refuse);
  if (ranks % tensor == 0) {
    const std::int64_t replicas = ranks / tensor;
    if (c.parallel.data != 0 && c.parallel.data != replicas)
      refuse({"parallel.data", "parallel.tensor"},
             "parallel.data " + text(c.parallel.data) + " * parallel.tensor " + text(tensor) +
                 " = " + text(c.parallel.data * tensor) + ", but there are " + text(ranks) +
                 " ranks; expected parallel.data auto or " + text(replicas) + ", or " +
                 text(c.parallel.data * tensor) + " ranks");
    c.parallel.data = replicas;
    resolve_micro_batch(c, refuse);
  }
  problems.throw_if_any();
}

}  // namespace tfm::config
