#include "lab/bench/case.h"

#include <regex>
#include <stdexcept>

namespace planish::bench {

size_t SizeOf(Type type) {
  switch (type) {
    case Type::kDouble:
      return 8;
    case Type::kFloat:
      return 4;
    default:
      return 2;
  }
}

Type ParameterType(Type type) { return type == Type::kDouble ? Type::kDouble : Type::kFloat; }

const char* Name(Type type) {
  switch (type) {
    case Type::kFloat:
      return "float";
    case Type::kDouble:
      return "double";
    case Type::kBFloat16:
      return "bfloat16";
    default:
      return "float16";
  }
}

const char* Name(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

Type ParseType(const std::string& name) {
  for (const Type type : {Type::kFloat, Type::kDouble, Type::kBFloat16, Type::kFloat16}) {
    if (name == Name(type)) return type;
  }
  throw std::invalid_argument(
      "[ParseType] type must be float, double, bfloat16 or float16, got \"" + name + "\"");
}

Direction ParseDirection(const std::string& name) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    if (name == Name(direction)) return direction;
  }
  throw std::invalid_argument("[ParseDirection] direction must be forward or backward, got \"" +
                              name + "\"");
}

std::string ShapeName(const Case& c) {
  const std::string plane = std::to_string(c.rows) + "x" + std::to_string(c.cols);
  return c.spatial == 1 ? plane : plane + "x" + std::to_string(c.spatial);
}

void ParseShape(const std::string& shape, Case& c) {
  static const std::regex form("([1-9][0-9]{0,9})x([1-9][0-9]{0,9})(?:x([1-9][0-9]{0,9}))?");
  std::smatch sizes;
  if (!std::regex_match(shape, sizes, form)) {
    throw std::invalid_argument(
        "[ParseShape] shape must be ROWSxCOLS or SAMPLESxCHANNELSxSPATIAL, got \"" + shape + "\"");
  }
  c.rows = std::stoll(sizes[1]);
  c.cols = std::stoll(sizes[2]);
  c.spatial = sizes[3].matched ? std::stoll(sizes[3]) : 1;
}

int64_t Bytes(const Case& c) {
  return (c.direction == Direction::kForward ? 2 : 3) * c.elements() *
         static_cast<int64_t>(SizeOf(c.type));
}

}  // namespace planish::bench
