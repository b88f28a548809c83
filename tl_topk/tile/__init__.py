"""Kernels written in TileLang: how they are compiled, kept and loaded, and the programs themselves.

TileLang only writes the CUDA source. nvcc makes one small library a kernel of it, which TVM FFI
loads and which needs no TileLang: compiling ahead of time and just in time differ in nothing but
the folder.
"""
