#ifndef PLANISH_ERROR_H_
#define PLANISH_ERROR_H_

#include <stdexcept>

namespace planish {

/// What every public function of the core throws when an argument is wrong. The text has one form:
/// `[function] argument must ... but has ...`.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace planish

#endif  // PLANISH_ERROR_H_
