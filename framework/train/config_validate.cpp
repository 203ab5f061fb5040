// The rules between keys, in one place: what follows from what, and what fits together.
#include <algorithm>
#include <set>

#include "train/config_fields.h"

namespace tfm {
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
  std::stable_sort(values.begin(), values.end(), [&](auto a, auto b) { return distance(a) < distance(b); });
  if (cut) values.resize(kMost);
  std::sort(values.begin(), values.end());
  return join(values) + (cut ? ", ..." : "");
}

std::string text(std::int64_t n) { return std::to_string(n); }

void check_heads(const ModelConfig& m, const Report& report) {
  if (m.d_head == 0 && m.n_heads > 0 && m.d_model % m.n_heads != 0)
    report({"model.n_heads", "model.d_model", "model.preset"},
           "d_model " + text(m.d_model) + " is not divisible by n_heads " + text(m.n_heads) + " (" + text(m.d_model) + " = " +
               text(m.d_model / m.n_heads) + " * " + text(m.n_heads) + " + " + text(m.d_model % m.n_heads) +
               "); legal values of n_heads are " + listed(divisors(m.d_model), m.n_heads),
           "or set d_head");
  if (m.n_kv_heads > 0 && m.n_heads % m.n_kv_heads != 0)
    report({"model.n_kv_heads", "model.n_heads", "model.preset"},
           "n_heads " + text(m.n_heads) + " is not divisible by n_kv_heads " + text(m.n_kv_heads) +
               "; legal values of n_kv_heads are " + listed(divisors(m.n_heads), m.n_kv_heads),
           "");
  if (m.position == "rope" && m.d_head % 2 != 0)
    report({"model.d_head", "model.position", "model.n_heads"},
           "d_head " + text(m.d_head) + " is odd, but position rope rotates pairs; expected an even d_head", "");
  if (m.position == "sinusoidal" && m.d_model % 2 != 0)
    report({"model.d_model", "model.position"},
           "d_model " + text(m.d_model) + " is odd, but position sinusoidal fills pairs; expected an even d_model", "");
  const RopeScaling& s = m.rope.scaling;
  if (m.position == "rope" && s.factor != 1 && !(s.low_freq_factor > 0 && s.low_freq_factor < s.high_freq_factor))
    report({"model.rope.scaling.low_freq_factor", "model.rope.scaling.high_freq_factor", "model.rope.scaling.factor"},
           "low_freq_factor " + number_text(s.low_freq_factor) + " and high_freq_factor " + number_text(s.high_freq_factor) +
               " leave no band between them; expected 0 < low_freq_factor < high_freq_factor",
           "");
}

void check_schedule(const Config& c, const Report& report) {
  const ScheduleConfig& s = c.schedule;
  const std::string steps = text(c.train.steps);
  if (s.min_lr > c.optimizer.lr)
    report(
        {"schedule.min_lr", "optimizer.lr"},
        "min_lr " + number_text(s.min_lr) + " is above optimizer.lr " + number_text(c.optimizer.lr) + "; expected min_lr <= lr",
        "");
  if (s.type == "wsd" && s.decay_steps == 0)
    report({"schedule.decay_steps", "schedule.type"},
           "schedule wsd needs decay_steps, the length of its final decay; expected 1 to train.steps - warmup_steps = " +
               text(c.train.steps - s.warmup_steps),
           "");
  if (s.type == "wsd" && s.decay_steps > 0 && s.warmup_steps + s.decay_steps > c.train.steps)
    report({"schedule.decay_steps", "schedule.warmup_steps", "train.steps"},
           "warmup_steps " + text(s.warmup_steps) + " + decay_steps " + text(s.decay_steps) + " = " +
               text(s.warmup_steps + s.decay_steps) + " exceeds train.steps " + steps + "; expected a sum of at most " + steps,
           "");
  const bool decays = s.type == "cosine" || s.type == "linear";
  if (decays && s.decay_steps > 0 && s.decay_steps <= s.warmup_steps)
    report({"schedule.decay_steps", "schedule.warmup_steps"},
           "decay_steps " + text(s.decay_steps) + " is not above warmup_steps " + text(s.warmup_steps) +
               "; expected the decay to end after the warmup, or 0 for train.steps",
           "");
  if ((s.type == "noam" || s.type == "inverse_sqrt") && s.warmup_steps == 0)
    report({"schedule.warmup_steps", "schedule.type"},
           "schedule " + s.type + " falls with the steps after warmup; expected warmup_steps >= 1", "");
}

void check_listen(const Config& c, const Report& report) {
  const std::string& listen = c.metrics.listen;
  if (listen == "none") return;
  const auto colon = listen.rfind(':');
  const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (colon == 0 || !digits || std::stoi(port) > 65535)
    report({"metrics.listen"}, quoted(listen) + " is no address; expected none or host:port, such as \"127.0.0.1:9750\"", "");
}

void check_data(const Config& c, const Report& report) {
  const ModelConfig& m = c.model;
  if (m.position == "learned" && c.train.seq_len > m.max_seq_len)
    report({"train.seq_len", "model.max_seq_len", "model.preset"},
           "train.seq_len " + text(c.train.seq_len) + " exceeds model.max_seq_len " + text(m.max_seq_len) +
               ", the rows of the learned position table; expected seq_len <= " + text(m.max_seq_len),
           "");
  const auto reads_text = [&](const SourceConfig& s) { return s.type == "text"; };
  const bool tokenizes = reads_text(c.data.train) || (c.data.validation && reads_text(*c.data.validation));
  if (tokenizes && c.data.tokenizer == "bytes" && m.vocab_size < 256)
    report({"model.vocab_size", "data.tokenizer"},
           "vocab_size " + text(m.vocab_size) + " is too small for the tokenizer bytes, whose ids are 0 to 255; expected >= 256",
           "");
  if (c.eval.every > 0 && !c.data.validation)
    report({"eval.every", "data.validation"},
           "eval.every is " + text(c.eval.every) + " but there is no data.validation; expected both, or eval.every 0", "");
  if (c.checkpoint.every > 0 && c.checkpoint.dir.empty())
    report({"checkpoint.every", "checkpoint.dir"},
           "checkpoint.every is " + text(c.checkpoint.every) +
               " but there is no checkpoint.dir; expected both, or checkpoint.every 0",
           "");
}

using Refuse = std::function<void(const std::string&)>;

void check_tensor(const Config& c, int ranks, const Refuse& refuse) {
  const std::int64_t t = c.parallel.tensor;
  const ModelConfig& m = c.model;
  std::vector<std::int64_t> legal;
  for (std::int64_t d : divisors(ranks))
    if (m.n_heads % d == 0 && m.n_kv_heads % d == 0 && m.d_ff % d == 0) legal.push_back(d);
  const std::string values = "; legal values of parallel.tensor on " + text(ranks) + " ranks are " + listed(legal, t);
  if (ranks % t != 0) refuse("the " + text(ranks) + " ranks are not divisible by parallel.tensor " + text(t) + values);
  const auto check = [&](const char* name, std::int64_t size) {
    if (size % t == 0) return;
    std::vector<std::int64_t> divide = divisors(size);
    refuse(std::string(name) + " " + text(size) + " is not divisible by parallel.tensor " + text(t) +
           "; parallel.tensor has to be one of " + listed(divide, t) + values);
  };
  check("n_heads", m.n_heads);
  check("n_kv_heads", m.n_kv_heads);
  check("d_ff", m.d_ff);
}

void resolve_micro_batch(Config& c, const Refuse& refuse) {
  const std::int64_t data = c.parallel.data, tensor = c.parallel.tensor, batch = c.train.global_batch_size,
                     length = c.train.seq_len;
  if (batch % data != 0) {
    std::vector<std::int64_t> near;
    for (std::int64_t k : {batch / data, batch / data + 1})
      if (k > 0) near.push_back(k * data);
    return refuse("train.global_batch_size " + text(batch) + " is not divisible by the " + text(data) +
                  " replicas (parallel.data); the nearest legal values are " + join(near));
  }
  const std::int64_t local = batch / data;
  const bool split = c.parallel.sequence && tensor > 1;
  std::vector<std::int64_t> legal;
  for (std::int64_t m : divisors(local))
    if (!split || m * length % tensor == 0) legal.push_back(m);
  const std::string rule =
      "sequence parallelism splits micro_batch_size * seq_len positions over parallel.tensor " + text(tensor);
  if (legal.empty())
    return refuse(rule + ", but no divisor of the " + text(local) + " sequences of a replica times train.seq_len " +
                  text(length) + " is a multiple of " + text(tensor) +
                  "; expected a seq_len that is, or parallel.sequence false");
  std::int64_t& micro = c.train.micro_batch_size;
  if (micro == 0) {
    micro = legal.front();
    for (std::int64_t m : legal)
      if (m * length <= kAutoTokens) micro = m;
  } else if (local % micro != 0) {
    refuse("the " + text(local) + " sequences of a replica (train.global_batch_size " + text(batch) + " / parallel.data " +
           text(data) + ") are not divisible by train.micro_batch_size " + text(micro) + "; legal values are auto, " +
           listed(legal, micro));
  } else if (split && micro * length % tensor != 0) {
    refuse(rule + ", but train.micro_batch_size " + text(micro) + " * train.seq_len " + text(length) + " = " +
           text(micro * length) + " is not divisible by it; legal values of micro_batch_size are auto, " + listed(legal, micro));
  }
}

}  // namespace

void fill_derived(Config& c) {
  ModelConfig& m = c.model;
  if (m.n_kv_heads == 0) m.n_kv_heads = m.n_heads;
  if (m.d_head == 0 && m.n_heads > 0 && m.d_model % m.n_heads == 0) m.d_head = m.d_model / m.n_heads;
  if (m.d_ff == 0) m.d_ff = m.gated() ? round_up(ceil_div(8 * m.d_model, 3), 64) : 4 * m.d_model;
  if (m.max_seq_len == 0) m.max_seq_len = c.train.seq_len;
}

void check_consistency(const Config& c, const Report& report) {
  check_heads(c.model, report);
  check_data(c, report);
  check_schedule(c, report);
  check_listen(c, report);
}

void resolve_for_ranks(Config& c, int ranks) {
  fill_derived(c);
  Diagnostics out;
  const int source = out.add_file("configuration on " + text(ranks) + (ranks == 1 ? " rank" : " ranks"), "");
  const Refuse refuse = [&](const std::string& message) { out.error({0, 0, source}, message); };
  const std::int64_t tensor = c.parallel.tensor;
  check_tensor(c, ranks, refuse);
  if (ranks % tensor == 0) {
    const std::int64_t replicas = ranks / tensor;
    if (c.parallel.data != 0 && c.parallel.data != replicas)
      refuse("parallel.data " + text(c.parallel.data) + " * parallel.tensor " + text(tensor) + " = " +
             text(c.parallel.data * tensor) + ", but there are " + text(ranks) + " ranks; expected parallel.data auto or " +
             text(replicas) + ", or " + text(c.parallel.data * tensor) + " ranks");
    c.parallel.data = replicas;
    resolve_micro_batch(c, refuse);
  }
  out.throw_if_any();
}

}  // namespace tfm
