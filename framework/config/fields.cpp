// The sections of a configuration and the keys outside of them.
#include "config/fields.h"

#include "config/field_kinds.h"

namespace tfm::config {

using namespace field;

void describe_config(Config& c, FieldVisitor& v) {
  Field model = required(section("model", "'family' and the model's sizes, or a 'preset'"));
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
