#include "huggingface/label_heads.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tfm::huggingface {
namespace {

constexpr const char *kSequences = "ForSequenceClassification", *kTokens = "ForTokenClassification",
                     *kRegression = "regression";

std::string default_name(std::size_t label) { return "LABEL_" + std::to_string(label); }

// The names of id2label in order; LABEL_0, ... of as many as num_labels says where there are none.
std::vector<std::string> names_of(const io::JsonNode& c) {
  std::vector<std::string> names;
  if (const auto given = c.find("id2label")) {
    const std::size_t count = given->members().size();
    for (std::size_t i = 0; i < count; ++i) names.push_back(given->at(std::to_string(i)).string());
  } else {
    for (std::int64_t i = 0; i < whole(c, "num_labels", 2, 1 << 20); ++i)
      names.push_back(default_name(names.size()));
  }
  return names;
}

bool are_default(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] != default_name(i)) return false;
  return true;
}

void write_classes(Json& j, const config::HeadConfig& h) {
  if (h.summarizes())
    j["problem_type"] = h.type == "regress" ? kRegression : "single_label_classification";
  std::vector<std::string> names = h.labels;
  if (h.type == "regress" && j.contains("id2label") && j["id2label"].size() == 1) return;
  for (std::int64_t i = std::ssize(names); i < std::max<std::int64_t>(h.classes, 1); ++i)
    names.push_back(default_name(names.size()));
  j["id2label"] = j["label2id"] = Json::object();
  for (std::size_t i = 0; i < names.size(); ++i) {
    j["id2label"][std::to_string(i)] = names[i];
    j["label2id"][names[i]] = i;
  }
}

}  // namespace

void read_label_heads(config::ModelConfig& m, const io::JsonNode& c, const LabelHeads& names,
                      const std::function<bool(const std::string& tensor)>& has) {
  if (!has(std::string(names.sequences) + ".weight") && !has(std::string(names.tokens) + ".weight"))
    return;
  const auto classes = c.find("architectures");
  const std::string own =
      classes && !classes->items().empty() ? classes->items()[0].string() : "no class";
  const std::vector<std::string> labels = names_of(c);
  config::HeadConfig h;
  if (own == names.prefix + std::string(kTokens)) {
    h.type = "tag";
    if (names.norm) h.pooler = names.pooler;
  } else if (own == names.prefix + std::string(kSequences)) {
    const std::string problem = c.text("problem_type", "");
    if (problem == "multi_label_classification")
      c.at("problem_type").fail("several labels at once are not supported; expected one");
    h.type =
        problem == kRegression || (problem.empty() && labels.size() == 1) ? "regress" : "classify";
    h.pool = config::Pool::first;
    if (names.pooling && c.text(names.pooling, "cls") != "cls") {
      must_say(c, names.pooling, "mean");
      h.pool = config::Pool::mean;
    }
    h.pooler = names.pooler;
  } else {
    c.fail("architectures: the tensors are of a head for labels, but " + own +
           " is named; expected " + names.prefix + kSequences + " or " + names.prefix + kTokens);
  }
  h.name = h.type;
  if (h.type == "regress" && labels.size() != 1)
    c.fail("id2label: found " + std::to_string(labels.size()) +
           " labels; expected one for problem_type regression");
  if (h.has_classes()) {
    h.classes = std::ssize(labels);
    if (!are_default(labels)) h.labels = labels;
  }
  m.heads = {h};
}

void write_label_heads(Json& j, const config::ModelConfig& m, const LabelHeads& names) {
  const config::HeadConfig& h = *m.labelled_heads().front();
  if (h.summarizes() && names.pooling)
    j[names.pooling] = h.pool == config::Pool::mean ? "mean" : "cls";
  write_classes(j, h);
}

// Any of them may be new in a model that was another one before.
void label_tensors(Table& t, const config::ModelConfig& m, const LabelHeads& names) {
  const auto add = [&](const std::string& tensor, const std::string& part,
                       const std::vector<std::int64_t>& shape) {
    t.optional(tensor, shape, part);
    t.last_may_lack();
  };
  const auto linear = [&](const std::string& tensor, const std::string& part, std::int64_t out,
                          bool bias = true) {
    add(tensor + ".weight", part + ".weight", {out, m.d_model});
    if (bias) add(tensor + ".bias", part + ".bias", {out});
  };
  for (const config::HeadConfig* h : m.labelled_heads()) {
    if ((h->summarizes() || names.norm) && h->pooler == names.pooler)  // else it is another one
      linear(names.dense, "pooler", m.d_model, !names.norm);
    if (names.norm && h->pooler == names.pooler)
      add(std::string(names.norm) + ".weight", "pooler.norm.weight", {m.d_model});
    linear(h->type == "tag" ? names.tokens : names.sequences, h->name,
           std::max<std::int64_t>(h->classes, 1));
  }
}

std::string label_class(const config::ModelConfig& m, const LabelHeads& names) {
  return names.prefix +
         std::string(m.labelled_heads().front()->type == "tag" ? kTokens : kSequences);
}

const char* unmet_label_heads(const config::ModelConfig& m, const LabelHeads* names) {
  if (!names) return "heads: [{type: lm}]";
  if (m.heads.size() != 1) return "one head";
  const config::HeadConfig& h = *m.labelled_heads().front();
  const bool pools = !h.summarizes() || h.pool == config::Pool::first ||
                     (names->pooling && h.pool == config::Pool::mean);
  const bool layer = h.summarizes() || names->norm ? h.pooler == names->pooler
                                                   : h.pooler == config::Pooler::automatic ||
                                                         h.pooler == config::Pooler::none;
  if (pools && layer) return nullptr;
  return names->norm                             ? "heads with {pool: first, pooler: transform}"
         : names->pooler == config::Pooler::relu ? "heads with {pool: first, pooler: relu}"
                                                 : "heads with {pool: first, pooler: tanh}";
}

}  // namespace tfm::huggingface
