// A character model with planish::nn::LayerNormLSTM, for C++ users of PyTorch. Trains on a text and
// writes a sample. LayerNormLSTM has the interface of torch::nn::LSTM; only the line that
// constructs it differs.
//
//   char_lstm FILE [UPDATES]
#include <planish/torch.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <tuple>

namespace {

constexpr int64_t kStreams = 32, kSteps = 64, kEmbedding = 64, kHidden = 256;

struct CharLstmImpl : torch::nn::Module {
  explicit CharLstmImpl(int64_t characters)
      : embedding(register_module("embedding", torch::nn::Embedding(characters, kEmbedding))),
        lstm(register_module("lstm", planish::nn::LayerNormLSTM(kEmbedding, kHidden))),
        output(register_module("output", torch::nn::Linear(kHidden, characters))) {}

  using State = std::tuple<torch::Tensor, torch::Tensor>;

  // Returns logits [T, B, characters] for x [T, B], and advances `state`.
  torch::Tensor forward(const torch::Tensor& x, State& state) {
    torch::Tensor y;
    std::tie(y, state) = lstm(embedding(x), state);
    return output(y);
  }

  static State ZeroState(int64_t batch) {
    return {torch::zeros({1, batch, kHidden}), torch::zeros({1, batch, kHidden})};
  }

  torch::nn::Embedding embedding;
  planish::nn::LayerNormLSTM lstm;
  torch::nn::Linear output;
};
TORCH_MODULE(CharLstm);

int Run(const std::string& file, int64_t updates) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  // Stream s of the batch reads the text from character s * length, kSteps at a time.
  const int64_t length = (static_cast<int64_t>(text.size()) - 1) / kStreams / kSteps * kSteps;
  if (length == 0) {
    std::cerr << "char_lstm: " << file << " must be a text of more than " << kStreams * kSteps
              << " characters, got " << text.size() << "\n";
    return 1;
  }

  std::string alphabet;
  std::array<int64_t, 256> number{};
  number.fill(-1);
  torch::Tensor characters = torch::empty({static_cast<int64_t>(text.size())}, torch::kLong);
  for (size_t i = 0; i < text.size(); ++i) {
    int64_t& n = number[static_cast<unsigned char>(text[i])];
    if (n < 0) {
      n = static_cast<int64_t>(alphabet.size());
      alphabet += text[i];
    }
    characters.data_ptr<int64_t>()[i] = n;
  }
  const auto streams = [&](int64_t first) {  // [length, kStreams]
    return characters.slice(0, first, first + kStreams * length).view({kStreams, length}).t();
  };
  const torch::Tensor x = streams(0), next = streams(1);

  torch::manual_seed(1);
  CharLstm model(static_cast<int64_t>(alphabet.size()));
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(2e-3));
  CharLstmImpl::State state;
  double nats = 0;
  for (int64_t update = 1; update <= updates; ++update) {
    const int64_t begin = (update - 1) * kSteps % length;
    // The state carries over to the next batch, but its gradient does not.
    state = begin == 0
                ? CharLstmImpl::ZeroState(kStreams)
                : CharLstmImpl::State{std::get<0>(state).detach(), std::get<1>(state).detach()};
    const torch::Tensor logits = model->forward(x.slice(0, begin, begin + kSteps), state);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, 1), next.slice(0, begin, begin + kSteps).flatten());
    adam.zero_grad();
    loss.backward();
    adam.step();
    nats += loss.item<double>();
    if (update % 50 == 0 || update == updates) {
      const int64_t count = update % 50 == 0 ? 50 : update % 50;
      std::cout << update << " updates: " << nats / static_cast<double>(count) / std::log(2.0)
                << " bits per character\n";
      nats = 0;
    }
  }

  const torch::NoGradGuard no_grad;
  model->eval();
  state = CharLstmImpl::ZeroState(1);
  torch::Tensor character = characters.slice(0, 0, 1).view({1, 1});
  std::cout << "\n";
  for (int i = 0; i < 300; ++i) {
    const torch::Tensor logits = model->forward(character, state).view(-1);
    character = torch::multinomial((logits / 0.8).softmax(0), 1).view({1, 1});
    std::cout << alphabet[static_cast<size_t>(character.item<int64_t>())];
  }
  std::cout << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t updates = argc == 3 ? std::strtoll(argv[2], nullptr, 10) : 1000;
  if (argc < 2 || argc > 3 || updates < 1) {
    std::cerr << "usage: char_lstm FILE [UPDATES]\n";
    return 2;
  }
  return Run(argv[1], updates);
}
