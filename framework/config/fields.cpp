// The sections of a configuration and the keys outside of them.
#include "config/fields.h"

#include "config/field_kinds.h"

namespace tfm::config {

using namespace field;

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
  v.section(section("loss", "training objective"), [&c](FieldVisitor& s) { describe(c.loss, s); });
  v.section(required(section("data", "'train' with 'type' and 'path'")),
            [&c](FieldVisitor& s) { describe(c.data, s); });
  v.section(section("eval", "measurement on the validation data"),
            [&c](FieldVisitor& s) { describe(c.eval, s); });
  v.section(section("checkpoint", "saving and resuming"),
            [&c](FieldVisitor& s) { describe(c.checkpoint, s); });
  v.section(section("metrics", "what a run reports"),
            [&c](FieldVisitor& s) { describe(c.metrics, s); });
}

}  // namespace tfm::config
