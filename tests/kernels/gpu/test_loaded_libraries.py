from tilewatch.kernels.gpu.loaded_libraries import list_versions, name_version, read_loaded_versions

MAPS = """\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 11 /usr/bin/python3.12
7f10a0000000-7f10a0100000 r--p 00000000 08:01 12 /opt/torch/nvidia/cu13/lib/libcublasLt.so.13
7f10a0100000-7f10a0200000 r-xp 00100000 08:01 12 /opt/torch/nvidia/cu13/lib/libcublasLt.so.13
7f10b0000000-7f10b0100000 r--p 00000000 08:01 13 /opt/torch/nvidia/cu13/lib/libcublas.so.13
7f10c0000000-7f10c0100000 r--p 00000000 08:01 14 /home/user/my rivals/next/libcublasLt.so.13
7f10d0000000-7f10d0100000 rw-p 00000000 00:00 0
7f10e0000000-7f10e0100000 rw-p 00000000 00:00 0 [heap]
"""


def test_each_copy_of_a_library_that_is_loaded_says_its_version_once() -> None:
    called: list[tuple[str, str]] = []

    def call(file: str, function: str) -> int:
        called.append((file, function))
        return 130100 if file.startswith("/opt") else 130000

    assert list_versions("nvidia-cublas", MAPS, call) == ("13.1.0", "13.0.0")
    assert called == [
        ("/opt/torch/nvidia/cu13/lib/libcublasLt.so.13", "cublasLtGetVersion"),
        ("/home/user/my rivals/next/libcublasLt.so.13", "cublasLtGetVersion"),
    ]
    assert list_versions("nvidia-cudnn-cu13", MAPS, call) == ()


def test_two_copies_of_one_version_are_one_version() -> None:
    assert list_versions("nvidia-cublas", MAPS, lambda *_: 130100) == ("13.1.0",)


def test_a_version_is_read_from_its_number() -> None:
    assert [name_version(each) for each in (130100, 91900, 91402)] == ["13.1.0", "9.19.0", "9.14.2"]


def test_a_process_without_the_library_has_no_version_of_it() -> None:
    assert read_loaded_versions("nvidia-cublas") == ()
    assert read_loaded_versions("sgl-deep-gemm") == ()
