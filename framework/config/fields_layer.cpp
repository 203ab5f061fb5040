// Keys of `model` that concern one layer, and the kinds of layers that differ in them.
#include <algorithm>
#include <variant>

#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe(DropoutConfig& d, FieldVisitor& v, bool stack) {
  if (stack)
    v.value(fraction("embedding", "dropout probability after the embeddings"), d.embedding);
  v.value(fraction("attention", "dropout probability of the attention weights"), d.attention);
  v.value(fraction("residual",
                   "dropout probability of each sublayer's output, before the residual addition"),
          d.residual);
  v.value(fraction("ffn", "dropout probability of the feed-forward network's hidden activations"),
          d.ffn);
  if (stack)
    v.value(
        fraction("output", "dropout probability of the output of each stack of layers, as in T5"),
        d.output);
}

// `model`: absent for a kind.
void describe_dropout(DropoutConfig& d, const ModelConfig* model, FieldVisitor& v) {
  const Field f =
      fraction("dropout",
               "dropout probability: a number for all places (`output` only if a T5 preset or "
               "`model.init` has it), or a section with one for each");
  const auto read = [&d, f, model](FieldReader& reader, const YamlNode& node) {
    double p = 0;
    if (!reader.read_value(f, node, p)) return;
    d.attention = d.residual = d.ffn = p;
    if (model) d.embedding = p, d.output = d.output > 0 ? p : 0;
  };
  const auto flow = [&d, model] {
    const double p = d.embedding;
    const bool output = d.output > 0 || model->translates();  // a preset may have it
    if (d == DropoutConfig{p, p, p, p} && (p == 0 || !output)) return number_text(p);
    return "{embedding: " + number_text(d.embedding) + ", attention: " + number_text(d.attention) +
           ", residual: " + number_text(d.residual) + ", ffn: " + number_text(d.ffn) +
           (output ? ", output: " + number_text(d.output) : "") + "}";
  };
  v.special(f, {.type = "a number >= 0 and < 1, or a section",
                .read = read,
                .flow = flow,
                .keys = [&d, model](FieldVisitor& inner) { describe(d, inner, model); },
                .item = f});
}

void describe_router(ExpertsConfig& e, FieldVisitor& v) {
  v.value(
      option("router", "scores of experts: softmax over all, or a sigmoid of each, as DeepSeek-V3"),
      e.router);
  v.value(flag("router_bias", "add a bias to the logits of routers, as gpt-oss"), e.router_bias);
  v.value(fraction("jitter",
                   "in training, multiply each input of a router by a random number between 1 - "
                   "jitter and 1 + jitter, as Switch Transformers"),
          e.jitter);
  v.value(flag("normalize", "divide the scores of a token's experts by their sum"), e.normalize);
  v.value(Field{.name = "scale",
                .help = "factor of the weights of a token's experts",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          e.scale);
  v.value(number("groups", 1,
                 "equal groups of consecutive experts, of which a token chooses `top_groups`, as "
                 "DeepSeek-V3",
                 64),
          e.groups);
  v.value(number("top_groups", 1,
                 "groups among whose experts a token chooses, those whose two best experts sum up "
                 "to most",
                 64),
          e.top_groups);
}

// `model`: absent for a kind.
void describe_experts(ExpertsConfig& e, ModelConfig* model, FieldVisitor& v) {
  v.value(number("count", 0,
                 "number of experts; each token goes to `top_k` of them; 0: "
                 "one network",
                 65536),
          e.count);
  v.value(number("top_k", 1, "experts that a token goes to", 65536), e.top_k);
  v.value(derived(number("d_ff", 0, "hidden dimension of each expert", 1 << 24), "`d_ff`"), e.d_ff);
  v.value(number("shared", 0, "number of experts that every token goes to, as one network", 65536),
          e.shared);
  v.value(derived(number("shared_d_ff", 0, "hidden dimension of that network", 1 << 24),
                  "`shared * d_ff`"),
          e.shared_d_ff);
  v.value(flag("shared_gate", "weigh its result by a sigmoid of each token, as Qwen2-MoE"),
          e.shared_gate);
  describe_router(e, v);
  v.value(real("capacity_factor", 0,
               "tokens of a sequence that an expert takes in training, as a multiple of an even "
               "load; the later ones are dropped; 0: none is dropped"),
          e.capacity_factor);
  v.value(number("capacity", 0,
                 "tokens of a sequence that an expert takes, in training and after, as Switch "
                 "Transformers; 0: any number"),
          e.capacity);
  if (!model) return;
  v.value(number("first_dense", 0, "layers at the start of a stack that have no experts", 10000),
          model->expert_layers.first_dense);
  v.value(number("every", 1, "of the layers after these, every so manieth has experts", 10000),
          model->expert_layers.every);
  v.section(section("balance", "what keeps the load of experts even"), [model](FieldVisitor& b) {
    b.value(option("type",
                   "loss: a term of the loss, the number of experts times the sum over experts of "
                   "the share of choices times the mean probability; bias: one for each expert, "
                   "added to its scores where experts are chosen, as DeepSeek-V3; both; none"),
            model->router_loss.balance);
    b.value(real("rate", 0,
                 "what each step adds to the bias of an expert with less than an even load, and "
                 "takes from that of one with more"),
            model->router_loss.rate);
    b.value(
        real("coefficient", 0,
             "weight of the term; over sequence: for the sum over layers, over batch: as it is"),
        model->router_loss.coefficient);
    b.value(
        option("over",
               "sequence: for each sequence and layer, 1 where even; batch: over all tokens and "
               "layers at once, as transformers, `top_k` where even; a batch must be one "
               "micro-batch, without a pipeline"),
        model->router_loss.over);
  });
  v.value(real("z_loss", 0,
               "weight of the mean of the squared log-sum-exp of router logits, for the sum over "
               "layers; 0: no such term"),
          model->router_loss.z);
}

void describe_layer(LayerConfig& l, ModelConfig* model, FieldVisitor& v) {
  v.section(section("attention", "how a layer mixes positions"),
            [&l](FieldVisitor& a) { describe(l.attention, a); });
  const Field heads = number("n_heads", 1, "number of attention heads", 65536);
  v.value(model ? required(heads) : heads, l.n_heads);
  v.value(derived(number("n_kv_heads", 1,
                         "number of key/value heads; fewer than n_heads: grouped-query attention; "
                         "1: multi-query attention",
                         65536),
                  "`n_heads`"),
          l.n_kv_heads);
  v.value(derived(number("d_head", 1, "dimension of each head", 65536), "`d_model / n_heads`"),
          l.d_head);
  v.value(with_word(option("qkv_bias",
                           "add biases to the query, key and value projections; auto: as `bias`"),
                    "auto"),
          l.qkv_bias);
  v.value(option("qk_norm",
                 "normalize queries and keys before RoPE; true: each head alone; whole: over the "
                 "whole width, as OLMo 2"),
          l.qk_norm);
  v.value(flag("scale_attention",
               "divide attention scores by sqrt(d_head), or by that of `attention.query_scalar`"),
          l.scale_attention);
  v.value(option("position", "position encoding"), l.position);
  v.section(section("rope", "rotary position embedding (RoPE), for `position: rope`"),
            [&l](FieldVisitor& r) { describe(l.rope, r); });
  v.value(derived(number("d_ff", 1, "hidden dimension of the feed-forward network", 1 << 24),
                  "`4 d_model`; gated activations: `8/3 d_model` rounded up to a multiple of 64"),
          l.d_ff);
  v.value(option("activation",
                 "activation function of the feed-forward network; geglu: with GELU's tanh, "
                 "geglu_exact: without"),
          l.activation);
  v.value(with_word(option("ffn_bias", "add biases to the feed-forward network; auto: as `bias`"),
                    "auto"),
          l.ffn_bias);
  v.section(section("experts", "a mixture of experts in place of one feed-forward network"),
            [&l, model](FieldVisitor& e) { describe_experts(l.experts, model, e); });
  v.value(option("norm", "normalization layer"), l.norm);
  v.value(option("norm_position",
                 "pre: before each sublayer; post: after the residual addition; inner: after each "
                 "sublayer, before the addition, as OLMo 2; both: pre and inner, as Gemma 2"),
          l.norm_position);
  v.value(flag("attention_norm",
               "norm_position pre: normalize before attention, which ModernBERT's first layer does "
               "not"),
          l.attention_norm);
  v.value(Field{.name = "norm_eps",
                .help = "epsilon added to the variance, see norm_eps_outside",
                .kind = FieldKind::real,
                .low = 1.2e-38},  // a float
          l.norm_eps);
  v.value(flag("norm_eps_outside",
               "add norm_eps to the standard deviation, of layernorm the unbiased one, instead of "
               "the variance, as the Annotated Transformer"),
          l.norm_eps_outside);
  v.value(flag("norm_plus_one", "norms multiply by 1 + weight, which begins as 0, as Gemma"),
          l.norm_plus_one);
  v.value(flag("bias", "add biases to linear layers and layernorms"), l.bias);
  describe_dropout(l.dropout, model, v);
}

// Every value by its dotted key, to be set in another configuration of the same fields.
class Values : public KeyVisitor {
 public:
  using FieldVisitor::value;
  void value(const Field& f, std::int64_t& x) override { visit(f, x); }
  void value(const Field& f, std::uint64_t& x) override { visit(f, x); }
  void value(const Field& f, double& x) override { visit(f, x); }
  void value(const Field& f, bool& x) override { visit(f, x); }
  void value(const Field& f, std::string& x) override { visit(f, x); }

  using Value = std::variant<std::int64_t, std::uint64_t, double, bool, std::string>;
  std::map<std::string, Value> values;
  bool sets = false;  // sets those that it has, instead of taking them

 private:
  template <class T>
  void visit(const Field& f, T& x) {
    if (!sets)
      values[key_of(f)] = x;
    else if (const auto found = values.find(key_of(f)); found != values.end())
      x = std::get<T>(found->second);
  }
};

Values values_of(LayerConfig layer) {
  Values all;
  describe_layer(layer, nullptr, all);
  return all;
}

// Those values of `layer` that differ from `base`.
Values differences(const LayerConfig& layer, const LayerConfig& base) {
  Values all = values_of(layer);
  const Values others = values_of(base);
  std::erase_if(all.values, [&](const auto& v) { return others.values.at(v.first) == v.second; });
  return all;
}

// A kind as flow YAML: the keys in which it differs from the model.
class KindText : public KeyVisitor {
 public:
  explicit KindText(const Values& shown) : shown_(shown) {}
  using FieldVisitor::value;
  void value(const Field& f, std::int64_t& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, std::uint64_t& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, double& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, bool& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, std::string& x) override { leaf(f, yaml_of(f, x)); }
  void special(const Field& f, const SpecialField& s) override { nested(f, s.keys); }
  void section(const Field& f, const Body& body, bool) override { nested(f, body); }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  void add(const Field& f, const std::string& yaml) {
    text_ += (text_.empty() ? "" : ", ") + std::string(f.name) + ": " + yaml;
  }
  void leaf(const Field& f, const std::string& yaml) {
    if (shown_.values.contains(key_of(f))) add(f, yaml);
  }
  void nested(const Field& f, const Body& body) {
    std::string outer;
    std::swap(outer, text_);
    inside(f, body);
    std::swap(outer, text_);
    if (!outer.empty()) add(f, "{" + outer + "}");
  }
  const Values& shown_;
  std::string text_;
};

std::string flow_of(const std::vector<LayerKind>& kinds, const LayerConfig& base) {
  std::string text;
  for (LayerKind kind : kinds) {
    const Values shown = differences(kind.layer, base);
    KindText writer(shown);
    describe_layer(kind.layer, nullptr, writer);
    text += (text.empty() ? "" : ", ") + quote_yaml(kind.name) + ": " + writer.text();
  }
  return "{" + text + "}";
}

// Keys of a kind that is there already are changed.
void read_kinds(ModelConfig& m, const Field& f, FieldReader& reader, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::map)
    return reader.error(f, node,
                        "found " + describe(node) +
                            "; expected names with the keys in which layers of that kind differ, "
                            "such as {local: {rope: {theta: 10000}}, global: {}}");
  reader.read_names(f, node, [&m](const std::string& name) -> FieldVisitor::Body {
    auto at = std::ranges::find(m.layer_kinds, name, &LayerKind::name);
    if (at == m.layer_kinds.end()) at = m.layer_kinds.insert(at, {name, m});
    const auto index = at - m.layer_kinds.begin();
    return [&m, index](FieldVisitor& v) {
      describe_layer(m.layer_kinds[static_cast<std::size_t>(index)].layer, nullptr, v);
    };
  });
}

void describe_pattern(std::vector<std::string>& pattern, std::string_view name,
                      std::string_view help, FieldVisitor& v) {
  describe_names(pattern, text(name, help),
                 "a list of names of model.layer_kinds, such as [local, local, global], or auto",
                 v);
}

// `layer` with those of its values that are as in `before` replaced by those of `now`.
LayerConfig rebased(const LayerConfig& layer, const LayerConfig& before, const LayerConfig& now) {
  Values kept = differences(layer, before);
  kept.sets = true;
  LayerConfig out = now;
  describe_layer(out, nullptr, kept);
  return out;
}

}  // namespace

void describe_layers(ModelConfig& m, FieldVisitor& v) {
  const LayerConfig before = m;
  describe_layer(m, &m, v);
  for (LayerKind& kind : m.layer_kinds) kind.layer = rebased(kind.layer, before, m);
  const Field f = section("layer_kinds",
                          "kinds of layers, by name: the keys of one layer, from `n_heads` to "
                          "`dropout`, in which a kind differs from the model");
  v.special(f, {.type = "names with keys of a layer",
                .read = [&m, f](FieldReader& reader,
                                const YamlNode& node) { read_kinds(m, f, reader, node); },
                .flow = [&m] { return flow_of(m.layer_kinds, m); },
                .item = f,
                .item_keys =
                    [](FieldVisitor& inner) {
                      LayerConfig any;
                      describe_layer(any, nullptr, inner);
                    },
                .named = true});
  describe_pattern(m.layers, "layers",
                   "kinds of the layers in order, repeated until the stack is full; auto: all "
                   "layers alike",
                   v);
  describe_pattern(m.encoder_layers, "encoder_layers", "encoder_decoder: the same for the encoder",
                   v);
  describe_pattern(m.decoder_layers, "decoder_layers", "encoder_decoder: the same for the decoder",
                   v);
}

void check_layer_ranges(LayerConfig layer, const RangeReport& report) {
  check_ranges([&layer](FieldVisitor& v) { describe_layer(layer, nullptr, v); }, report);
}

}  // namespace tfm::config
