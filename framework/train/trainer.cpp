#include "train/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "checkpoint/lock.h"
#include "comm/consensus.h"
#include "comm/watchdog.h"
#include "core/strings.h"
#include "core/version.h"
#include "data/run_data.h"
#include "huggingface/weights.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "inference/translator.h"
#include "telemetry/metrics_log.h"
#include "telemetry/metrics_server.h"
#include "telemetry/progress.h"
#include "text/translation_scores.h"
#include "train/engine_state.h"

namespace tfm::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSkipsAllowed = 3;  // non-finite steps in a row

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

class Run {
 public:
  Run(const config::Config& config, const comm::Mesh& mesh, const device::Device& device,
      StopRequests& requests)
      : config_(config),
        mesh_(mesh),
        requests_(requests),
        data_(config),
        engine_(plan::make_step_plan(config, mesh), device),
        loader_(engine_.training_loader(*data_.train)),
        watchdog_(mesh, file_timeout()),
        schedule_(plan::schedule_of(config)) {
    if (config_.eval.stop) best_ = {.metric = config_.eval.stop->metric};
    if (engine_.plan().translator) lines_ = data_.validation_lines(config_);
    comm::check_same_on_all_ranks(*mesh_.world, engine_.plan().collective_hash(),
                                  "the order of collectives");
  }

  TrainOutcome run() {
    lock_directory();
    engine_.initialize_parameters();
    const std::int64_t resumed = resume();
    if (resumed == 0 && !config_.model.random_init()) {
      config::at_key(config_.places, "model.init", [&] {
        engine_.set_weights([&](void* flat) {
          origin_ = inference::load_initial_weights(config_.model.init, config_.model,
                                                    engine_.model().parameters(),
                                                    static_cast<float*>(flat), *mesh_.world);
        });
      });
      say("initialized weights from " + config_.model.init);
    }
    open_outputs(resumed);
    if (resumed >= config_.train.steps)
      say("step " + std::to_string(resumed) + " of " + std::to_string(config_.train.steps) +
          " is done; raise train.steps to continue training");
    TrainOutcome outcome{.step = resumed};
    while (outcome.step < config_.train.steps && !outcome.stopped && !exhausted()) {
      step(++outcome.step);
      outcome.loss = loss_;
      const bool last = outcome.step == config_.train.steps;
      const bool measured =
          due(config_.eval.every, outcome.step) || (last && config_.eval.every > 0);
      const bool best = measured && evaluate(outcome.step);
      const Request request = requested();
      outcome.stopped = request == Request::stop && !last;
      if (due(config_.checkpoint.every, outcome.step) || last || request != Request::none || best ||
          exhausted())
        checkpoint(outcome.step);
    }
    finish(outcome);
    return outcome;
  }

 private:
  config::Config without_init() const {  // a checkpoint has weights of its own
    config::Config c = config_;
    c.model.init = "random";
    return c;
  }
  // In the unit of the configuration: sequences or tokens.
  std::int64_t batch_size() const {
    return config_.train.global_batch_tokens > 0 ? config_.train.global_batch_tokens
                                                 : config_.train.global_batch_size;
  }
  bool lead() const { return mesh_.rank() == 0; }
  static bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }
  void say(const std::string& text) const {
    if (lead()) std::printf("%s\n", text.c_str()), std::fflush(stdout);
  }
  static void warn(const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); }

  void lock_directory() {
    if (config_.checkpoint.dir.empty() || !lead()) return;
    lock_.emplace(config_.checkpoint.dir);
    checkpoint::clean(config_.checkpoint.dir);
  }

  // The step to go on from; 0: from the start.
  std::int64_t resume() {
    std::string path;
    const config::CheckpointConfig& how = config_.checkpoint;
    if (lead() && how.resumes_latest() && !how.dir.empty())
      path =
          checkpoint::find_latest(how.dir, [](const std::string& why) { warn(why); }).value_or("");
    if (lead() && how.resumes_path()) {
      path = how.resume;
      config::at_key(config_.places, "checkpoint.resume",
                     [&] { checkpoint::CheckpointReader(path).verify(); });
    }
    path = comm::broadcast_string(*mesh_.world, path);
    if (path.empty()) return 0;
    const checkpoint::CheckpointReader reader(path);
    const checkpoint::Manifest& m = reader.manifest();
    if (m.samples_seen != m.step * batch_size())
      throw Error(ExitCode::usage,
                  path + " was written with a global batch size of " +
                      std::to_string(m.samples_seen / std::max<std::int64_t>(m.step, 1)) +
                      "; set the same size to resume, so that every sample is seen once");
    if (m.seed != config_.train.seed && lead())
      warn(path + " was written with train.seed " + std::to_string(m.seed) +
           "; data order and dropout differ from here on");
    restore(reader, path, engine_, true);
    if (engine_.loss_scale().dynamic && m.loss_scale.dynamic) engine_.loss_scale() = m.loss_scale;
    origin_ = m.extra;
    if (best_ && m.best && m.best->metric == best_->metric) best_ = m.best;
    say("resumed from " + path + " at step " + std::to_string(m.step));
    return m.step;
  }

  void open_outputs(std::int64_t resumed) {
    const plan::StepPlan& plan = engine_.plan();
    const std::int64_t parameters = engine_.model().parameters().total_elements();
    std::int64_t planned = plan.memory.total();
    mesh_.world->all_reduce({&planned, DType::i64, {1}}, comm::Collective::all_reduce_max);
    if (!lead()) return;
    open_metrics(resumed);
    const std::string layout = "{\"data\":" + std::to_string(mesh_.layout.data) +
                               ",\"tensor\":" + std::to_string(mesh_.layout.tensor) + "}";
    write(telemetry::MetricsLine("start")
              .add("config", config::dump_config(config_))
              .add("parameters", parameters)
              .add("world", mesh_.layout.world())
              .add_json("layout", layout)
              .add("planned_bytes", planned)
              .add("resumed_step", resumed));
    say("tfm: " + telemetry::count_text(static_cast<double>(parameters)) + " parameters, " +
        std::to_string(mesh_.layout.world()) + " ranks (data " + std::to_string(mesh_.layout.data) +
        " x tensor " + std::to_string(mesh_.layout.tensor) + "), " +
        telemetry::count_text(
            static_cast<double>(plan.largest().batch * plan.largest().shape.length)) +
        " tokens per step, " + std::to_string(planned >> 20) + " MiB per rank, " +
        telemetry::count_text(static_cast<double>(data_.tokens)) + " training tokens");
    for (const std::string& note : data_.notes) say(note);
  }

  // Without metrics a run goes on.
  void open_metrics(std::int64_t resumed) {
    try {
      if (!config_.metrics.jsonl.empty())
        metrics_.emplace(config_.metrics.jsonl,
                         resumed > 0 ? std::optional(resumed) : std::nullopt);
    } catch (const std::exception& e) {
      warn(std::string("metrics.jsonl: metrics are not written: ") + e.what());
    }
    try {
      open_exporter();
    } catch (const std::exception& e) {
      warn(std::string("metrics are not served: ") + e.what());
    }
  }

  void open_exporter() {
    const std::string layout = "data" + std::to_string(mesh_.layout.data) + "_tensor" +
                               std::to_string(mesh_.layout.tensor);
    exporter_ = telemetry::Exporter::create(
        {.listen = config_.metrics.listen,
         .build = {{"version", std::string(version)}},
         .run = {{"model", config_.model.preset.empty() ? config::word(config_.model.family)
                                                        : config_.model.preset},
                 {"layout", layout}}});
    if (!exporter_) return;
    for (const auto& [kind, bytes] : engine_.memory_taken().categories)
      exporter_->memory(kind, bytes);
    say("metrics at " + exporter_->url());
    if (exporter_->is_public())
      warn("metrics.listen " + config_.metrics.listen + " is reachable from other machines");
  }

  void write(const telemetry::MetricsLine& line) {
    if (!metrics_) return;
    if (const std::string why = metrics_->write(line); !why.empty())
      warn("metrics are not written: " + why);
  }

  // Seconds that ranks may wait for each other: where files are read and written, and in a step.
  double file_timeout() const {
    return config_.parallel.timeout > 0 ? static_cast<double>(config_.parallel.timeout) : 300;
  }
  double step_timeout() const {
    if (config_.parallel.timeout > 0 || longest_step_ == 0) return file_timeout();
    return std::clamp(10 * longest_step_, 30.0, 300.0);
  }

  void step(std::int64_t number) {
    const auto start = Clock::now();
    watchdog_.heartbeat(number);
    watchdog_.set_timeout(step_timeout());
    const double lr = schedule_.at(number);
    const StepResult r = engine_.train_step(number, lr, loader_.load(number - 1));
    loss_ = r.loss;
    skipped_ = r.applied ? 0 : skipped_ + 1;
    if (!r.applied && lead())
      warn("step " + std::to_string(number) + ": loss " + std::to_string(r.loss) +
           ", gradient norm " + std::to_string(r.grad_norm) + "; update skipped" +
           (engine_.loss_scale().dynamic
                ? ", loss scale now " + telemetry::count_text(engine_.loss_scale().value)
                : ""));
    const bool scale_too_large = engine_.loss_scale().dynamic && engine_.loss_scale().value >= 1;
    if (skipped_ > kSkipsAllowed && !scale_too_large)
      throw Error(ExitCode::numerical, "step " + std::to_string(number) +
                                           ": the loss or gradient norm was NaN or infinite in " +
                                           std::to_string(skipped_) +
                                           " consecutive steps; lower optimizer.lr, raise "
                                           "schedule.warmup_steps or inspect the data");
    const double seconds = seconds_since(start);
    longest_step_ = std::max(longest_step_, seconds);
    report(number, lr, r, seconds);
  }

  void report(std::int64_t number, double lr, const StepResult& r, double seconds) {
    if (!lead()) return;
    const double rate = static_cast<double>(r.tokens) / seconds;
    if (exporter_) {
      exporter_->step({number, r.tokens, rate, r.loss, r.grad_norm, lr, seconds});
      if (!r.applied) exporter_->nonfinite_step();
    }
    if (number % config_.metrics.log_every != 0 && number != config_.train.steps) return;
    const std::int64_t memory = peak_memory_bytes();
    say(progress_.line({number, config_.train.steps, r.loss, r.grad_norm, lr, rate, std::nullopt,
                        memory, seconds}));
    write(telemetry::MetricsLine("step")
              .add("step", number)
              .add("loss", r.loss)
              .add("grad_norm", r.grad_norm)
              .add("lr", lr)
              .add("tokens", r.tokens)
              .add("tokens_per_second", rate)
              .add("step_seconds", seconds)
              .add_null("mfu")
              .add("loss_scale", r.loss_scale)
              .add("peak_memory_bytes", memory));
  }

  // Whether it is the best so far by the metric of eval.stop.
  bool evaluate(std::int64_t number) {
    watchdog_.set_timeout(file_timeout());
    inference::Totals totals;
    engine_.swap_average();
    const std::int64_t batches = data_.validation_batches(config_);
    data::DataLoader loader = engine_.evaluation_loader(*data_.validation, batches);
    totals = engine_.evaluate(loader, batches);
    const std::vector<std::string> translations = translate();
    engine_.swap_average();
    using enum config::Metric;
    std::map<config::Metric, double> values{{loss, totals.mean()},
                                            {perplexity, totals.perplexity()}};
    if (config_.eval.has(accuracy)) values[accuracy] = totals.accuracy();
    if (config_.eval.has(bleu)) values[bleu] = text::corpus_bleu(translations, lines_.target);
    if (config_.eval.has(chrf)) values[chrf] = text::corpus_chrf(translations, lines_.target);
    telemetry::MetricsLine line("eval");
    line.add("step", number).add("split", "validation");
    std::string text = "validation at step " + std::to_string(number);
    for (const config::Metric metric : config_.eval.metrics) {
      const std::string name = config::word(metric);
      char value[32];
      std::snprintf(value, sizeof value, " %.4f", values.at(metric));
      text += " | " + name + value;
      line.add(name, values.at(metric));
      if (exporter_) exporter_->eval("validation", name, values.at(metric));
    }
    write(line.add("tokens", totals.labels[0]));
    say(text + " | " + std::to_string(totals.labels[0]) + " tokens");
    return best_ && best_->improve(number, values.at(best_->metric));
  }

  std::vector<std::string> translate() {
    const plan::StepPlan& plan = engine_.plan();
    if (!plan.translator) return {};
    inference::Translator translator(
        *plan.translator, config_.model, engine_.site(),
        {engine_.model().parameters(), engine_.flat().parameters, plan.real}, *data_.tokenizer,
        inference::translation_of(config_), engine_.idle_memory());
    return translator.translate(lines_.source);
  }

  bool exhausted() const { return best_ && best_->since >= config_.eval.stop->patience; }

  Request requested() {
    auto request =
        static_cast<std::int32_t>(requests_.poll(lead() ? config_.checkpoint.dir : std::string()));
    mesh_.world->all_reduce({&request, DType::i32, {1}}, comm::Collective::all_reduce_max);
    return static_cast<Request>(request);
  }

  void checkpoint(std::int64_t number) {
    if (config_.checkpoint.dir.empty() || number == checkpointed_) return;
    watchdog_.set_timeout(file_timeout());
    const auto start = Clock::now();
    const checkpoint::CheckpointInfo info{
        .step = number,
        .updates = engine_.updates(),
        .samples_seen = number * batch_size(),
        .seed = config_.train.seed,
        .layout = {{"data", mesh_.layout.data}, {"tensor", mesh_.layout.tensor}},
        .config = config::dump_config(without_init()),
        .extra = origin_,
        .loss_scale = engine_.loss_scale(),
        .best = best_};
    const std::vector<checkpoint::Piece> pieces = checkpoint_pieces(engine_);
    const checkpoint::CheckpointResult r =
        checkpoint::write_checkpoint(config_.checkpoint.dir, info, pieces, config_.checkpoint.keep,
                                     checkpoint::checkpoint_ranks(*mesh_.world));
    failed_checkpoint_ = r.error;
    if (r.ok()) checkpointed_ = number;
    if (!lead()) return;
    if (!r.warning.empty()) warn(r.warning);
    if (exporter_) r.ok() ? exporter_->checkpoint(number) : exporter_->checkpoint_failed();
    if (!r.ok())
      return warn("cannot write the checkpoint of step " + std::to_string(number) + ": " + r.error +
                  "; training continues, earlier checkpoints are intact");
    const double seconds = seconds_since(start);
    say("checkpoint " + r.path + " | " + std::to_string(r.bytes >> 20) + " MiB in " +
        telemetry::duration_text(seconds));
    write(telemetry::MetricsLine("checkpoint")
              .add("step", number)
              .add("seconds", seconds)
              .add("path", r.path));
  }

  void finish(const TrainOutcome& outcome) {
    std::int64_t high_water = engine_.arena_high_water();
    mesh_.world->all_reduce({&high_water, DType::i64, {1}}, comm::Collective::all_reduce_max);
    telemetry::MetricsLine end("end");
    end.add("step", outcome.step).add("arena_high_water_bytes", high_water);
    end.add("reason", exhausted() ? "no_improvement" : outcome.stopped ? "request" : "steps");
    if (best_ && best_->step >= 0)
      end.add("best_step", best_->step).add("best_" + config::word(best_->metric), best_->value);
    write(end);
    if (lead()) StopRequests::obeyed(config_.checkpoint.dir);
    if (!failed_checkpoint_.empty())
      throw Error(ExitCode::retryable, "cannot write the last checkpoint: " + failed_checkpoint_ +
                                           "; free disk space and restart: the run resumes from " +
                                           "the latest complete checkpoint");
    if (outcome.stopped) say("stopped on request after step " + std::to_string(outcome.step));
    if (exhausted())
      say("early stop at step " + std::to_string(outcome.step) + ": " +
          std::to_string(best_->since) + " evaluations of " + config::word(best_->metric) +
          " without improvement on the best, " + number_text(best_->value) + " at step " +
          std::to_string(best_->step) + "; raise eval.stop.patience to continue");
  }

  config::Config config_;
  comm::Mesh mesh_;
  StopRequests& requests_;
  data::RunData data_;
  data::RunData::Lines lines_;  // to translate at each evaluation
  Engine engine_;
  data::DataLoader loader_;
  comm::Watchdog watchdog_;
  optim::Schedule schedule_;
  std::optional<checkpoint::RunLock> lock_;
  std::optional<telemetry::MetricsLog> metrics_;
  std::unique_ptr<telemetry::Exporter> exporter_;
  telemetry::Progress progress_;
  std::string failed_checkpoint_, origin_ = "{}";
  std::optional<checkpoint::Best> best_;  // with eval.stop
  std::int64_t checkpointed_ = -1;
  int skipped_ = 0;
  double longest_step_ = 0;
  double loss_ = 0;
};

void check_run(const config::Config& config, config::Problems& problems) {
  if (config.model.next_sentence && config.model.random_init() && !config.data.train.next_sentence)
    problems.add({"model.next_sentence", "data.train.next_sentence"},
                 "model.next_sentence is true, but data.train.next_sentence is false, so the "
                 "head would not be trained; expected the same value");
  if (config.checkpoint.resumes_path())
    problems.collect("checkpoint.resume", [&] {
      checkpoint::CheckpointReader(config.checkpoint.resume).check_headers();
    });
  const std::string& init = config.model.init;
  if (!config.model.random_init() && !huggingface::is_huggingface(init))
    problems.collect("model.init", [&] {
      checkpoint::CheckpointReader(
          inference::checkpoint_path(init, checkpoint::Verification::headers))
          .check_headers();
    });
  std::error_code ignored;
  const std::string& dir = config.checkpoint.dir;
  if (std::filesystem::exists(dir, ignored) && !std::filesystem::is_directory(dir, ignored))
    problems.add({"checkpoint.dir"},
                 "checkpoint.dir: " + dir + ": is a file; expected a directory");
}

}  // namespace

void check_inputs(const config::Config& config) {
  config::Problems problems(config.places);
  check_run(config, problems);
  data::check_data(config, problems);
  problems.throw_if_any();
}

TrainOutcome train(const config::Config& config, const comm::Mesh& mesh,
                   const device::Device& device, StopRequests& requests) {
  config::Problems problems(config.places);
  check_run(config, problems);
  problems.throw_if_any();
  return Run(config, mesh, device, requests).run();
}

}  // namespace tfm::train
