"""The table of `python -m tests.support.coverage_by_package`: each package's share of lines, and that of all."""

from tests.support.coverage_by_package import package_of, share, table


def report(statements, covered):
    return {"summary": {"num_statements": statements, "covered_lines": covered}}


def test_a_package_is_two_folders_deep_at_most():
    files = ["eos_client/ports.py", "eos_client/core/model.py", "eos_client/confluent/consumer/fetching.py"]
    assert [package_of(file) for file in files] == ["eos_client", "eos_client/core", "eos_client/confluent"]


def test_the_lines_of_a_package_are_added_up():
    files = {
        "listeners/compose.py": report(10, 10),
        "eos_client/core/model.py": report(30, 20),
        "eos_client/core/commit_gate.py": report(10, 10),
    }
    assert list(table(files)) == [
        "eos_client/core   75.0%     30 of    40 lines",
        "listeners        100.0%     10 of    10 lines",
        "all               80.0%     40 of    50 lines",
    ]


def test_the_share_of_all_lines_is_what_the_floor_is_compared_with():
    assert share({"a.py": report(30, 20), "b.py": report(10, 10)}) == 0.75
    assert share({}) == 1.0
