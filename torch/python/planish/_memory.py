"""What large tensors cost beside the work on them: pages of memory."""

import ctypes

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Lets the process keep the memory of freed tensors for the next ones.

    By default glibc hands a freed tensor of some MB back to the system, which fills the pages of the
    next one with zeros when they are first touched. That takes several times as long as a norm of
    it, with any library. After this call freed memory stays with the process, to be used again; what
    the process holds is then the most that it has ever needed, and blocks of very different sizes
    may fragment it. It holds for all of the process, NumPy's arrays among it.

    To have it from the start of a program: ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1``, which
    the environment of the program must have before it begins.

    Returns:
        Whether the process's allocator took it: False with an allocator other than glibc's.

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
