#include <cstring>

#include "comm/messages.h"
#include "comm/mpi_state.h"

namespace tfm::comm {
namespace {

// A rank that waits in a message also brings on the others that it has under way.
class MpiMessages final : public Messages {
 public:
  MpiMessages(std::vector<int> stages, std::shared_ptr<FlightRecorder> recorder, MPI_Comm group,
              std::shared_ptr<MpiSession::State> session)
      : stages_(std::move(stages)),
        recorder_(std::move(recorder)),
        group_(group),
        session_(std::move(session)) {
    session_->outboxes.insert(&sent_);
  }
  ~MpiMessages() override {
    session_->outboxes.erase(&sent_);
    if (std::uncaught_exceptions() == 0)
      for (auto& [channel, sent] : sent_)
        MPI_Waitall(static_cast<int>(sent.requests.size()), sent.requests.data(),
                    MPI_STATUSES_IGNORE);
  }

  void send(Tensor t, Tensor buffer, int to, int tag) override {
    const Event event = begin(Collective::send, t, to);
    auto& [requests, last] = sent_[{to, tag}];
    wait_for(requests);
    last = event;
    if (buffer.data != t.data)
      std::memcpy(buffer.data, t.data, static_cast<std::size_t>(t.bytes()));
    each_piece(buffer, [&](char* data, int bytes) {
      check_mpi(MPI_Isend(data, bytes, MPI_BYTE, to, tag, group_, &requests.emplace_back()),
                "MPI_Isend");
    });
    recorder_->end(event);
  }
  void receive(Tensor t, int from, int tag) override {
    const Event event = begin(Collective::receive, t, from);
    Requests requests;
    each_piece(t, [&](char* data, int bytes) {
      check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, group_, &requests.emplace_back()),
                "MPI_Irecv");
    });
    wait_for(requests);
    recorder_->end(event);
  }
  void complete_sends() override {
    for (auto& [channel, sent] : sent_) {
      if (sent.requests.empty()) continue;
      recorder_->wait(sent.event);
      wait_for(sent.requests);
      recorder_->end(sent.event);
    }
  }

 private:
  template <class F>
  static void each_piece(const Tensor& t, F&& f) {
    constexpr std::int64_t kMost = 1 << 30;  // MPI counts with an int
    for (std::int64_t at = 0; at < t.bytes(); at += kMost)
      f(static_cast<char*>(t.data) + at, static_cast<int>(std::min(kMost, t.bytes() - at)));
  }
  Event begin(Collective op, const Tensor& t, int peer) {
    const Event event =
        recorder_->begin(Axis::pipeline, op, t.bytes(), stages_[static_cast<std::size_t>(peer)]);
    recorder_->wait(event);
    return event;
  }

  std::vector<int> stages_;  // ranks of the job
  std::shared_ptr<FlightRecorder> recorder_;
  MPI_Comm group_;
  std::shared_ptr<MpiSession::State> session_;
  Outbox sent_;
};

}  // namespace

std::shared_ptr<Messages> mpi_messages(std::vector<int> stages,
                                       std::shared_ptr<FlightRecorder> recorder, MPI_Comm group,
                                       std::shared_ptr<MpiSession::State> session) {
  return std::make_shared<MpiMessages>(std::move(stages), std::move(recorder), group,
                                       std::move(session));
}

}  // namespace tfm::comm
