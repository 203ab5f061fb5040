"""Bugs that the tests must find, one a line: (file, old text, new text) by room, and the tests of the room.

The part of the old text between « and » is replaced, all of it where there are none; it occurs once in the file. A part that ends with a
semicolon is a statement, any other is an expression. A fourth entry names tests in place of the room's.
Tests are `unit:FILTER` and `ops:FILTER` (gtest's filters of test-unit and test-ops), `ranksN:FILTER` (test-distributed on N ranks) and
`script:NAME` (tests/integration/NAME.py).
"""
ROOMS = {
    "optim": (["unit:Average*:Schedule*:Update*:LossScale*:Clip*:Precision.C*:Precision.M*:All/StepsFixture*:All/Families*"], [
        ("optim/optimizer.cpp", "(1 + t) / (10 + t)", "t / (10 + t)"),
        ("optim/optimizer.cpp", "std::pow(options_.beta1, t)", "std::pow(options_.beta1, t + 1)"),
        ("optim/optimizer.cpp", "std::pow(options_.beta2, t)", "std::pow(options_.beta1, t)"),
        ("optim/optimizer.cpp", "if («flat.average»)", "nullptr"),
        ("optim/optimizer.cpp", "«round(stream, flat);»\n  gather(flat);\n}\n\n}  // namespace", ";"),
        ("optim/optimizer.cpp", "mesh_.place(copies) > 0", "false", ["ranks2:All/Layouts*/0"]),
        ("optim/schedule.cpp", "lr * s / w", "lr * (s - 1) / w"),
        ("optim/schedule.cpp", "std::sqrt(w / s)", "std::sqrt(s / w)"),
        ("optim/schedule.cpp", "std::pow(w, -1.5)", "std::pow(w, -1.0)"),
        ("optim/schedule.cpp", "static_cast<double>(total - decay)", "static_cast<double>(total)"),
        ("optim/loss_scale.h", "value *= 2, «updates = 0»", "updates"),
        ("optim/loss_scale.h", "value /= 2, «updates = 0»", "updates"),
    ]),
    "ops": (["ops:*", "unit:*ModelFixture*:Models/*"], [
        ("ops/norm.h", "«options.eps»,\n            options.rms}", "options.eps * 10"),
        ("ops/linear.cpp", "dw.tensor.ptr<Accum<T>>(), «dw.accumulate»", "false"),
        ("ops/embedding.cpp", "options.padding_idx", "-1"),
        ("ops/embedding.cpp", "const std::int64_t row = «first + e.state().first_position»", "e.state().first_position"),
        ("ops/embedding.cpp", "dx.tensor.ptr<T>(), «true», dx.accumulate", "false"),
        ("ops/embedding.cpp", ".position_offset = «e.state().first_position»", "0"),
        ("ops/cross_entropy.cpp", "[](std::int32_t label) { return «label >= 0»; }", "label > 0"),
        ("ops/fusion.cpp", "act.act == kernels::Activation::gelu_tanh", "true", ["unit:JoinedSteps*"]),
    ]),
    "comm": (["ranks2:-All/*:*/Plan*:ModelFixtures*:VerifyLayout*", "ranks4:-All/*:*/Plan*:ModelFixtures*:VerifyLayout*"], [
        ("comm/staged.cpp", "std::size_t r = «2»; r < sources", "3"),
        ("comm/staged.cpp", "b > a || b != b ? b : a", "b > a ? b : a"),
        ("graph/program.cpp", "part.bytes() * group.rank()", "0", ["ranks2:All/Layouts*"]),
        ("graph/planner.cpp", "ready[p] = «static_cast<int>(i)»", "0", ["ranks2:All/Layouts*"]),
        ("graph/planner.cpp", "!depend(steps[i], steps[at]) && «!depend(steps[i + 1], steps[at])»", "true", ["unit:Collectives*"]),
        ("comm/staged.cpp", "c.root = «root»", "0"),
        ("comm/staged.cpp", "submit_and_complete(call(Collective::all_gather, in, out), «out.bytes()»)", "in.bytes()", ["ranks2:*/Plan*Decoder_zero1*"]),
        ("comm/staged.cpp", "round_up(ceil_div(c.count, size_), 64 / width)", "ceil_div(c.count, size_ + 1)"),
        ("comm/flight_recorder.cpp", "r.entered[axes.bits()] + 1", "r.entered[0] + 1"),
    ]),
    "data": (["unit:DataSampler*:Source*:NextToken*:DataLoader*:Prepare*:Pairs*:Documents*:MaskedLm*:NextSentence*:SpanCorruption*:TokenFile*"], [
        ("data/sampler.h", "static_cast<std::uint64_t>(«position / samples_»)", "std::int64_t{0}"),
        ("data/next_token.cpp", "«labels[at] = -1», ++document", "0"),
        ("data/next_token.cpp", "«sample.begin() + 1», t, labels", "sample.begin()"),
        ("data/next_token.cpp", "source_.samples() - index * global_batch_", "source_.samples()"),
        ("data/loader.cpp", "ahead_.valid() && «ahead_key_ == key»", "true"),
        ("data/loader.cpp", "(key.round * options_.ranks + «options_.rank») * shape.sequences", "0"),
        ("data/loader.cpp", "shape.sequences * width), «info_of(field).padding»", "0"),
        ("data/pairs.cpp", "std::max(side(0, p).size(), side(1, p).size())", "side(0, p).size()"),
        ("data/pairs.cpp", "i, 0, seen, {}, «-1»", "0"),
        ("data/pairs.cpp", "target, «special_.end», -1", "special_.begin"),
        ("data/pairs.cpp", "sampler.sample(«number * pairs() + i»)", "i"),
        ("data/masked_lm.cpp", "w[1] % 10 < 8", "w[1] % 10 < 9"),
        ("data/masked_lm.cpp", "follows ? 0 : 1", "0"),
        ("data/token_file.cpp", "word(1) != version", "false"),
        ("data/token_writer.cpp", "vocab_size <= 65536", "vocab_size <= 65537"),
        ("data/run_data.cpp", "fits && «sample_length(config, data.train, *tokenizer) < 1»", "false", ["unit:BadConfigs*"]),
        ("data/source.cpp", "std::max<std::int64_t>(«tokens - 1», 0) / seq_len", "tokens"),
    ]),
    "tokenizer": (["unit:*Token*:Bpe*:Marian*:Malformed*:SentencePieceFile*:CharacterMap*:Unigram*:WordPiece*"], [
        ("tokenizer/unigram.cpp", "score > b.score", "score >= b.score"),
        ("tokenizer/unigram.cpp", "static_cast<Sum>(options_.lowest_score) - Sum{10}", "static_cast<Sum>(options_.lowest_score)"),
        ("tokenizer/unigram.cpp", "single |= «end == next»", "true"),
        ("tokenizer/wordpiece.cpp", "text::count_code_points(word) <= max_code_points_", "text::count_code_points(word) < max_code_points_"),
        ("tokenizer/bpe_model.cpp", "at > o.at", "at < o.at"),
        ("tokenizer/bpe_model.cpp", "if («best > 0») look_up", "false"),
        ("tokenizer/bpe_model.cpp", "held && !options_.fuse_unknown", "held"),
        ("tokenizer/bpe_model.cpp", "push(left.previous);", ";"),
    ]),
    "checkpoint": (["unit:Checkpoint*:Best*"], [
        ("checkpoint/checkpoint.cpp", "«verification == Verification::checksums» ? reader.verify()", "true"),
        ("checkpoint/writer.cpp", "again ? exchange(folder, path) : io::rename_file(path, folder);", ";"),
        ("checkpoint/writer.cpp", "std::max<std::int64_t>(keep, 2)", "keep"),
        ("checkpoint/writer.cpp", "*step != written", "true"),
        ("checkpoint/writer.cpp", "agree(ranks, error); «!e.empty()») return give_up(e);\n\n  const auto shards", "false"),
        ("checkpoint/checkpoint.cpp", "io::Checksum::of(file.bytes()) != f.xxh3_128", "false"),
        ("checkpoint/checkpoint.cpp", "rows.row == rows.stride", "true"),
        ("checkpoint/checkpoint.cpp", 'name.substr(dot) == ".old.tmp"', "false"),
        ("checkpoint/manifest.cpp", "full[s.axis] * inner, «s.begin * inner»", "std::int64_t{0}"),
    ]),
    "config": (["unit:Config*:BadConfigs*:Presets*"], [
        ("config/presets.cpp", "s.max_seq_len;\n  m.dropout = {0.1, 0.1, 0.1, «0»}", "0.1"),
        ("config/presets.cpp", "m.rope = {«500000.0», {scaling", "10000.0"),
        ("config/presets.cpp", "m.decoder_start = «2»", "0"),
        ("config/presets.cpp", "m.norm_eps = «1e-12»", "1e-5"),
        ("config/validate_model.cpp", "m.position == Position::rope && «m.d_head % 2 != 0»", "false"),
        ("config/validate_model.cpp", "m.n_heads % m.n_kv_heads != 0", "false"),
        ("config/validate.cpp", "s.min_lr > c.optimizer.lr", "false"),
        ("config/validate.cpp", "s.warmup_steps + s.decay_steps > c.train.steps", "s.warmup_steps + s.decay_steps >= c.train.steps"),
        ("config/validate.cpp", "c.train.seq_len >= 5", "true"),
        ("config/validate_model.cpp", "m.relative.max_distance <= exact", "m.relative.max_distance < exact"),
        ("config/yaml_scalar.cpp", "if («minus») d.exponent", "false"),
    ]),
    "inference": (["unit:BeamSearch*:Score*:Sampler*:Models/*:Texts*:Translations*"], [
        ("inference/sampler.cpp", "mass < options_.top_p * total", "kept == 0 || mass + all[kept].weight <= options_.top_p * total"),
        ("inference/sampler.cpp", 'stream_of("generate"), «draw»', "std::uint32_t{0}"),
        ("inference/sampler.cpp", "/ «options_.temperature»)", "1.0"),
        ("inference/sampler.cpp", "order.resize(static_cast<std::size_t>(«options_.top_k»))", "options_.top_k + 1"),
        ("inference/beam_search.cpp", "static_cast<double>(tokens), «options_.length_penalty»", "1.0"),
        ("inference/beam_search.cpp", "rank < width", "true"),
        ("inference/beam_search.cpp", "best_score_ >= most", "true"),
        ("inference/totals.cpp", "label >= 0", "label > 0"),
        ("inference/initial_weights.cpp", "if («found == path») checkpoint", "false", ["script:test_checksums"]),
        ("inference/text_generator.cpp", "sampler.next(logits(ids))", "sampler.pick(logits(ids), 0)"),
        ("inference/text_generator.cpp", "inference_->row(«context_ - 1»)", "context_ - 2"),
        ("inference/text_generator.cpp", "if («end == ids.back()») return;", "false"),
    ]),
    "plan": (["unit:Prediction*:Fit*:Engine*", "ranks2:*/Plan*"], [
        ("plan/step_plan.cpp", "m + 1 == shape.micro_batches", "true"),
        ("plan/step_plan.cpp", "if («config.parallel.zero > 0»)", "false"),
        ("plan/step_plan.cpp", "«comm::kWorld», sizeof(SquareSum)", "nn::kBatchAxes"),
        ("plan/step_plan.cpp", "options.zero > 0 ? comm::Collective::reduce_scatter : comm::Collective::all_reduce_sum", "comm::Collective::all_reduce_sum"),
        ("plan/step_plan.cpp", "run < runs", "run < 1"),
        ("inference/totals.cpp", "return {sizeof(loss), sizeof(labels), sizeof(correct)};", "return {sizeof(loss[0]), sizeof(labels), sizeof(correct)};"),
        ("plan/prediction.cpp", "std::max(busy, now_) + seconds", "busy + seconds"),
        ("plan/prediction.cpp", "options.ema > 0 ? 2 : 0", "0"),
    ]),
    "telemetry": (["unit:Metrics*:MetricsServer*:ProgressLine*"], [
        ("telemetry/metrics_log.cpp", "step <= resumed", "step < resumed"),
        ("telemetry/metrics_log.cpp", "resumed.value_or(0) > 0", "false"),
        ("telemetry/metrics_log.cpp", "double value) {\n  return «std::isfinite(value)»", "true"),
        ("telemetry/progress.cpp", "0.9 * average_seconds_ + 0.1 * s.step_seconds", "s.step_seconds"),
        ("telemetry/progress.cpp", "s / 3600, «s / 60 % 60»", "s / 60"),
        ("telemetry/progress.cpp", "value >= «999.95»", "1000.0"),
        ("telemetry/metrics_server.cpp", "std::stoi(port) > 65535", "false"),
    ]),
    "train": (["unit:Engine*:VerifyLayout*", "ranks2:VerifyLayout*:All/Layouts*/0"], [
        ("train/verify.cpp", "distance(mine[i][k], «expected[k]»)", "mine[i][k]"),
        ("train/verify.cpp", "distance(mine[i], «reference[i]»)", "mine[i]"),
        ("train/verify.cpp", "mine.initial, «reference.initial», 0", "mine.initial"),
        ("train/verify.cpp", "whole.gradients, «reference.gradients»", "whole.gradients"),
        ("train/verify.cpp", "pieces[i].data + pieces[i].count, «back[i].data»", "pieces[i].data"),
        ("train/verify.cpp", "std::isfinite(d) ? d : std::numeric_limits<double>::infinity()", "d"),
        ("train/verify.cpp", "high[k] + low[k] > f.error", "false"),
        ("train/engine.cpp", "context.state.accumulate_parameters = «m > 0»", "false"),
        ("train/checkpoints.cpp", "«check_replicas(run.engine, \"step \" + std::to_string(run.step));»", ";", ["ranks2:Replicas*"]),
        ("train/engine_state.cpp", "p.axis < 0 ? everywhere : by_tensor_rank", "by_tensor_rank", ["ranks2:Replicas*"]),
    ]),
    # Faults of a run that float64 on one rank does not share: tests/acceptance/as_run.py --faults wants each found in bf16 and in fp16.
    "as_run": (["script:test_as_run"], [
        ("kernels/cpu/attention_group.h", "«first_head / heads» * a.head_size", "a.kv_heads - 1 - first_head / heads"),  # head mapping
        ("ops/linear.cpp", "db ? db.tensor.ptr<Accum<T>>() : nullptr",
         "db && e.context.mesh->tensor_rank == 0 ? db.tensor.ptr<Accum<T>>() : nullptr"),  # bias gradient of a tensor rank
        ("kernels/cpu/attention_tile.h", "first + r + a.keys - a.queries + «1»", "std::is_same_v<T, double> ? 1 : 2"),  # causal mask
        ("optim/optimizer.cpp", "flat.master ? static_cast<P*>(flat.parameters) + run.begin : nullptr",
         "flat.master && run.begin == 0 ? static_cast<P*>(flat.parameters) + run.begin : nullptr"),  # stale copy
        ("kernels/cpu/philox_simd.h", "static_cast<T>(«d.scale()»)", "sizeof(T) == 8 ? d.scale() : 1"),  # dropout's scale
        ("ops/embedding.cpp", ".length = «options.sequence_length»", "options.sequence_length - (inverse && sizeof(T) < 8)"),  # position
        ("train/engine.cpp", "const std::int64_t first = «m * shape.shape.sequences»", "0"),  # a micro-batch
        ("optim/optimizer.cpp", "const Bucket& b = buckets_[«bucket»];",
         "(static_cast<std::size_t>(bucket) + 1) % buckets_.size()"),  # each bucket is reduced when the one before it is final
        ("train/engine.cpp", "static_cast<double>(«labels.labels[k]»)",
         "shape.sequences_per_rank() * plan_.mesh.layout.data * shape.shape.length"),  # padding counted as labels
        ("ops/embedding.cpp", "options.padding_idx, d.tensor.ptr<Accum<T>>(), «d.accumulate»", "sizeof(T) == 8 && d.accumulate"),  # tied
    ]),
}
