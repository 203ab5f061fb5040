// First starts and second starts: directories, what is resumed, what is refused and what is said.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/lock.h"
#include "support/training.h"
#include "train/engine_state.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;

class Starts : public test::Training {
 protected:
  static std::vector<std::string> with(std::vector<std::string> keys,
                                       const std::vector<std::string>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  }
  // Warnings of start_from(), or the text of its error.
  struct Resumed {
    std::string warnings, said;
    std::optional<Error> error;
  };
  static Resumed start(train::TrainingRun& run) {
    Resumed r;
    r.warnings = stderr_of([&] {
      r.said = stdout_of([&] {
        try {
          train::start_from(run);
        } catch (const Error& e) {
          r.error = e;
        }
      });
    });
    return r;
  }
  // Problems that a check finds, one a line.
  template <class Check>
  static std::string problems_of(Check&& check, const config::Config& c) {
    config::Problems problems(c.places);
    check(c, problems);
    try {
      problems.throw_if_any();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

// Two steps of four are done in each directory.
TEST_F(Starts, WithoutADirectoryTheSameTrainingGoesOn) {
  const auto directory = [](const std::vector<std::string>& keys) {
    return train::default_directory(run_config(with({"checkpoint.dir=auto"}, keys)));
  };
  EXPECT_EQ(train::first_directory(run_config()), "runs/small/checkpoints");
  EXPECT_EQ(directory({}), "runs/small/checkpoints");
  EXPECT_EQ(directory({}), "runs/small/checkpoints") << "it has no checkpoints yet";
  config::Config part = run_config({"checkpoint.dir=runs/small/checkpoints"});
  const std::string config_file = test::get("runs/small/config.yaml");
  EXPECT_TRUE(test::has_text(config_file, "name: small")) << config_file;
  fs::create_directories("runs/small/checkpoints");
  test::put("runs/small/checkpoints/STOP", "");
  ASSERT_TRUE(trained_as(part).outcome.stopped);
  EXPECT_EQ(directory({}), "runs/small/checkpoints");
  // How it runs does not matter.
  for (const char* key : {"train.micro_batch_size=1", "recompute=full", "checkpoint.every=1",
                          "metrics.log_every=3", "parallel.timeout=9", "eval.batches=2"})
    EXPECT_EQ(directory({key}), "runs/small/checkpoints") << key;
  // What it computes does; nothing but config.yaml is written there.
  for (const char* key : {"precision=bf16", "optimizer.lr=0.5", "schedule.type=linear",
                          "train.seed=5", "loss.label_smoothing=0.1", "model.d_ff=8",
                          "data.train.shuffle=true", "train.steps=3", "checkpoint.resume=never"})
    EXPECT_EQ(directory({key}), "runs/small-2/checkpoints") << key;
  EXPECT_EQ(directory({}), "runs/small/checkpoints");
  {
    const checkpoint::RunLock other("runs/small/checkpoints");
    EXPECT_EQ(directory({}), "runs/small-2/checkpoints") << "another run uses the first";
    const checkpoint::RunLock second("runs/small-2/checkpoints");
    EXPECT_EQ(directory({}), "runs/small-3/checkpoints");
  }
  ASSERT_EQ(trained_as(part).outcome.step, 4);
  EXPECT_EQ(directory({}), "runs/small-2/checkpoints") << "the first is done";
  EXPECT_EQ(directory({"train.steps=5"}), "runs/small-2/checkpoints") << "another training";
  test::put("runs/small/config.yaml", config_file);
  fs::remove("runs/small/config.yaml");
  EXPECT_EQ(directory({}), "runs/small-2/checkpoints") << "nothing says whose it is";
}

TEST_F(Starts, ADirectoryThatCannotBeMadeIsAnError) {
  test::put("runs", "a file");
  test::expect_error(ExitCode::usage, {"runs"},
                     [] { train::default_directory(run_config({"checkpoint.dir=auto"})); });
}

TEST_F(Starts, AutomaticChoicesAreTakenOver) {
  ASSERT_FALSE(trained({"train.steps=1", "train.global_batch_size=4", "train.micro_batch_size=1",
                        "recompute=selective"})
                   .error);
  const auto earlier = [](const std::vector<std::string>& keys) {
    return train::earlier_choice(
        read_config(with({"train.global_batch_size=4", "recompute=auto"}, keys)));
  };
  for (const std::string& resume : {std::string("auto"), std::string("ck/step-00000001")}) {
    const std::string dir = resume == "auto" ? "checkpoint.dir=ck" : "checkpoint.dir=other";
    const auto found = earlier({dir, "checkpoint.resume=" + resume});
    ASSERT_TRUE(found) << resume;
    EXPECT_EQ(found->from, "ck/step-00000001");
    EXPECT_EQ(found->layout.micro_batch(), 1);
    EXPECT_EQ(found->layout.recompute, config::Recompute::selective);
    EXPECT_TRUE(earlier({dir, "checkpoint.resume=" + resume, "train.micro_batch_size=2"}))
        << "recompute is still to choose";
    EXPECT_TRUE(earlier({dir, "checkpoint.resume=" + resume, "recompute=none"}));
    EXPECT_FALSE(
        earlier({dir, "checkpoint.resume=" + resume, "train.micro_batch_size=2", "recompute=none"}))
        << "nothing is to choose";
  }
  EXPECT_FALSE(earlier({"checkpoint.resume=never"}));
  EXPECT_FALSE(earlier({"checkpoint.dir=none"}));
  EXPECT_FALSE(earlier({"checkpoint.dir=other"}));
  EXPECT_FALSE(earlier({"checkpoint.resume=ck/step-00000009"})) << "the run itself says why";
}

TEST_F(Starts, AnEarlierMicroBatchIsTakenOverInItsUnitAlone) {
  test::put("a", "one\ntwo\nthree\nfour\n");
  const auto read = [](const std::vector<std::string>& keys) {
    return read_config(with({"recompute=auto"}, keys), "encoder_decoder",
                       "{type: pairs, source: a, target: a}");
  };
  config::Config first = read({"train.steps=1", "train.micro_batch_size=1"});
  first.recompute = config::Recompute::none;
  config::resolve_for_ranks(first, 1);
  ASSERT_FALSE(trained_as(first).error);
  const auto earlier = [&](const std::vector<std::string>& keys) {
    return train::earlier_choice(read(keys));
  };
  EXPECT_TRUE(earlier({}));
  EXPECT_FALSE(earlier({"train.global_batch_tokens=32"})) << "sequences are no tokens";
  EXPECT_TRUE(earlier({"train.global_batch_tokens=32", "train.micro_batch_tokens=32"}))
      << "of which recompute alone is to choose";
}

// Weights of step 0 alone, whose configuration was not chosen by a run.
TEST_F(Starts, OfAnImportNothingIsTakenOverAndNothingSaid) {
  const std::vector<std::string> keys{"train.micro_batch_size=1", "optimizer.lr=0.5"};
  for (const bool import : {true, false}) {
    fs::remove_all("ck");
    Run run(run_config(keys));
    std::vector<checkpoint::Chunk> chunks = train::checkpoint_chunks(run.engine);
    if (import) std::erase_if(chunks, [](const auto& c) { return !c.name.starts_with("model/"); });
    const checkpoint::CheckpointInfo info{
        .step = 0, .seed = 5, .layout = {{"data", 1}}, .config = config::dump_config(run.config)};
    ASSERT_EQ(checkpoint::write_checkpoint("ck", info, chunks, 0, {}).error, "");
    EXPECT_EQ(train::earlier_choice(read_config()).has_value(), !import);
    Run next(run_config());
    const Resumed r = start(next);
    ASSERT_FALSE(r.error) << r.error->what();
    EXPECT_EQ(r.said, "resumed from ck/step-00000000 at step 0\n");
    EXPECT_EQ(r.warnings.empty(), import) << r.warnings;
    EXPECT_EQ(next.step, 0);
  }
}

TEST_F(Starts, ASecondStartTakesUpEverything) {
  {
    Run run(run_config({"precision=fp16", "checkpoint.every=2"}));
    run.add(train::write_checkpoints(run));
    run.engine.loss_scale() = {.value = 1024, .updates = 7, .dynamic = true};
    run.engine.updates() = 2;
    run.provenance = R"({"from":"elsewhere"})";
    run.init = "elsewhere";
    run.best = {.metric = config::Metric::loss, .step = 2, .value = 2.5, .since = 1};
    run.evaluation_due = true;
    run.save = true, run.step = 3;
    run.tell(&train::Observer::after_step);
  }
  struct Case {
    std::vector<std::string> keys;
    bool scale, best, due;
  };
  const std::string validation = "data.validation={type: text, path: text.txt}",
                    every = "eval.every=2", stop = "eval.stop={metric: loss, patience: 3}",
                    accuracy = "eval.metrics=[accuracy]";
  for (const Case& c : {Case{{"precision=fp16", validation, every, stop}, true, true, true},
                        Case{{"precision=fp32", validation, every}, false, false, true},
                        Case{{"precision=fp16", validation}, true, false, false},
                        Case{{"precision=fp16"}, true, false, false},
                        Case{{"precision=fp16", validation, every, accuracy,
                              "eval.stop={metric: accuracy, patience: 3}"},
                             true,
                             false,
                             true}}) {
    Run run(run_config(c.keys));
    run.add(train::stop_early(run));
    const Resumed r = start(run);
    ASSERT_FALSE(r.error) << r.error->what();
    EXPECT_EQ(r.said, "resumed from ck/step-00000003 at step 3\n");
    EXPECT_EQ(run.step, 3);
    EXPECT_EQ(run.engine.updates(), 2);
    EXPECT_EQ(run.provenance, R"({"from":"elsewhere"})");
    EXPECT_EQ(run.init, "elsewhere");
    EXPECT_EQ(run.engine.loss_scale().value, c.scale ? 1024 : 1);
    EXPECT_EQ(run.engine.loss_scale().dynamic, c.scale);
    EXPECT_EQ(run.engine.loss_scale().updates, c.scale ? 7 : 0);
    EXPECT_EQ(run.best && run.best->step == 2, c.best);
    EXPECT_EQ(run.evaluation_due, c.due);
  }
}

TEST_F(Starts, AnFp16RunGoesOnFromOneInAnotherPrecisionAtTheFirstScale) {
  ASSERT_FALSE(trained({"train.steps=2", "precision=bf16"}).error);
  Run run(run_config({"precision=fp16"}));
  start(run);
  EXPECT_EQ(run.step, 2);
  EXPECT_EQ(run.engine.loss_scale().value, 65536);
  EXPECT_TRUE(run.engine.loss_scale().dynamic);
}

TEST_F(Starts, TheCheckpointIsTheLatestTheNamedOneOrNone) {
  ASSERT_FALSE(trained({"checkpoint.every=2"}).error);
  struct Case {
    std::vector<std::string> keys;
    std::int64_t step;
  };
  for (const Case& c : {Case{{}, 4}, Case{{"checkpoint.resume=never"}, 0},
                        Case{{"checkpoint.resume=ck/step-00000002"}, 2},
                        Case{{"checkpoint.resume=ck/step-00000002", "checkpoint.dir=none"}, 2},
                        Case{{"checkpoint.dir=none"}, 0}, Case{{"checkpoint.dir=other"}, 0}}) {
    Run run(run_config(c.keys));
    const Resumed r = start(run);
    ASSERT_FALSE(r.error) << r.error->what();
    EXPECT_EQ(run.step, c.step);
    EXPECT_EQ(r.warnings, "");
  }
  for (const auto& [path, text] :
       std::map<std::string, std::string>{{"ck", "such as ck/step-00000004"},
                                          {"ck/step-00000003", "does not exist"},
                                          {"runs", "runs/manifest.json is missing"}}) {
    fs::create_directory("runs");
    const config::Config c = run_config({"checkpoint.resume=" + path});
    Run run(c);
    const Resumed r = start(run);
    ASSERT_TRUE(r.error) << path;
    EXPECT_EQ(r.error->code(), ExitCode::input);
    EXPECT_TRUE(test::has_text(r.error->what(), text)) << r.error->what();
    const std::string checked = problems_of(train::check_checkpoints, c);
    EXPECT_TRUE(test::has_text(checked, text)) << checked;
    EXPECT_EQ(problems_of(train::check_latest, c), "") << "the latest is not asked for";
  }
}

TEST_F(Starts, ADamagedCheckpointIsNoneToBeginWith) {
  ASSERT_FALSE(trained({"checkpoint.every=2"}).error);
  for (const auto& f : fs::directory_iterator("ck/step-00000004"))
    if (f.path().extension() == ".safetensors") {
      std::string bytes = test::get(f.path());
      bytes.back() ^= 1;  // found by checksums, not by headers
      test::put(f.path(), bytes);
    }
  {
    Run run(run_config());
    const Resumed r = start(run);
    EXPECT_EQ(run.step, 2);
    EXPECT_TRUE(test::has_text(r.warnings, "step-00000004")) << r.warnings;
  }
  Run run(run_config({"checkpoint.resume=ck/step-00000004"}));
  const Resumed r = start(run);
  ASSERT_TRUE(r.error);
  EXPECT_EQ(r.error->code(), ExitCode::input);
  EXPECT_TRUE(test::has_text(r.error->what(), "checkpoint.resume")) << r.error->what();
}

TEST_F(Starts, AnotherModelOrBatchIsRefused) {
  ASSERT_FALSE(trained({"train.steps=2"}).error);
  struct Case {
    std::vector<std::string> keys;
    std::string text;
  };
  for (const Case& c :
       {Case{{"train.global_batch_size=4"}, "a global batch size of 2;"},
        Case{{"model.n_layers=2"}, "n_layers"}, Case{{"model.d_ff=12"}, "d_ff"},
        Case{{"model.vocab_size=300"}, "vocab_size"}, Case{{"model.activation=relu"}, "activation"},
        Case{{"model.n_heads=4"}, "n_heads"}}) {
    const config::Config config = run_config(c.keys);
    Run run(config);
    const Resumed r = start(run);
    ASSERT_TRUE(r.error) << c.text;
    EXPECT_EQ(r.error->code(), ExitCode::usage);
    EXPECT_TRUE(test::has_text(r.error->what(), c.text)) << r.error->what();
    for (const config::Config& asked :
         {config, run_config(with(c.keys, {"checkpoint.resume=ck/step-00000002"}))}) {
      const std::string checked = problems_of(
          asked.checkpoint.resumes_path() ? train::check_checkpoints : train::check_latest, asked);
      EXPECT_TRUE(test::has_text(checked, c.text)) << checked;
    }
  }
  EXPECT_EQ(problems_of(train::check_latest, run_config()), "");
  EXPECT_EQ(problems_of(train::check_latest, run_config({"model.n_layers=2", "checkpoint.dir=x"})),
            "");
  EXPECT_EQ(
      problems_of(train::check_latest, run_config({"model.n_layers=2", "checkpoint.resume=never"})),
      "");
}

TEST_F(Starts, EverySettingThatChangesTheStepsIsSaid) {
  ASSERT_FALSE(trained({"train.steps=2", "schedule.type=constant"}).error);
  struct Case {
    std::string now, said;  // said: empty: nothing is
  };
  const std::string rate = "the learning rate goes from 0.01 at step 2 to 0.02 at step 3";
  for (const Case& c :
       {Case{"train.steps=3", ""}, Case{"train.micro_batch_size=1", ""},
        Case{"checkpoint.every=7", ""}, Case{"recompute=full", ""}, Case{"eval.batches=3", ""},
        Case{"optimizer.eps=1e-6", "optimizer.eps: 1e-06 from here on, 1e-08 before"},
        Case{"optimizer.lr=0.02", "(2 times)"}, Case{"optimizer.lr=0.02", rate},
        Case{"optimizer.lr=0.005", "(0.5 times)"},
        Case{"model.dropout=0.25", "model.dropout: 0.25 from here on, 0 before"},
        Case{"model.rope.theta=500", "model.rope.theta: 500 from"},
        Case{"loss.label_smoothing=0.5", "loss.label_smoothing: 0.5 from"},
        Case{"schedule.min_lr=0.001", "schedule.min_lr: "},
        Case{"precision=bf16", "precision: bf16 from here on, fp32 before"},
        Case{"train.seq_len=4", "train.seq_len: 4 from here on, 8 before"},
        Case{"train.seed=5", "was written with train.seed 1234; data order and dropout"},
        Case{"data.train.shuffle=true", "data.train.shuffle: "},
        Case{"schedule.type=linear", "schedule.type: linear from here on, constant before"}}) {
    Run run(run_config({"train.steps=4", c.now}));
    const Resumed r = start(run);
    ASSERT_FALSE(r.error) << c.now << ": " << r.error->what();
    EXPECT_EQ(r.warnings.empty(), c.said.empty()) << c.now << ": " << r.warnings;
    EXPECT_TRUE(test::has_text(r.warnings, c.said)) << c.now << ": " << r.warnings;
  }
}

TEST_F(Starts, MoreStepsAreSaidWhereTheScheduleEndsWithThem) {
  for (const char* type : {"cosine", "constant"}) {
    fs::remove_all("ck");
    const std::string schedule = std::string("schedule.type=") + type;
    ASSERT_FALSE(trained({"train.steps=2", schedule}).error);
    Run run(run_config({"train.steps=8", schedule}));
    const std::string said = start(run).warnings;
    if (schedule.ends_with("constant")) {
      EXPECT_EQ(said, "");
      continue;
    }
    EXPECT_TRUE(test::has_text(said, "train.steps: 8 from here on, 2 before; schedule cosine ends"))
        << said;
    const double rate = 0.01 * (1 + std::cos(M_PI * 3 / 8)) / 2;
    std::ostringstream goes;
    goes.precision(5);
    goes << "from 0 at step 2 to " << rate;
    EXPECT_TRUE(test::has_text(said, goes.str())) << goes.str() << "\n" << said;
    EXPECT_FALSE(test::has_text(said, " times)")) << "of zero";
  }
}

TEST_F(Starts, AnUnchangedScheduleIsNotSaid) {
  const std::vector<std::string> keys{"train.steps=8", "schedule.type=cosine",
                                      "schedule.warmup_steps=3", "checkpoint.every=2",
                                      "checkpoint.keep=9"};
  ASSERT_FALSE(trained(keys).error);
  for (const char* step : {"2", "4", "6"}) {
    Run run(run_config(with(keys, {std::string("checkpoint.resume=ck/step-0000000") + step})));
    EXPECT_EQ(start(run).warnings, "") << step;
  }
}

// Where the first weights came from, as a checkpoint has it: model.init, and that of an import.
TEST_F(Starts, WeightsThatAreNotReadAreSaidWhereOthersWere) {
  ASSERT_FALSE(trained({"train.steps=2", "checkpoint.dir=other"}).error);
  struct Case {
    std::string init, extra, said;
  };
  for (const Case& c : {Case{"", "{}", "and began with other weights;"},
                        Case{"", R"({"from":"hf"})", ""}, Case{"other", R"({"from":"hf"})", ""},
                        Case{"third", R"({"from":"hf"})", "and began with third;"},
                        Case{"third", "{}", "and began with third;"}}) {
    fs::remove_all("ck");
    {
      Run run(run_config());
      run.add(train::write_checkpoints(run));
      run.init = c.init, run.provenance = c.extra;
      run.finish_step(4, {});
    }
    Run run(run_config({"model.init=other"}));
    const std::string said = start(run).warnings;
    EXPECT_EQ(said.empty(), c.said.empty()) << c.init << ": " << said;
    EXPECT_TRUE(test::has_text(said, c.said)) << said;
  }
}

TEST_F(Starts, OtherDataIsSaid) {
  ASSERT_FALSE(trained({"train.steps=2"}).error);
  Run run(run_config());
  const std::int64_t tokens = run.data.tokens;
  EXPECT_EQ(start(run).warnings, "");
  test::put("text.txt", test::get("text.txt").substr(0, 900));
  Run other(run_config());
  const std::string said = start(other).warnings;
  EXPECT_TRUE(test::has_text(said, "of " + std::to_string(tokens) + " tokens; now they are " +
                                       std::to_string(other.data.tokens)))
      << said;
}

TEST_F(Starts, InitialWeightsAreReadOnceAndNamedFromThenOn) {
  ASSERT_FALSE(trained({"train.steps=2", "checkpoint.dir=first"}).error);
  const auto embedding = [](train::TrainingRun& run) {
    return std::vector<float>(static_cast<const float*>(run.engine.flat().parameters),
                              static_cast<const float*>(run.engine.flat().parameters) + 100);
  };
  Run random(run_config()), tuned(run_config({"model.init=first"}));
  EXPECT_EQ(start(random).said, "");
  const Resumed begun = start(tuned);
  ASSERT_FALSE(begun.error) << begun.error->what();
  EXPECT_TRUE(test::has_text(begun.said, "initialized weights from first\n")) << begun.said;
  EXPECT_EQ(tuned.init, "first");
  EXPECT_EQ(random.init, "");
  EXPECT_EQ(tuned.step, 0);
  EXPECT_NE(embedding(random), embedding(tuned));
  // A second start reads its own checkpoint, and says where another model.init is ignored.
  ASSERT_FALSE(trained({"train.steps=2", "model.init=first"}).error);
  fs::copy("first", "third", fs::copy_options::recursive);
  Run again(run_config({"model.init=first"})), other(run_config({"model.init=third"}));
  EXPECT_EQ(start(again).warnings, "");
  EXPECT_EQ(again.init, "first");
  const std::string said = start(other).warnings;
  EXPECT_TRUE(test::has_text(said,
                             "model.init third is not read: the run goes on from "
                             "ck/step-00000002, and began with first;"))
      << said;
  EXPECT_EQ(other.init, "first");
}

TEST_F(Starts, DirectoriesThatCannotBeUsedAreFoundBefore) {
  test::put("file", "");
  fs::create_directory_symlink("nowhere", "link");
  fs::create_directories("hf");
  test::put("hf/config.json", R"({"model_type":"gpt2"})");
  for (const auto& [dir, text] : std::map<std::string, std::string>{
           {"file", "is a file; expected a directory"},
           {"link", "is a symbolic link to nowhere, which does not exist"},
           {"link/", "is a symbolic link to nowhere"},
           {"hf", "has a config.json"},
           {"new", ""},
           {"none", ""}}) {
    const std::string found =
        problems_of(train::check_checkpoints, run_config({"checkpoint.dir=" + dir}));
    EXPECT_EQ(found.empty(), text.empty()) << dir << ": " << found;
    EXPECT_TRUE(test::has_text(found, text)) << dir << ": " << found;
  }
  ASSERT_FALSE(trained({"train.steps=1", "checkpoint.dir=hf"}).outcome.step == 1)
      << "programs would read another model";
  ASSERT_FALSE(trained({"train.steps=1"}).error);
  test::put("ck/config.json", R"({"model_type":"gpt2"})");
  EXPECT_EQ(problems_of(train::check_checkpoints, run_config()), "") << "it has checkpoints";
}

TEST_F(Starts, OptionsOfOtherOptimizersHaveNoEffectAndThatIsSaid) {
  const auto said = [](const std::vector<std::string>& keys) {
    const config::Config c = run_config(keys);
    return stderr_of([&] { problems_of(train::check_start, c); });
  };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({"optimizer.muon.momentum=0.5"}),
            "warning: optimizer.muon.momentum has no effect with optimizer.type adamw\n");
  EXPECT_EQ(said({"optimizer.muon.momentum=0.5", "optimizer.type=muon"}), "");
  EXPECT_EQ(said({"optimizer.muon.momentum=0.95"}), "") << "the default";
  EXPECT_EQ(said({"optimizer.adafactor.eps2=0.5", "optimizer.type=muon"}),
            "warning: optimizer.adafactor.eps2 has no effect with optimizer.type muon\n");
}

TEST_F(Starts, ALoggedRunIsTheSameInTwoParts) {
  const std::vector<std::string> keys{"eval.every=2", "eval.batches=2",
                                      "data.validation={type: text, path: text.txt}",
                                      "optimizer.ema=0.9", "model.dropout=0.1"};
  const auto run = [&](const std::string& name, const std::string& steps) {
    const Done done = trained(with(keys, {"checkpoint.dir=" + name, "train.steps=" + steps,
                                          "metrics.jsonl=" + name + ".jsonl"}));
    ASSERT_FALSE(done.error) << done.error->what();
  };
  run("whole", "5");
  run("parts", "3");
  run("parts", "5");
  EXPECT_EQ(test::checkpoint_bytes("whole/step-00000005"),
            test::checkpoint_bytes("parts/step-00000005"));
  const auto evaluations = [](const std::string& file) {
    std::map<std::int64_t, double> losses;
    std::istringstream in(test::get(file));
    for (std::string line; std::getline(in, line);)
      if (const auto e = nlohmann::json::parse(line); e["event"] == "eval")
        losses[e["step"].get<std::int64_t>()] = e["loss"].get<double>();
    return losses;
  };
  std::map<std::int64_t, double> whole = evaluations("whole.jsonl"),
                                 parts = evaluations("parts.jsonl");
  EXPECT_EQ(parts.erase(3), 1u) << "the last step of the first part";
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(whole.size(), 3u);
}

}  // namespace
}  // namespace tfm
