"""What exceptions of Spark's become, with and without a JVM to ask for their text."""

from __future__ import annotations

import errno
import os

import pytest
from delta.exceptions import ConcurrentAppendException
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkRuntimeError

from ratchet.core.errors import BugError, LakeError, OperatorError, RetryableError
from ratchet.merge.failures import spark_errors, spark_failure


def test_what_they_mean() -> None:
    full = PySparkRuntimeError("java.io.IOException: No space left on device")
    assert isinstance(spark_failure(full, "merge"), LakeError)
    memory = PySparkRuntimeError("java.lang.OutOfMemoryError: Java heap space")
    assert isinstance(spark_failure(memory, "merge"), OperatorError)
    assert isinstance(spark_failure(AnalysisException("no column x"), "merge"), BugError)
    gone = spark_failure(Py4JNetworkError("Answer from Java side is empty"), "merge", log="/x/l")
    assert isinstance(gone, RetryableError)
    assert "/x/l" in gone.hint
    assert spark_failure(ValueError("ours"), "merge") is None


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "free space"),
        (errno.EIO, "dmesg"),
        (errno.EROFS, "mount it writable"),
    ],
)
def test_a_disk_that_fails_is_not_tried_again(number: int, remedy: str) -> None:
    said = f"java.io.FileNotFoundException: /lake/t/part-0 ({os.strerror(number)})"
    found = spark_failure(PySparkRuntimeError(said), "merge round 3", table="shop.orders")
    assert isinstance(found, LakeError)
    assert found.exit_code == 7
    assert remedy in found.hint


@pytest.mark.parametrize(
    ("said", "file"),
    [
        (
            (
                "An error occurred while calling o48.sql.\n: org.apache.spark.SparkException: "
                "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
                "file:/lake/shop/t/part-2.parquet. File does not exist. It is possible"
            ),
            "file:/lake/shop/t/part-2.parquet",
        ),
        (
            (
                "Exception thrown in awaitResult:\nCaused by: java.io.FileNotFoundException: "
                "File file:/lake/shop/t/deletion_vector_1a-2b.bin does not exist"
            ),
            "file:/lake/shop/t/deletion_vector_1a-2b.bin",
        ),
    ],
)
def test_a_lost_file_is_named_and_not_tried_again(said: str, file: str) -> None:
    found = spark_failure(PySparkRuntimeError(said), "merge round 3", table="shop.t")
    assert isinstance(found, LakeError)
    assert found.message == f"a data file is gone: {file}"
    assert "redump" in found.hint


def test_javas_own_words_are_shown() -> None:
    """Not Py4J's, which only name a method of ours."""
    java = ": org.apache.Some$Error: a shuffle was lost\n\tat x"
    said = f"An error occurred while calling o9.sql.\n{java}"
    found = spark_failure(PySparkRuntimeError(said), "merge")
    assert isinstance(found, RetryableError)
    assert found.message == "Spark failed: a shuffle was lost"
    plain = spark_failure(PySparkRuntimeError("one line"), "merge")
    assert plain is not None
    assert plain.message == "Spark failed: one line"


class _AsksTheJvmError(Py4JError):
    """Like Py4JJavaError, whose text is in the JVM."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_nothing_that_must_be_asked_of_a_jvm_is_left_in_an_error() -> None:
    with (
        pytest.raises(RetryableError, match="the JVM is gone") as caught,
        spark_errors("merge round 3", table="shop.orders"),
    ):
        raise _AsksTheJvmError
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "shop.orders" in str(caught.value)


@pytest.mark.parametrize("kind", [ConcurrentAppendException, ValueError, LakeError])
def test_conflicts_are_tried_again_and_others_stay(kind: type[Exception]) -> None:
    expected = RetryableError if kind is ConcurrentAppendException else kind
    with pytest.raises(expected), spark_errors("merge", table="t"):
        raise kind("x")
