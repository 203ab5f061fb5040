#pragma once
// Maps the tensors of a Hugging Face directory to the parts of a model.
#include <array>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "config/model_config.h"

namespace tfm::huggingface {

struct ExchangedTensor {
  std::string name;                     // Hugging Face's
  std::vector<std::int64_t> shape;      // Hugging Face's
  std::vector<std::string> parts;       // parts, stacked along their rows
  bool transposed = false;              // the stack is (columns, rows) in the file
  std::vector<std::int64_t> rows = {};  // of each part; empty: parts of equal shapes
  // Equal pieces along the first dimension, each of which has the next of the parts, and may be
  // transposed.
  std::int64_t groups = 1;
  // Parts of a group take turns with so many rows each, instead of following each other; empty:
  // not.
  std::vector<std::int64_t> turns = {};
  // Files may have it as name_blocks and name_scales, not transposed: rows of blocks of 32 4-bit
  // floats with a power of two for each.
  bool mxfp4 = false;
  // Not in every file, as another tensor may hold the parts; if present, it takes precedence over
  // that.
  bool optional = false;
  bool may_lack = false;     // optional, and no other tensor need hold the parts
  bool alternative = false;  // optional, and written only where the original model has it
  // Present in files of transformers 5, which uses the next tensor that holds the parts instead.
  bool overridden = false;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t d : shape) n *= d;
    return n;
  }
  // The elements of parts [first, last).
  std::int64_t elements(std::size_t first, std::size_t last) const {
    if (rows.empty())
      return elements() / std::ssize(parts) * static_cast<std::int64_t>(last - first);
    const auto sum = [&](std::size_t from, std::size_t to) {
      return std::accumulate(rows.data() + from, rows.data() + to, std::int64_t{0});
    };
    return elements() / sum(0, rows.size()) * sum(first, last);
  }
  // Columns of a part, or for a vector one or all of its elements.
  std::int64_t cols() const {
    const std::size_t outer = groups > 1 ? 1 : 0, n = shape.size();
    return transposed ? shape[n - 2] : n > outer + 1 ? shape[n - 1] : 1;
  }
  // Rows of a group's stack of parts with so many columns.
  std::int64_t stack_rows(std::int64_t cols) const { return elements() / groups / cols; }
  // Row r of part i in that stack.
  std::int64_t stack_row(std::size_t i, std::int64_t r, std::int64_t cols) const {
    const std::size_t each = parts.size() / static_cast<std::size_t>(groups), k = i % each;
    if (turns.empty()) return elements(i - k, i) / cols + r;
    const auto sum = [this](std::size_t n) {
      return std::accumulate(turns.data(), turns.data() + n, std::int64_t{0});
    };
    return r / turns[k] * sum(each) + sum(k) + r % turns[k];
  }
  // First element of the group of part i.
  std::int64_t group_start(std::size_t i) const {
    return static_cast<std::int64_t>(i) * groups / std::ssize(parts) * (elements() / groups);
  }
};

inline bool is_weight_type(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

// Collects the tensors of a model, in the order of their use.
class Table {
 public:
  explicit Table(const config::ModelConfig& m) : m_(m) {}

  void tensor(const std::string& name, std::vector<std::int64_t> shape, const std::string& part,
              bool transposed = false) {
    rows_.push_back({name, std::move(shape), {part}, transposed});
  }
  // Parts of so many rows each.
  void stacked(const std::string& name, std::vector<std::int64_t> shape,
               std::vector<std::string> parts, std::vector<std::int64_t> rows) {
    rows_.push_back({.name = name,
                     .shape = std::move(shape),
                     .parts = std::move(parts),
                     .rows = std::move(rows)});
  }
  void optional(const std::string& name, std::vector<std::int64_t> shape, const std::string& part) {
    rows_.push_back({.name = name, .shape = std::move(shape), .parts = {part}, .optional = true});
  }
  // The networks of experts: a tensor for each layer of each, or, in other files, two tensors of
  // all experts, with the rows of gate and up of each together.
  struct ExpertNames {
    const char *gate, *up, *down;
  };
  void experts(const std::string& name, const ExpertNames& words, const std::string& part,
               const config::ExpertsConfig& e) {
    const std::int64_t C = m_.d_model, F = e.d_ff;
    std::vector<std::string> first, second;
    for (std::int64_t i = 0; i < e.count; ++i) {
      const std::string of = std::to_string(i) + ".", p = part + of;
      first.insert(first.end(), {p + "gate.weight", p + "up.weight"});
      second.push_back(p + "down.weight");
      optional(name + of + words.gate + ".weight", {F, C}, p + "gate.weight");
      optional(name + of + words.up + ".weight", {F, C}, p + "up.weight");
      optional(name + of + words.down + ".weight", {C, F}, p + "down.weight");
    }
    for (const auto& [tensor, shape, parts] :
         {std::tuple{"gate_up_proj", std::vector{e.count, 2 * F, C}, first},
          {"down_proj", std::vector{e.count, C, F}, second}})
      rows_.push_back({.name = name + tensor,
                       .shape = shape,
                       .parts = parts,
                       .optional = true,
                       .alternative = true});
  }
  void add(ExchangedTensor tensor) { rows_.push_back(std::move(tensor)); }
  void last_may_lack() { rows_.back().may_lack = true; }
  void last_is_overridden() { rows_.back().overridden = true; }
  void linear(const std::string& name, const std::string& part, std::int64_t out, std::int64_t in,
              bool bias) {
    tensor(name + ".weight", {out, in}, part + ".weight");
    if (bias) tensor(name + ".bias", {out}, part + ".bias");
  }
  // GPT-2's Conv1D: (in, out), several parts side by side.
  void conv(const std::string& name, const std::vector<std::string>& parts, std::int64_t out,
            std::int64_t in) {
    rows_.push_back({name + ".weight", {in, out}, with(parts, ".weight"), true});
    if (m_.bias) rows_.push_back({name + ".bias", {out}, with(parts, ".bias"), false});
  }
  void norm(const std::string& name, const std::string& part) {
    tensor(name + ".weight", {m_.d_model}, part + ".weight");
    if (m_.bias && m_.norm == config::Norm::layernorm)
      tensor(name + ".bias", {m_.d_model}, part + ".bias");
  }
  // Query, key, value and output as separate layers.
  void attention(const std::string& name, const std::array<const char*, 4>& words,
                 const std::string& part) {
    const std::int64_t C = m_.d_model, q = m_.n_heads * m_.d_head, kv = m_.n_kv_heads * m_.d_head;
    linear(name + words[0], part + ".query", q, C, m_.has_qkv_bias());
    linear(name + words[1], part + ".key", kv, C, m_.has_qkv_bias());
    linear(name + words[2], part + ".value", kv, C, m_.has_qkv_bias());
    linear(name + words[3], part + ".output", C, q, m_.bias);
  }
  // Gate, up and down of width F as separate layers.
  void gated_network(const std::string& name, const std::string& part, std::int64_t F) {
    linear(name + "gate_proj", part + "gate", F, m_.d_model, m_.has_ffn_bias());
    linear(name + "up_proj", part + "up", F, m_.d_model, m_.has_ffn_bias());
    linear(name + "down_proj", part + "down", m_.d_model, F, m_.has_ffn_bias());
  }
  std::vector<ExchangedTensor> take() { return std::move(rows_); }

 private:
  static std::vector<std::string> with(std::vector<std::string> parts, const char* suffix) {
    for (auto& p : parts) p += suffix;
    return parts;
  }
  const config::ModelConfig& m_;
  std::vector<ExchangedTensor> rows_;
};

}  // namespace tfm::huggingface
