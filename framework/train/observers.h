#pragma once
// What a run does besides computing steps, a file each, in the order in which observers are told.
#include "train/observer.h"
#include "train/stop_requests.h"

namespace tfm::train {

// Warns of steps whose loss or gradient is not finite; Error(numerical) after too many in a row.
std::unique_ptr<Observer> watch_nonfinite_steps();  // nonfinite_steps.cpp

// On rank 0. Training goes on if metrics cannot be written or served.
std::unique_ptr<Observer> serve_metrics();      // prometheus.cpp: metrics.listen
std::unique_ptr<Observer> print_log();          // console_log.cpp: progress on standard output
std::unique_ptr<Observer> write_metrics();      // metrics_file.cpp: metrics.jsonl
std::unique_ptr<Observer> write_tensorboard();  // tensorboard.cpp: metrics.tensorboard

// Keeps TrainingRun::best; ends a run whose metric stops improving.
std::unique_ptr<Observer> stop_early(TrainingRun& run);  // early_stopping.cpp
// Evaluates every eval.every steps and after the last; tells after_evaluation().
std::unique_ptr<Observer> evaluate_regularly(TrainingRun& run);  // evaluation.cpp
// Obeys signals and the file STOP, agreed on by all ranks.
std::unique_ptr<Observer> obey_requests(StopRequests& requests);  // stop_requests.cpp

// Writes a checkpoint every checkpoint.every steps, after the last, and where TrainingRun::save
// asks for one; tells after_checkpoint(). Error(retryable) where ranks hold different copies of a
// tensor, and at the end where the last one failed.
std::unique_ptr<Observer> write_checkpoints(TrainingRun& run);  // checkpoints.cpp

}  // namespace tfm::train
