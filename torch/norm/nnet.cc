#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "planish/torch_nnet.h"
#include "planish/torch_norm.h"

namespace planish::nn {

namespace {

struct NamedActivation {
  std::string_view name;
  torch::nn::AnyModule (*make)();
  bool (*is)(const torch::nn::Module& module);
};

template <class Module>
constexpr NamedActivation Named(std::string_view name) {
  return {name, [] { return torch::nn::AnyModule(Module()); },
          [](const torch::nn::Module& module) {
            return module.as<typename Module::ContainedType>() != nullptr;
          }};
}

constexpr NamedActivation kActivations[] = {
    Named<torch::nn::Identity>("identity"), Named<torch::nn::Sigmoid>("logistic"),
    Named<torch::nn::ReLU>("relu"),         Named<torch::nn::Softplus>("softplus"),
    Named<torch::nn::Softsign>("softsign"), Named<torch::nn::Tanh>("tanh"),
};

/// A function that makes `activation`, the argument `argument` of nnet.
std::function<torch::nn::AnyModule()> MakerOf(const char* argument, const Activation& activation) {
  if (const auto* make = std::get_if<std::function<torch::nn::AnyModule()>>(&activation)) {
    return *make;
  }
  const auto& name = std::get<std::string>(activation);
  std::string names;
  for (const NamedActivation& entry : kActivations) {
    if (entry.name == name) return entry.make;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  TORCH_CHECK_VALUE(false, "[nnet] ", argument, " must be a callable or one of ", names,
                    " but has '", name, "'");
}

/// As Python and Julia print a number: the shortest text that reads as it, with a point.
std::string Shortest(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string result(text, end.ptr);
  if (fixed && result.find('.') == std::string::npos) result += ".0";
  return result;
}

/// "ELU" of torch::nn::ELUImpl.
std::string ClassName(const torch::nn::Module& module) {
  std::string name = module.name();
  name.erase(0, name.rfind(':') + 1);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

void PrintLayer(std::ostream& stream, const torch::nn::Module& layer, int64_t width) {
  if (const auto* linear = layer.as<torch::nn::LinearImpl>()) {
    stream << (linear->bias.defined() ? "Affine{" : "Linear{") << linear->options.in_features()
           << "-->" << linear->options.out_features() << '}';
    return;
  }
  if (const auto* norm = layer.as<OnlineLayerNormImpl>()) {
    stream << "LayerNorm{n=" << norm->options.num_features() << ", mu=" << Shortest(norm->mu())
           << ", sigma=" << Shortest(norm->sigma()) << '}';
    return;
  }
  for (const NamedActivation& entry : kActivations) {
    if (!entry.is(layer)) continue;
    stream << entry.name << '{' << width << '}';
    return;
  }
  stream << ClassName(layer) << '{' << width << '}';
}

}  // namespace

std::shared_ptr<torch::nn::Module> NNetImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<NNetImpl>();
  for (const torch::nn::AnyModule& layer : *this) copy->push_back(layer.clone(device));
  return copy;
}

void NNetImpl::pretty_print(std::ostream& stream) const { stream << "planish::nn::NNet"; }

at::Tensor NNetImpl::forward(const at::Tensor& x) { return SequentialImpl::forward(x); }

std::ostream& operator<<(std::ostream& stream, const NNetImpl& net) {
  at::ScalarType type = at::get_default_dtype_as_scalartype();
  for (const at::Tensor& parameter : net.parameters()) type = parameter.scalar_type();
  stream << "Chain{" << c10::getDtypeNames(type).first << "}(\n";
  int64_t width = 0;
  for (const std::shared_ptr<torch::nn::Module>& layer : net.children()) {
    if (const auto* linear = layer->as<torch::nn::LinearImpl>()) {
      width = linear->options.out_features();
    }
    stream << "   ";
    PrintLayer(stream, *layer, width);
    stream << '\n';
  }
  return stream << ')';
}

std::ostream& operator<<(std::ostream& stream, const NNet& net) { return stream << *net; }

NNet nnet(int64_t nin, int64_t nout, const std::vector<int64_t>& hidden, const Activation& inner,
          const Activation& output, bool layernorm, double alpha) {
  const auto check = [](const char* argument, int64_t width, int64_t least) {
    TORCH_CHECK_VALUE(width >= least, "[nnet] ", argument, " must be at least ", least, " but has ",
                      width);
  };
  const int64_t least = layernorm ? 2 : 1;
  check("nin", nin, 1);
  for (const int64_t width : hidden) check("hidden", width, least);
  check("nout", nout, least);
  const auto make_inner = MakerOf("inner", inner), make_output = MakerOf("output", output);

  NNet net;
  const auto add = [&](int64_t inputs, int64_t width, const auto& make_activation) {
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(inputs, width).bias(!layernorm)));
    if (layernorm) net->push_back(OnlineLayerNorm(OnlineLayerNormOptions(width).alpha(alpha)));
    net->push_back(make_activation());
  };
  int64_t inputs = nin;
  for (const int64_t width : hidden) {
    add(inputs, width, make_inner);
    inputs = width;
  }
  add(inputs, nout, make_output);
  return net;
}

}  // namespace planish::nn
