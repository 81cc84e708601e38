"""Control of the memory that the allocator returns to the system."""

import ctypes

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Makes the process keep the memory of freed tensors for new ones.

    By default, glibc returns the memory of a freed tensor of a few MB to the system. The system
    then zeroes the pages of the next tensor at first touch. For a norm, in any library, zeroing can
    take longer than the arithmetic. After this call the process keeps freed memory. It holds as much as
    it has ever needed, and blocks of very different sizes can fragment it. The setting applies to
    the whole process, including NumPy.

    To set it for a whole program, start the program with
    ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1`` in its environment.

    Returns:
        True if the allocator accepted the setting; False for allocators other than glibc's.

    >>> keep_freed_memory()
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))
