// Symbols that GCC's headers use and that glibc 2.28 and libstdc++ 8 do not have. The libraries of
// a wheel define them, hidden, and so run wherever PyTorch's wheels (manylinux_2_28) do.

#include <exception>
#include <sstream>
#include <string>
#include <utility>

#ifdef __GLIBCXX__

// True would allow reference counts without atomic operations. New in glibc 2.32.
extern "C"
    [[gnu::visibility("hidden")]] char planish_single_threaded __asm__("__libc_single_threaded");
char planish_single_threaded = 0;

// std::exception_ptr::_M_release(), exported since libstdc++ 11. A nested_exception is a pointer to
// a virtual table and an exception_ptr; its destructor, which all versions export, releases that.
extern "C" [[gnu::visibility("hidden")]] void planish_release(void** exception_ptr) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void planish_release(void** exception_ptr) {
  void* nested[] = {nullptr, std::exchange(*exception_ptr, nullptr)};
  static_assert(sizeof nested == sizeof(std::nested_exception));
  reinterpret_cast<std::nested_exception*>(nested)->std::nested_exception::~nested_exception();
}

// std::stringbuf::str() const &, in C++20 since libstdc++ 11. Before it was str() const, which all
// versions export.
std::string planish_old_str(const std::stringbuf* buffer) __asm__(
    "_ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
[[gnu::visibility("hidden")]] std::string planish_str(const std::stringbuf* buffer) __asm__(
    "_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string planish_str(const std::stringbuf* buffer) { return planish_old_str(buffer); }

#endif
