// The sections of a configuration and the keys outside of them.
#include "config/fields.h"

#include "config/field_kinds.h"

namespace tfm::config {

using namespace field;

std::string flow_list(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + quote_yaml(name);
  return all.empty() ? "auto" : "[" + all + "]";
}

void describe_names(std::vector<std::string>& names, const Field& item, std::string_view expected,
                    FieldVisitor& v) {
  const Field f = with_word(item, "auto");
  v.special(f, {.type = "a list of names, or `auto`",
                .read =
                    [&names, f, item, expected](FieldReader& reader, const YamlNode& node) {
                      names.clear();
                      if (node.kind == YamlNode::Kind::scalar && node.text == f.automatic) return;
                      if (node.kind != YamlNode::Kind::sequence || node.items.empty())
                        return reader.error(
                            f, node,
                            "found " + describe(node) + "; expected " + std::string(expected));
                      for (const YamlNode& n : node.items)
                        if (std::string name; reader.read_value(item, n, name))
                          names.push_back(name);
                    },
                .flow = [&names] { return flow_list(names); },
                .item = item,
                .single = false,
                .least = 1,
                .most = kAnyNumber});
}

void describe_config(Config& c, FieldVisitor& v) {
  Field model = required(section(
      "model", "'family' and the model's sizes, a 'preset', or 'init', a directory with a model"));
  model.instead = {"preset", "init"};
  v.section(model, [&c](FieldVisitor& s) { describe(c.model, s); });
  v.section(section("parallel", "how the ranks share the model and the batch"),
            [&c](FieldVisitor& s) { describe(c.parallel, s); });
  v.value(option("precision",
                 "type of parameters and activations; bf16 and fp16 keep master weights, parameter "
                 "gradients and optimizer moments in fp32; fp16 adds dynamic loss scaling"),
          c.precision);
  v.value(flag("tf32", "compute fp32 matrix products on a GPU in TF32 (10-bit mantissa)"), c.tf32);
  v.value(option("recompute",
                 "recompute activations in the backward pass (activation checkpointing): "
                 "none: on CPUs what norms, and in fp32 activation functions, give to "
                 "products of the same block, else nothing; "
                 "selective: those that are cheap; full: all within a block; auto: as much as the "
                 "memory of the device asks for, none where it can"),
          c.recompute);
  v.value(
      with_word(number("recompute_layers", 1,
                       "blocks of each rank, the first ones, that recompute selective and full "
                       "are for, the others do as none; auto: all, with recompute: auto as many "
                       "as memory asks for",
                       10'000),
                "auto"),
      c.recompute_layers);
  v.value(option("cuda_graphs",
                 "launch a micro-batch as one CUDA graph; auto: if no collective inside it goes "
                 "through host memory, and without a pipeline; on: fail otherwise"),
          c.cuda_graphs);
  v.value(
      option("numerics",
             "deterministic: bit-identical results from run to run, and on CPUs with every ZeRO "
             "stage: ranks sum the gradients of each micro-batch by itself; GPU algorithms are "
             "not chosen by timing them"),
      c.numerics);
  v.value(
      option("device",
             "device of each rank; auto: cuda where every rank has a GPU of its own that works, "
             "otherwise cpu"),
      c.device);
  v.section(section("train", "number of steps, batch size, sequence length and seed"),
            [&c](FieldVisitor& s) { describe(c.train, s); });
  v.section(section("optimizer", "the update rule"),
            [&c](FieldVisitor& s) { describe(c.optimizer, s); });
  v.section(section("schedule", "learning rate schedule"),
            [&c](FieldVisitor& s) { describe(c.schedule, s); });
  v.section(section("loss", "training objective"), [&c](FieldVisitor& s) { describe(c.loss, s); });
  v.section(required(section("data", "'train' with 'type' and 'path'")),
            [&c](FieldVisitor& s) { describe(c.data, s); });
  v.section(section("eval", "evaluation on the validation data"),
            [&c](FieldVisitor& s) { describe(c.eval, s); });
  v.section(section("checkpoint", "saving and resuming"),
            [&c](FieldVisitor& s) { describe(c.checkpoint, s); });
  v.section(section("metrics", "logging and monitoring"),
            [&c](FieldVisitor& s) { describe(c.metrics, s); });
  v.section(section("run", "the run as a whole"), [&c](FieldVisitor& s) { describe(c.run, s); });
}

}  // namespace tfm::config
