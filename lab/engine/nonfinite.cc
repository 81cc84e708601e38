#include "lab/engine/nonfinite.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace planish::lab {

namespace {

// The worst element of a tensor.
enum class Worst { kFinite, kNegativeInfinity, kInfinity, kNan };

const char* NameOf(Worst worst) {
  constexpr std::array kNames = {"finite", "-inf", "inf", "nan"};
  return kNames[static_cast<size_t>(worst)];
}

Worst WorstOf(const at::Tensor& t) {
  if (!t.defined() || !t.is_floating_point() || t.layout() != at::kStrided || t.numel() == 0) {
    return Worst::kFinite;
  }
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  // Maximum and minimum are nan if an element is.
  const auto [low, high] = at::aminmax(t);
  const auto min = low.item<double>(), max = high.item<double>();
  if (std::isnan(min)) return Worst::kNan;
  if (std::isinf(max) && max > 0) return Worst::kInfinity;
  return std::isinf(min) ? Worst::kNegativeInfinity : Worst::kFinite;
}

using Memory = const c10::StorageImpl*;

Memory MemoryOf(const at::Tensor& t) {
  return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
}

// Adds the tensors of an argument or result of an operator.
void AddTensors(const c10::IValue& value, Tensors& to) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) to.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) {
      if (t.defined()) to.push_back(t);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) AddTensors(element, to);
  }
}

// Names of a model's layers by the memory of their parameters.
class Layers {
 public:
  explicit Layers(torch::nn::Module& model) {
    std::map<std::string, torch::nn::Module*> modules;
    for (const auto& item : model.named_modules("", /*include_self=*/false)) {
      modules[item.key()] = item.value().get();
    }
    for (const auto& [name, module] : modules) {
      for (const at::Tensor& t : module->parameters(/*recurse=*/false)) {
        names_[MemoryOf(t)] = Outermost(name, modules);
      }
    }
    for (const at::Tensor& t : model.parameters(/*recurse=*/false)) {
      names_[MemoryOf(t)] = "the model";
    }
  }

  // Returns the layer with this parameter, or null.
  const std::string* Find(const at::Tensor& t) const {
    const auto found = names_.find(MemoryOf(t));
    return found == names_.end() ? nullptr : &found->second;
  }

 private:
  // Returns the name of the outermost module that only wraps this one: "norm1" for "norm1.norm".
  static std::string Outermost(std::string name,
                               const std::map<std::string, torch::nn::Module*>& modules) {
    for (;;) {
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos) return name;
      const torch::nn::Module& parent = *modules.at(name.substr(0, dot));
      const bool wraps = parent.children().size() == 1 && parent.parameters(false).empty() &&
                         dynamic_cast<const torch::nn::ModuleListImpl*>(&parent) == nullptr;
      if (!wraps) return name;
      name.resize(dot);
    }
  }

  std::unordered_map<Memory, std::string> names_;
};

// Records the operators of this thread whose outputs are not finite, while it exists.
class Recorder {
 public:
  Recorder(const Layers& layers, const Tensors& batch) : layers_(layers) {
    for (const at::Tensor& t : batch) batch_.push_back(MemoryOf(t));
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(Begin, End)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
    current_ = this;
  }
  ~Recorder() {
    current_ = nullptr;
    at::removeCallback(handle_);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Returns true once a value that is not finite was read from a tensor (at::Tensor::item).
  bool has_read() const { return read_.has_value(); }

  // Returns the origin of the tensor's worst element; "" if all are finite.
  std::string OriginOf(const at::Tensor& t) const {
    if (WorstOf(t) == Worst::kFinite) return "";
    const auto found = writers_.find(MemoryOf(t));
    return found == writers_.end() || has_read() ? Origin() : Origin(found->second);
  }

  // Returns the origin of the first value that was read, else of the last output.
  std::string Origin() const {
    if (read_) return Origin(*read_);
    return events_.empty() ? "" : Origin(events_.size() - 1);
  }

 private:
  // An input of an operator that is not finite.
  struct Input {
    Worst worst;
    at::TensorImpl* tensor;
    std::optional<size_t> writer;  // index of the event
    bool is_batch;
  };

  // An operator whose output is not finite.
  struct Event {
    std::string name;
    std::string layer;     // whose parameters it uses
    std::string previous;  // the last layer before it
    Worst worst;
    std::optional<Input> input;
  };

  struct Call final : at::ObserverContext {
    std::string layer;
    std::vector<Input> inputs;
    bool is_intended = false;  // an infinite constant is an input, like that of a mask
  };

  static std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
    if (current_ == nullptr || current_->has_read()) return nullptr;
    const at::DisableRecordFunctionGuard off;
    return current_->BeginCall(function);
  }

  static void End(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* call = dynamic_cast<Call*>(context);
    if (current_ == nullptr || call == nullptr || current_->has_read()) return;
    const at::DisableRecordFunctionGuard off;
    current_->EndCall(function, *call);
  }

  std::unique_ptr<Call> BeginCall(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    Tensors tensors;
    for (const c10::IValue& value : function.inputs()) {
      AddTensors(value, tensors);
      if (IsInfinite(value)) call->is_intended = true;
    }
    for (const at::Tensor& t : tensors) {
      if (const std::string* layer = layers_.Find(t); layer && call->layer.empty()) {
        call->layer = last_layer_ = *layer;
      }
      const Worst worst = WorstOf(t);
      if (worst == Worst::kFinite || fresh_.contains(MemoryOf(t))) continue;
      if (intended_.contains(MemoryOf(t)) && worst != Worst::kNan) {
        call->is_intended = true;
        continue;
      }
      const auto writer = writers_.find(MemoryOf(t));
      call->inputs.push_back(
          {worst, t.unsafeGetTensorImpl(),
           writer == writers_.end() ? std::nullopt : std::optional(writer->second),
           std::ranges::find(batch_, MemoryOf(t)) != batch_.end()});
    }
    if (function.name() == std::string_view("aten::_local_scalar_dense") && !call->inputs.empty()) {
      read_ = call->inputs.front().writer;
    }
    return call;
  }

  void EndCall(const at::RecordFunction& function, Call& call) {
    const std::string_view name = function.name();
    Tensors outputs;
    for (const c10::IValue& value : function.outputs()) AddTensors(value, outputs);
    if (IsAllocation(name)) {
      for (const at::Tensor& t : outputs) Keep(t, fresh_[MemoryOf(t)]);
      return;
    }
    // Reads nothing. Reductions view their results with it before they write them.
    if (name == "aten::as_strided") return;
    for (const at::Tensor& t : outputs) {
      fresh_.erase(MemoryOf(t));
      const Worst worst = WorstOf(t);
      if (worst == Worst::kFinite) continue;
      if (call.is_intended && call.inputs.empty() && worst != Worst::kNan) {
        Keep(t, intended_[MemoryOf(t)]);
        continue;
      }
      if (Overwrites(function)) {
        std::erase_if(call.inputs,
                      [&](const Input& i) { return i.tensor == t.unsafeGetTensorImpl(); });
      }
      const auto input = std::ranges::max_element(call.inputs, {}, &Input::worst);  // the first one
      events_.push_back({std::string(name), call.layer, last_layer_, worst,
                         input == call.inputs.end() ? std::nullopt : std::optional(*input)});
      writers_[MemoryOf(t)] = events_.size() - 1;
      Keep(t, kept_[MemoryOf(t)]);
    }
  }

  static bool IsInfinite(const c10::IValue& value) {
    return value.isDouble() && std::isinf(value.toDouble());
  }

  // Outputs of these operators have undefined elements.
  static bool IsAllocation(std::string_view name) {
    return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
           name == "aten::resize_";
  }

  // Returns true if the operator does not read the tensor that it writes.
  static bool Overwrites(const at::RecordFunction& function) {
    constexpr std::array<std::string_view, 6> kNames = {"aten::copy_",   "aten::fill_",
                                                        "aten::zero_",   "aten::uniform_",
                                                        "aten::normal_", "aten::bernoulli_"};
    const std::string_view overload = function.overload_name();
    return overload == "out" || overload.ends_with("_out") ||
           std::ranges::find(kNames, std::string_view(function.name())) != kNames.end();
  }

  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

  // Prevents that another tensor gets the same address for its memory's description.
  static void Keep(const at::Tensor& t, std::optional<Weak>& weak) {
    if (t.has_storage()) weak = t.storage().getWeakStorageImpl();
  }

  std::string Origin(size_t event) const {
    const Event* e = &events_[event];
    while (e->input && e->input->writer) e = &events_[*e->input->writer];
    if (e->input) {
      const char* worst = NameOf(e->input->worst);
      if (e->input->is_batch) return fmt::format("the batch had {}", worst);
      if (!e->layer.empty()) return fmt::format("the input of {} was {}", e->layer, worst);
      return At(fmt::format("the input of {}", e->name), *e, worst);
    }
    const char* worst = NameOf(e->worst);
    if (!e->layer.empty()) return fmt::format("the output of {} was {}", e->layer, worst);
    return At(fmt::format("the output of {}", e->name), *e, worst);
  }

  static std::string At(const std::string& what, const Event& event, const char* worst) {
    return event.previous.empty() ? fmt::format("{} was {}", what, worst)
                                  : fmt::format("{} after {} was {}", what, event.previous, worst);
  }

  static thread_local Recorder* current_;

  const Layers& layers_;
  std::vector<Memory> batch_;
  at::CallbackHandle handle_;
  std::vector<Event> events_;
  std::unordered_map<Memory, size_t> writers_;  // the last event that wrote there
  std::unordered_map<Memory, std::optional<Weak>> fresh_, intended_, kept_;
  std::string last_layer_;
  std::optional<size_t> read_;
};

thread_local Recorder* Recorder::current_ = nullptr;

// Returns the first parameter that is not finite, and their number; or "".
std::string FindParameter(const torch::nn::Module& model) {
  std::string first;
  int count = 0;
  for (const auto& item : model.named_parameters()) {
    const Worst worst = WorstOf(item.value());
    if (worst == Worst::kFinite) continue;
    if (++count == 1) first = fmt::format("the parameter {} was {}", item.key(), NameOf(worst));
  }
  return count > 1 ? fmt::format("{}, the first of {}", first, count) : first;
}

// Calls `search`. Returns "" if it fails, because the run's result does not depend on it.
template <class F>
std::string OrNothing(const F& search) {
  try {
    return search();
  } catch (const EvaluationStopped&) {
    return "";
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

std::string FindNonFiniteLayer(torch::nn::Module& model, const Tensors& batch,
                               const std::function<at::Tensor()>& loss) {
  return OrNothing([&] {
    if (std::string parameter = FindParameter(model); !parameter.empty()) return parameter;
    {
      at::NoGradGuard no_grad;
      for (const at::Tensor& buffer : model.buffers()) {
        if (buffer.is_floating_point()) buffer.nan_to_num_(0.0, 0.0, 0.0);
      }
    }
    const Layers layers(model);
    const Recorder recorder(layers, batch);
    return recorder.OriginOf(loss());
  });
}

std::string FindNonFiniteLayer(torch::nn::Module& model,
                               const std::function<void(const std::function<bool()>&)>& evaluate) {
  return OrNothing([&] {
    at::NoGradGuard no_grad;
    if (std::string parameter = FindParameter(model); !parameter.empty()) return parameter;
    const Layers layers(model);
    const Recorder recorder(layers, {});
    try {
      evaluate([&] { return recorder.has_read(); });
    } catch (const EvaluationStopped&) {
      if (!recorder.has_read()) return std::string();
    }
    return recorder.Origin();
  });
}

}  // namespace planish::lab
